"""Exact posterior draws by rejection from the prior, for tiny problems and for tests."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import find_constants, find_observations
from pymc.logprob.utils import CheckParameterValue, local_check_parameter_to_ninf_switch
from pymc.progress_bar import create_simple_progress
from pymc.pytensorf import compile
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import finite_number, positive_integer
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.graphs.values import observed_values, substitute
from pymc_nnsteps.kernels.compiling import c_by_default, drawing, without_blas_notice
from pymc_nnsteps.kernels.threads import one_thread
from pymc_nnsteps.lab.envelope import Envelope, envelope, log_densities
from pymc_nnsteps.prediction.posterior import as_tree

BLOCK_ENTRIES = 2**22
"""Upper limit of the numbers held by a block of tries."""

FEWEST = 100
"""Tries of a block: among so many there is a possible one, if these are not rare."""


Tries = Callable[[int], list[NDArray[Any]]]


@one_thread
def rejection_sample(
    model: pm.Model | None = None,
    draws: int = 1000,
    *,
    log_bound: float | None = None,
    max_tries: int = 10_000_000,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Draw independently and exactly from a posterior, by rejection from the prior.

    A draw from the prior is accepted with probability likelihood / bound. The expected number of
    tries per draw is bound / marginal likelihood, which grows exponentially with the data. The
    method is a reference for samplers, for problems with a handful of informative observations.

    The bound is found for discrete observations (their probability is at most one) and for Normal,
    StudentT, Laplace and MvNormal ones of fixed scale. It is also found for Normal, StudentT and
    Laplace observations whose scale is a power of positive variables with Gamma, inverse Gamma or
    exponential priors, at any number of levels. These variables are then drawn from their prior
    times a power, which comes from the factor :math:`\prod_i s_i^{-1}` of the likelihood.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given. All its priors must be proper.
    draws : int
        Number of exact draws.
    log_bound : float, optional
        Upper bound of the log-likelihood (of observed variables and potentials), for models
        whose bound is not found.
    max_tries : int
        Cap on the number of draws from the prior.
    random_seed : int or Generator, optional
    progressbar : bool

    Returns
    -------
    DataTree
        Group ``posterior``, of one chain, with the free variables and deterministics;
        ``observed_data`` and ``constant_data``. The attributes ``acceptance_rate`` and ``tries`` of
        the posterior record the cost of the draws.

    Raises
    ------
    NotConjugate
        If no bound is found and ``log_bound`` is not given; the message gives the variable and the
        reason.
    ValueError
        If an argument is invalid; if the log-likelihood of a try exceeds its bound; if the log
        density is itself random; if vectors are partly observed.
    RuntimeError
        If ``max_tries`` tries gave fewer draws, or as soon as it is clear that they will; if a
        variable has no proper prior.

    Notes
    -----
    An interrupt returns what has been accepted so far.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    Section on rejection sampling, eq. 69.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope")
    ...     precision = pm.Gamma("precision", 2, 1)
    ...     y = pm.Normal("y", slope * np.arange(3.0), tau=precision, observed=[0.1, 0.9, 2.1])
    >>> exact = nns.lab.rejection_sample(model, 500, random_seed=0, progressbar=False)
    >>> exact.posterior["slope"].shape
    (1, 500)
    >>> bool(0.7 < exact.posterior["slope"].mean() < 1.1)
    True
    """
    model = model_to_read(model)
    draws = positive_integer("draws", draws)
    max_tries = positive_integer("max_tries", max_tries)
    if not model.observed_RVs and not model.potentials:
        raise ValueError(
            "model has no observed variables; draw from its prior with pm.sample_prior_predictive."
        )
    if not model.free_RVs:
        raise ValueError("model has no free variables to draw.")
    refuse_random_data(model)
    bounded = _envelope(model, log_bound)
    rng = np.random.default_rng(random_seed)
    wanted = [*model.free_RVs, *model.deterministics]
    try_block, entries = _compile(model, wanted, bounded, rng)
    run = _Tally(draws, max_tries, log_bound, rng)
    progress = create_simple_progress(progressbar=progressbar)
    try:
        with progress:
            task = progress.add_task("Rejection sampling", completed=0, total=draws)
            while run.goes_on:
                n = run.next_block(int(np.clip(BLOCK_ENTRIES // entries, 1, 10_000)))
                with np.errstate(invalid="ignore", divide="ignore"):  # impossible tries
                    *values, log_ratio = try_block(n)
                run.add(values, log_ratio)
                rate = f"Rejection sampling, {run.rate:.2g} of the tries accepted"
                progress.update(task, completed=run.accepted, description=rate)
    except KeyboardInterrupt:
        if not run.accepted:
            raise
    else:
        run.require_enough()
    posterior = {
        variable.name: np.concatenate(values)[None]
        for variable, values in zip(wanted, zip(*run.kept, strict=True), strict=True)
    }
    observed, constant = find_observations(model), find_constants(model)
    tree = as_tree(
        model, {"posterior": posterior, "observed_data": observed, "constant_data": constant}
    )
    tree["posterior"].attrs.update({"acceptance_rate": run.rate, "tries": run.tries})
    return tree


@dataclass
class _Tally:
    """Tries so far, and the draws that were accepted."""

    # As of :func:`rejection_sample`.
    draws: int
    max_tries: int
    log_bound: float | None
    rng: np.random.Generator
    # Values of the draws, block by block.
    kept: list[list[NDArray[Any]]] = field(default_factory=list)
    accepted: int = 0
    tries: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether more tries are wanted."""
        return self.accepted < self.draws and self.tries < self.max_tries and not self._is_hopeless

    @property
    def _is_hopeless(self) -> bool:
        """Whether of a billion runs with ``draws`` in ``max_tries`` tries none begins like this."""
        expected = self.tries * self.draws / self.max_tries
        return bool(scipy.special.pdtr(self.accepted, expected) < 1e-9)

    @property
    def rate(self) -> float:
        """Part of the tries that was accepted."""
        return self.accepted / self.tries

    def next_block(self, largest: int) -> int:
        """Number of tries of the next block."""
        expected = (self.draws - self.accepted) * (self.tries + 1) / (self.accepted + 1)
        return min(int(np.clip(2 * expected, FEWEST, largest)), self.max_tries - self.tries)

    def add(self, values: list[NDArray[Any]], log_ratio: NDArray[np.floating]) -> None:
        """Accept tries of a block by their log ratios."""
        _require_bounded(log_ratio, self.log_bound)
        n = len(log_ratio)
        # Tries are independent: those after the last draw need not have been made.
        [hits] = np.nonzero(np.log(self.rng.random(n)) < log_ratio)
        hits = hits[: self.draws - self.accepted]
        made = int(hits[-1]) + 1 if self.accepted + len(hits) == self.draws else n
        self.kept.append([value[hits] for value in values])
        self.accepted, self.tries = self.accepted + len(hits), self.tries + made

    def require_enough(self) -> None:
        """Check that no draw is missing."""
        if self.accepted < self.draws:
            needed = self.draws * self.tries / max(self.accepted, 1)
            raise RuntimeError(
                f"rejection_sample accepted {self.accepted} of {self.tries} tries: "
                f"draws={self.draws} take {'about' if self.accepted else 'more than'} {needed:.3g} "
                f"tries, but max_tries={self.max_tries}; ask for fewer draws, allow more tries, or "
                "use pm.sample."
            )


def _require_bounded(log_ratio: NDArray[np.floating], log_bound: float | None) -> None:
    """Check that probabilities of acceptance are not above one, but for rounding."""
    highest = np.max(log_ratio, initial=-np.inf, where=~np.isnan(log_ratio))
    if highest <= np.sqrt(np.finfo(log_ratio.dtype).eps):
        return
    if log_bound is None:
        raise ValueError(
            f"The likelihood exceeds the bound that rejection_sample found, by {highest:g} in its "
            "logarithm: a distribution in the model is not normalised; pass log_bound, an upper "
            "bound of the log-likelihood."
        )
    raise ValueError(
        f"log_bound must not be exceeded by the log-likelihood, which reached "
        f"{highest + log_bound:g}; got {log_bound!r}."
    )


def _envelope(model: pm.Model, log_bound: float | None) -> Envelope:
    """What to propose from: the prior, where the bound of the log-likelihood is given."""
    if log_bound is not None:
        bound, densities = finite_number("log_bound", log_bound), log_densities(model)
        terms = [*map(densities.get, model.observed_RVs), *model.potentials]
        return Envelope({}, reduce(add, (term.sum() for term in terms)) - bound)
    try:
        return envelope(model)
    except NotConjugate as reason:
        raise NotConjugate(
            f"rejection_sample finds no bound of the likelihood: {reason}; pass log_bound, an "
            "upper bound of the log-likelihood."
        ) from None


def _within_prior(model: pm.Model) -> TensorVariable:
    """Zero, or minus infinity where a variable has no density although it can be drawn.

    A transform may restrict a variable (to an order, an interval): it has no density outside. Nor
    has it any where its parameters are impossible (a uniform with its bounds in the wrong order).
    """
    densities = log_densities(model)
    possible = _checks([densities[rv] for rv in model.free_RVs])
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            value = transform.forward(rv, *rv.owner.inputs)
            possible.append(~pt.isnan(value).any())
    return pt.switch(pt.all(possible), 0.0, -np.inf) if possible else pt.zeros(())


def _checks(densities: list[TensorVariable]) -> list[Any]:
    """Conditions that parameters must meet for densities."""
    nodes = toposort(densities)
    checks = [node for node in nodes if isinstance(node.op, CheckParameterValue)]
    return [condition for check in checks for condition in check.inputs[1:]]


def _compile(
    model: pm.Model, wanted: list[TensorVariable], bounded: Envelope, rng: np.random.Generator
) -> tuple[Tries, int]:
    """A function that makes n tries: values of ``wanted`` and log ratios; numbers per try."""
    observed = observed_values(model)
    outputs: list[Any] = [*wanted, bounded.log_ratio + _within_prior(model)]
    places: dict[Any, Any] = {rv: rv.type() for rv in bounded.proposals}
    known = {**observed, **places}
    outputs = substitute(outputs, known)
    for rv, proposal in bounded.proposals.items():  # children before parents
        outputs = substitute(outputs, {places[rv]: substitute([proposal], known)[0]})
    # What is impossible rejects a try: of the tries of a block each by itself.
    rejecting = in2out(local_check_parameter_to_ninf_switch)
    checked = FunctionGraph(outputs=outputs, copy_inputs=False)
    rejecting.rewrite(checked)
    outputs = checked.outputs
    options: dict[str, Any] = {"random_seed": int(rng.integers(2**31)), **drawing(c_by_default())}
    nodes = [node for node in toposort(outputs) if any(map(_is_rng, node.inputs))]
    drawn: list[Any] = [v for node in nodes for v in node.outputs if not _is_rng(v)]
    with without_blas_notice():
        lengths = compile([], [v.shape for v in (*outputs, *drawn, *observed.values())], **options)
        shapes = [tuple(map(int, shape)) for shape in lengths()]
        entries = sum(map(math.prod, shapes))
        if not all(isinstance(node.op, RandomVariable) for node in nodes):
            return partial(_repeat, compile([], outputs, **options)), entries
        n = pt.scalar("n", dtype="int64")
        many = compile([n], _vectorized(outputs, drawn, shapes[len(outputs) :], n), **options)

    def try_block(n: int) -> list[NDArray[Any]]:
        values = zip(many(n), shapes[: len(outputs)], strict=True)
        return [np.broadcast_to(value, (n, *shape)) for value, shape in values]

    return try_block, entries


def _repeat(once: Callable[[], list[NDArray[Any]]], n: int) -> list[NDArray[Any]]:
    """Values of ``n`` calls."""
    return [np.stack(values) for values in zip(*(once() for _ in range(n)), strict=True)]


def _is_rng(variable: Variable) -> bool:
    return isinstance(variable.type, RandomGeneratorType)


def _vectorized(
    outputs: list[Any],
    drawn: list[TensorVariable],
    shapes: list[tuple[int, ...]],
    n: TensorVariable,
) -> list[Any]:
    """``n`` independent copies of ``outputs``, along a first axis."""
    copies: dict[Variable, Any] = {}
    for rv, shape in zip(drawn, shapes, strict=False):
        op, rng = rv.owner.op, rv.owner.inputs[0]
        batch = shape[: rv.ndim - op.ndim_supp]
        given = _possible(n, rv, copies) if copies else parameters(rv)
        # A copy, since PyTensor vectorises some Ops by the node of their input.
        copies[rv] = pt.tensor_copy(op.make_node(rng, pt.stack([n, *batch]), *given).outputs[1])
    return list(vectorize_graph(outputs, copies))


def _possible(n: TensorVariable, rv: TensorVariable, copies: dict[Variable, Any]) -> list[Any]:
    """Parameters for the copies of a variable, those of another try where they are impossible.

    With impossible ones NumPy would not draw at all. Such a try is rejected anyway.
    """
    given, value = list(parameters(rv)), rv.type()
    density = pm.logp(rv, value, warn_rvs=False)
    checks = [check for check in _checks([density]) if value not in ancestors([check])]
    copied: Any = vectorize_graph([*given, pt.all([np.array(True), *checks])], copies)
    *batched, possible = copied
    if not possible.ndim:
        return batched
    tries = pt.switch(possible, pt.arange(n), pt.argmax(possible))
    return [
        new[tries] if new.ndim > old.ndim else new for old, new in zip(given, batched, strict=True)
    ]

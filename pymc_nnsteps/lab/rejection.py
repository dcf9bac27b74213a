r"""Exact posterior draws by rejection from the prior, for tiny problems and for tests.

A proposal q with :math:`p(\theta) L(\theta) \le C q(\theta)` is needed. The probability of a
discrete observation is at most one. The density of a real one with scale s is at most its value at
its location, a constant over s. If s is fixed, the prior serves as q. If it is a power of a
positive variable v with a Gamma or inverse Gamma prior, the factor :math:`1/s = v^{-p}` of each
observation goes into the proposal of v, which is of the same family with another shape (Neal,
*Neural Network Models Implemented in the Flexible Bayesian Modelling Software*, eq. 69).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import find_constants, find_observations
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.basic import conditional_logp
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pymc.progress_bar import create_simple_progress
from pymc.pytensorf import compile
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.traversal import toposort
from pytensor.tensor.random import basic as random
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import finite_number, positive_integer
from pymc_nnsteps.compile.compiling import c_by_default, drawing, without_blas_notice
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import (
    LINE,
    POSITIVE,
    describe,
    distribution,
    has_foreign_density,
    has_prior,
    is_onto,
    prior_kind,
)
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import parameters, stated_in
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.graphs.values import observed_values, substitute
from pymc_nnsteps.laws.conditional import summed
from pymc_nnsteps.laws.scales import CHILDREN, scaled_child
from pymc_nnsteps.prediction.posterior import as_tree

BLOCK, BLOCK_ENTRIES = 1_000, 2**22
"""Tries of a block, fewer where these would hold more numbers than the second."""

LOCATION: dict[type, int] = {
    random.NormalRV: 0,
    random.StudentTRV: 1,
    random.LaplaceRV: 0,
    random.MvNormalRV: 0,
}
"""Position of the parameter at which a density is greatest."""


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
    Laplace observations whose scale is a power of variables with Gamma, inverse Gamma or
    exponential priors of fixed parameters.

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
        density is itself random; if vectors are partly observed; if a prior cannot be drawn, as
        with a negative scale.
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
    with declined_as("pass log_bound=, an upper bound of the log-likelihood; none is found"):
        bounded = envelope(model, log_bound)
    rng = np.random.default_rng(random_seed)
    wanted = [*model.free_RVs, *model.deterministics]
    try_block = _compile(model, wanted, bounded, rng)
    kept: list[list[NDArray[Any]]] = []
    accepted = tries = 0
    progress = create_simple_progress(progressbar=progressbar)
    try:
        with progress:
            task = progress.add_task("Rejection sampling", completed=0, total=draws)
            while accepted < draws and tries < max_tries:
                with np.errstate(invalid="ignore", divide="ignore"):  # impossible tries
                    *values, log_ratio = try_block()
                _require_bounded(log_ratio, log_bound)
                n = min(len(log_ratio), max_tries - tries)
                [hits] = np.nonzero(np.log(rng.random(n)) < log_ratio[:n])
                hits = hits[: draws - accepted]
                kept.append([value[hits] for value in values])
                accepted += len(hits)
                # Tries are independent: those after the last draw need not have been made.
                tries += n if accepted < draws else int(hits[-1]) + 1
                rate = f"Rejection sampling, {accepted / tries:.2g} of the tries accepted"
                progress.update(task, completed=accepted, description=rate)
                if _is_hopeless(accepted, tries * draws / max_tries):
                    break
    except KeyboardInterrupt:
        if not accepted:
            raise
    else:
        _require_enough(draws, accepted, tries, max_tries)
    posterior = {
        variable.name: np.concatenate(values)[None]
        for variable, values in zip(wanted, zip(*kept, strict=True), strict=True)
    }
    observed, constant = find_observations(model), find_constants(model)
    tree = as_tree(
        model, {"posterior": posterior, "observed_data": observed, "constant_data": constant}
    )
    tree["posterior"].attrs.update({"acceptance_rate": accepted / tries, "tries": tries})
    return tree


def _is_hopeless(accepted: int, expected: float) -> bool:
    """Whether fewer than one of a billion runs that would succeed begins with so few draws."""
    return bool(scipy.special.pdtr(accepted, expected) < 1e-9)


def _require_enough(draws: int, accepted: int, tries: int, max_tries: int) -> None:
    if accepted < draws:
        needed = draws * tries / max(accepted, 1)
        raise RuntimeError(
            f"rejection_sample accepted {accepted} of {tries} tries: draws={draws} take "
            f"{'about' if accepted else 'more than'} {needed:.3g} tries, but "
            f"max_tries={max_tries}; ask for fewer draws, allow more tries, or use pm.sample."
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


@dataclass(frozen=True)
class Envelope:
    """A proposal and the log of the probability to accept it."""

    # Random variables to draw in the place of free ones.
    proposals: Mapping[TensorVariable, TensorVariable]
    log_ratio: TensorVariable  # at most zero, in terms of the model's random variables


def envelope(model: pm.Model, log_bound: float | None = None) -> Envelope:
    """A bound of the likelihood: one that is given, or of the density at its mode."""
    densities = log_densities(model)
    if log_bound is not None:
        bound = finite_number("log_bound", log_bound)
        terms = [*map(densities.get, model.observed_RVs), *model.potentials]
        return Envelope({}, reduce(add, (term.sum() for term in terms)) - bound)
    if model.potentials:
        raise NotConjugate(f"the potential {describe(model.potentials[0])} has no known bound")
    free = set(model.free_RVs)
    powers: dict[TensorVariable, NDArray[np.floating]] = {}
    ratios = []
    for y in model.observed_RVs:
        log_density = densities[y]
        if y.dtype not in discrete_dtypes:
            if stated_in(y.owner.inputs, model.basic_RVs).isdisjoint(free):
                continue
            log_density -= pm.logp(y, _mode(model, y), warn_rvs=False)
            role = CHILDREN.get(prior_kind(model, y))
            scale = [] if role is None else [parameters(y)[role.scale]]
            for v in stated_in(scale, model.basic_RVs) & free:
                with declined_as(describe(v)):
                    scaled = scaled_child(model, y, v)
                each = -pt.as_tensor(scaled.form.exponent)
                power = _evaluated(model, summed(each, scaled.form, v, scaled.value))
                powers[v] = powers.get(v, 0) + power
        ratios.append(log_density.sum())
    proposals = {v: _tilted(model, v, power) for v, power in powers.items()}
    return Envelope(proposals, reduce(add, ratios, pt.zeros(())))


def log_densities(model: pm.Model) -> dict[TensorVariable, TensorVariable]:
    """Log densities of all variables, of the observed ones at their data, given the others."""
    for rv in model.free_RVs:
        if has_foreign_density(rv):
            raise ValueError(
                f"{describe(rv)} is {distribution(rv)}, from which PyMC need not draw; "
                "rejection_sample needs the priors of PyMC."
            )
    for y in model.observed_RVs:
        if not is_onto(model, y, LINE):
            raise ValueError(
                f"{describe(y)} is observed with a transform; transform its data instead."
            )
        if has_prior(model, y, PartialObservedRV) and y.owner.op.ndim_supp > 0:
            raise ValueError(
                f"{describe(y)} observes parts of vectors, but rejection_sample needs whole ones; "
                "observe these, or use pm.sample."
            )
    values = {rv: rv.type() for rv in model.free_RVs}
    values_and_data = {**values, **observed_values(model)}
    terms = conditional_logp(values_and_data, warn_rvs=False)
    given = {value: rv for rv, value in values.items()}
    return {rv: substitute([terms[value]], given)[0] for rv, value in values_and_data.items()}


def _mode(model: pm.Model, y: TensorVariable) -> TensorVariable:
    """Mode of ``y``, if the density at the mode depends on the scale alone."""
    op = prior_kind(model, y)
    if op not in LOCATION:
        raise NotConjugate(f"the density of {describe(y)}, {distribution(y)}, has no known bound")
    given = parameters(y)
    role = CHILDREN.get(op)
    free = set(model.free_RVs)
    for position, parameter in enumerate(given):
        is_scale = role is not None and position == role.scale
        unknown = stated_in([parameter], model.basic_RVs) & free
        if unknown and not is_scale and position != LOCATION[op]:
            raise NotConjugate(
                f"the density of {describe(y)} has no known bound: a parameter other than its "
                f"location and scale depends on {describe(min(unknown, key=describe))}"
            )
    location = given[LOCATION[op]].astype(y.dtype)
    return pt.broadcast_to(location, model.rvs_to_values[y].shape)


def _tilted(model: pm.Model, v: TensorVariable, power: NDArray[np.floating]) -> TensorVariable:
    """A variable with the prior of ``v`` times a power of it."""
    op, given = prior_kind(model, v, POSITIVE), parameters(v)
    if op not in (random.GammaRV, random.ExponentialRV, random.InvGammaRV):
        raise NotConjugate(
            f"the likelihood has no known bound under the prior of {describe(v)}, "
            f"{distribution(v)}; a scale needs a Gamma, Exponential or InverseGamma prior"
        )
    if unknown := stated_in(given, model.basic_RVs) & set(model.free_RVs):
        raise NotConjugate(f"the prior of {describe(v)} depends on {describe(unknown.pop())}")
    shape = pt.ones((), dtype=v.dtype) if op is random.ExponentialRV else given[0]
    raised = shape - power if op is random.InvGammaRV else shape + power
    if np.any(_evaluated(model, raised) <= 0):
        raise NotConjugate(f"the likelihood is unbounded under the prior of {describe(v)}")
    draw = random.invgamma if op is random.InvGammaRV else random.gamma
    size = v.owner.op.size_param(v.owner)
    rng = v.owner.inputs[0]
    return draw(raised, scale=given[-1], rng=rng, size=size, dtype=v.dtype, return_next_rng=True)[1]


def _evaluated(model: pm.Model, expression: TensorVariable) -> NDArray[np.floating]:
    """Value of an expression of constants and data."""
    [known] = substitute([expression], observed_values(model))
    return np.asarray(known.eval(mode="FAST_COMPILE"))


def _within_prior(model: pm.Model) -> TensorVariable:
    """Zero, or minus infinity for a draw that a transform, or its own density, excludes."""
    densities = log_densities(model)
    possible = [(densities[rv] > -np.inf).all() for rv in model.free_RVs]
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            possible.append(~pt.isnan(transform.forward(rv, *rv.owner.inputs)).any())
    return pt.switch(pt.all(possible), 0.0, -np.inf)


def _compile(
    model: pm.Model, wanted: list[TensorVariable], bounded: Envelope, rng: np.random.Generator
) -> Callable[[], list[NDArray[Any]]]:
    """A function that makes a block of tries: values of ``wanted``, and log ratios."""
    observed = observed_values(model)
    outputs: list[Any] = [*wanted, bounded.log_ratio + _within_prior(model)]
    proposals = substitute(bounded.proposals.values(), observed)
    known = {**observed, **dict(zip(bounded.proposals, proposals, strict=True))}
    outputs = substitute(outputs, known)
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
        n = int(np.clip(BLOCK_ENTRIES // sum(map(math.prod, shapes)), 1, BLOCK))
        if not all(isinstance(node.op, RandomVariable) for node in nodes):
            once = compile([], outputs, **options)
            return lambda: [
                np.stack(each) for each in zip(*(once() for _ in range(n)), strict=True)
            ]
        many = compile([], _vectorized(outputs, drawn, shapes[len(outputs) :], n), **options)

    def try_block() -> list[NDArray[Any]]:
        values = zip(many(), shapes[: len(outputs)], strict=True)
        return [np.broadcast_to(value, (n, *shape)) for value, shape in values]

    return try_block


def _is_rng(variable: Variable) -> bool:
    return isinstance(variable.type, RandomGeneratorType)


def _vectorized(
    outputs: list[Any],
    drawn: list[TensorVariable],
    shapes: list[tuple[int, ...]],
    n: int,
) -> list[Any]:
    """``n`` independent copies of ``outputs``, along a first axis."""
    copies: dict[Variable, Any] = {}
    for rv, shape in zip(drawn, shapes, strict=False):
        op, rng = rv.owner.op, rv.owner.inputs[0]
        batch = shape[: rv.ndim - op.ndim_supp]
        given = vectorize_graph(parameters(rv), copies) if copies else parameters(rv)
        # A copy, since PyTensor vectorises some Ops by the node of their input.
        copies[rv] = pt.tensor_copy(op.make_node(rng, (n, *batch), *given).outputs[1])
    return list(vectorize_graph(outputs, copies))

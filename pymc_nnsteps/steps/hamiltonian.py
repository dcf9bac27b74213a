"""Hamiltonian Monte Carlo with a metric that follows what other steps draw."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args, override

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.step_methods.compound import StepMethodState, infer_warn_stats_info
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import (
    positive_integer,
    positive_number,
    require_bool,
    require_bool_or_auto,
    require_choice,
)
from pymc_nnsteps.compile.compiling import (
    c_by_default,
    without_bookkeeping,
)
from pymc_nnsteps.compile.native import announced
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.moves.plan import Choice
from pymc_nnsteps.steps.compiled import OfData
from pymc_nnsteps.steps.flat import FlatDensity, Located
from pymc_nnsteps.steps.imputed_rows import ImputedRows, moved_by_gradients
from pymc_nnsteps.steps.network_curvature import Choice as MetricChoice
from pymc_nnsteps.steps.network_curvature import Metric
from pymc_nnsteps.steps.networks import Relabelling
from pymc_nnsteps.steps.standardised_weights import StandardisedWeights, TunedScales
from pymc_nnsteps.steps.step import ACCEPTANCE_AND_SIZE, Step, Vars, chosen, require_continuous
from pymc_nnsteps.steps.sweep import Sweep
from pymc_nnsteps.steps.terms import block_to_collapse
from pymc_nnsteps.steps.trajectories import TYPES, no_u_turn, on_orbit, random_length
from pymc_nnsteps.steps.tuning import DualAveraging, Recent, Repeats

FIRST_SIZE = 0.5

LARGEST_SIZE = 1.0
"""Upper limit of the step size in the network metric, which already bounds the curvature."""

SECONDS = 40
"""What Numba takes to compile a density with its gradient, and trajectories."""

LONGEST = 1_000
"""Upper limit of the number of leapfrog steps of a trajectory in the network metric."""

AFTER_TUNING = (400, 50)
"""The same for the trajectories of a draw after tuning, where scales are moved along and mix well.
Where they do not, a draw has more trajectories of the first kind."""

STATS: dict[str, Any] = {
    "acceptance_probability": (np.float64, []),
    "proposal_size": (np.float64, []),
    "log_density": (np.float64, []),
    "n_leapfrog": (np.int64, []),
    "diverging": (bool, []),
    "n_diverging": (np.int64, []),
}


@dataclass_state
class HMCState(StepMethodState):
    """Sampling state of :class:`HMC`."""

    tune: bool
    adaptation: DualAveraging
    curvature: Recent | None
    references: Recent | None
    of_scales: TunedScales
    repeats: Repeats
    n_diverging: int


class HMC(Step):
    r"""Hamiltonian Monte Carlo with a metric that is recomputed for every trajectory.

    It is designed to run alongside :class:`~pymc_nnsteps.Gibbs`, which may change the scales of
    weights by large factors between trajectories. The variance of each momentum is

    .. math:: M_i = \text{prior precision}_i(\text{parents}) + c_i.

    The first term is the prior's precision at the current values of the variable's parents (for a
    Normal, Student-t or Laplace prior; 1 on the unconstrained scale for others, and where this step
    also moves a parent). The second is the curvature of the rest of the log density. For a weight
    of a network it is the expected information of the response about the outputs, times the square
    of the weight's factor and of all factors between the weight and the outputs. These are as large
    as they can be at the current scales, because units may exchange their roles. Where the
    information depends on variables that this step moves, its mean during tuning is used. For other
    variables and models the curvature is the mean of squared gradients during tuning, weighted
    towards recent ones, and then fixed. No M depends on variables that this step moves, so the
    posterior is left invariant.

    If the targets are Normal, weights in which the outputs are linear are integrated out of the
    density and drawn exactly from their Gaussian conditional after each trajectory (``collapse``).

    A trajectory either has a random length and is accepted or rejected as a whole, or is
    multinomial and ends where it turns back (no-U-turn). It runs in one call of a compiled loop,
    including the gradient.

    Missing entries of the inputs (``nns.blocks.table(..., missing="impute")``) are moved separately
    from the weights, row by row: by proposals from their distribution given the rest of the row,
    and along short trajectories.

    Scales that another step draws given the weights hardly move, because the weights determine them
    closely. A second trajectory therefore moves these scales and multiplies the weights by the same
    factors (``scales``).

    Parameters
    ----------
    vars : variable or list of variables, optional
        Continuous random variables (or their names), including those of :mod:`pymc.dims`. None: all
        of the model.
    metric : {"auto", "network", "learnt", "prior"}
        The curvature: that of a network at the current scales, learnt during tuning, or none.
        "auto" is "network" if some variables are weights of a network that can be read (Normal,
        Student-t or Laplace priors; matrix products, sums, and tanh, erf, softplus, relu or abs
        between; any likelihood, with the network in its mean, its scale or both); all other
        variables then have a learnt curvature. Otherwise it is "learnt".
    collapse : bool or "auto"
        Whether to integrate out the largest block of variables that is Gaussian given all others.
        "auto" does so in float64 for weights of a network that can be read, if one precision matrix
        serves all outputs and each output depends on at most 100 such weights, because the cost of
        a gradient is cubic in their number.
    scales : bool
        Whether to move scales of the variables (and scales of scales) that are not among ``vars``
        as well, with the ratios of weights to scales held fixed. Such scales are positive
        variables, stored as logarithms, with a child that is Normal, Student-t or Laplace with mean
        zero, or that is the scale of such a variable. This leaves the posterior invariant.
    relabel : bool
        Whether to permute the units of each hidden layer at random at the end of a draw, if this
        step moves all variables of the layer, and to flip signs where the density does not change,
        so that all units have the same distribution.
    step_size : float, optional
        Size of the leapfrog steps in units of the metric. By default it is adapted during tuning
        and then kept. It is at most 1 in the metric of a network, which bounds the curvature.
    target_accept : float
        Target of the adaptation: mean acceptance probability over a trajectory.
    max_depth : int
        Maximal number of doublings of a no-U-turn trajectory.
    longest : int, "auto" or None
        Maximal number of leapfrog steps of a trajectory. The number is drawn log-uniformly from 1
        to this. None: no-U-turn trajectories. "auto" is None except in the metric of a network,
        where scales need more frequent draws than no-U-turn trajectories allow. There it is 1000
        during tuning, to find the bulk of the posterior, and then again, unless scales are moved
        too: a draw then has one trajectory of up to 400 steps and one of up to 50, or 2 to 10 of up
        to 400, as many as leave scales and biases nearly independent in successive draws, judged by
        the second half of tuning, if this has at least 500 draws.
    model, rng, blocked, initial_point
        As for :class:`~pymc_nnsteps.PCN`; all variables are one block.
    compile_kwargs : dict, optional
        Options of :func:`pymc.pytensorf.compile`. A mode such as ``{"mode": "CVM"}`` runs the same
        trajectories in Python, at several times the cost.

    Raises
    ------
    ValueError
        If a variable is discrete, if the model's density has no gradient or is itself random
        (``pm.Minibatch``), if it is not finite where a trajectory starts, if an argument is out of
        range, if ``metric`` is "network" and the network cannot be read, or if ``collapse`` is True
        and no variable, or every variable, can be integrated out.

    Notes
    -----
    Statistics of a draw: ``acceptance_probability`` (the mean over the trajectory),
    ``proposal_size`` (of the leapfrog steps), ``log_density`` (the sum of the model's log densities
    that depend on the variables or on scales moved with them, including their own and Jacobians;
    where variables are integrated out, that of the others up to a constant), ``n_leapfrog``,
    ``diverging`` (which PyMC counts and warns about), ``n_diverging`` (since tuning),
    ``scales_acceptance`` and ``scales_size`` (of the trajectory of scales, where there are any).

    References
    ----------
    Hoffman and Gelman, *The No-U-Turn Sampler*, JMLR 15 (2014). Betancourt, *A Conceptual
    Introduction to Hamiltonian Monte Carlo*, arXiv 1701.02434 (2017). Neal, *Bayesian Learning for
    Neural Networks* (1996), Section 3.5: step sizes from the present hyperparameters; *Neural
    Network Models Implemented in the Flexible Bayesian Modelling Software* (2022), equations 58-68.
    Yu and Meng, *To center or not to center*, JCGS 20 (2011): scales drawn in two ways in turn.

    Examples
    --------
    >>> import pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     tau = pm.Gamma("tau", 2, 1)
    ...     w = pm.Normal("w", 0, tau=tau, shape=2)
    ...     y = pm.Normal("y", pm.math.tanh(w), 0.1, observed=[0.3, -0.2])
    ...     steps = [nns.HMC([w]), nns.Gibbs([tau])]
    >>> point, [stats] = steps[0].step(model.initial_point())
    >>> stats["diverging"]
    False
    """

    name = "hmc"
    _uses_gradient = True
    _state_class = HMCState
    _shown = {**ACCEPTANCE_AND_SIZE, "n_diverging": ("Divergences", "")}  # noqa: RUF012
    _tuned = ("adaptation", "curvature", "references", "of_scales", "repeats")

    @without_bookkeeping()
    def __init__(
        self,
        vars: Vars = None,
        *,
        metric: MetricChoice = "auto",
        collapse: Choice = "auto",
        scales: bool = True,
        relabel: bool = True,
        step_size: float | None = None,
        target_accept: float = 0.9,
        max_depth: int = 10,
        longest: int | Literal["auto"] | None = "auto",
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        require_choice("metric", metric, get_args(MetricChoice))
        require_bool_or_auto("collapse", collapse)
        require_bool("scales", scales)
        require_bool("relabel", relabel)
        self._given_size = None if step_size is None else positive_number("step_size", step_size)
        self._target = positive_number("target_accept", target_accept, below=1)
        self.max_depth = positive_integer("max_depth", max_depth)
        if longest not in (None, "auto"):
            longest = positive_integer("longest", longest)
        model = modelcontext(model)
        rvs = list(model.free_RVs) if vars is None else chosen(model, vars)
        require_continuous(rvs, "HMC")
        self.vars = [model.rvs_to_values[rv] for rv in rvs]
        self.rng = get_random_generator(rng)
        if initial_point is None:
            initial_point = model.initial_point()
        self._initial_point = initial_point
        in_c = c_by_default(compile_kwargs)
        shapes = shapes_of(model, initial_point)
        by_gradients = moved_by_gradients(model, rvs)
        block = block_to_collapse(model, by_gradients, collapse, shapes)
        integrated_out = () if block is None else block.draws
        self.integrated_out = [str(model.rvs_to_values[rv].name) for rv in integrated_out]
        moved = [rv for rv in by_gradients if rv not in integrated_out]
        self._metric = Metric(model, moved, metric, in_c, integrated_out)
        self._largest_size = LARGEST_SIZE if self._metric.kind == "network" else math.inf
        self._block = None if block is None else Sweep(model, [block], shapes, in_c)
        beside = StandardisedWeights(model, moved, integrated_out) if scales else None
        self._scales = beside if beside and beside.scales else None
        self._shortens = longest == "auto" and self._scales is not None
        if longest == "auto":
            longest = LONGEST if self._metric.kind == "network" else None
        self.longest = longest
        along = [] if self._scales is None else self._scales.scales
        self._density = density = self._compiled(model, [*moved, *along], block, compile_kwargs)
        self._relabelled = Relabelling(model, [*rvs, *along] if relabel else [])
        self._imputed = ImputedRows(model, rvs, in_c, follow=True)
        located = density.read(initial_point)
        with announced("trajectories", SECONDS):
            start, ones = density(located), np.ones(len(located.place))
            self._move(np.random.default_rng(0), located, start, ones, FIRST_SIZE, 1)
        self._start(tune=1)

    def _compiled(
        self,
        model: pm.Model,
        moved: Sequence[TensorVariable],
        block: Gaussian | None,
        compile_kwargs: dict[str, Any] | None,
    ) -> FlatDensity:
        """The density that trajectories follow; declares their statistics."""
        kernels, stats = [random_length if self.longest else no_u_turn], STATS
        if self._scales is not None:
            kernels.append(on_orbit)
            stats = STATS | self._scales.stats
        self.stats_dtypes, self.stats_dtypes_shapes = infer_warn_stats_info([], stats, "HMC")
        calls = [(kernel, TYPES[kernel]) for kernel in kernels]
        return FlatDensity(model, moved, compile_kwargs, block, calls)

    @override
    def _start(self, *, tune: int) -> None:
        super()._start(tune=tune)
        if self._scales is not None:
            self._scales.refresh()
        self.adaptation = DualAveraging(self._target, math.log(FIRST_SIZE))
        self.curvature: Recent | None = None
        self.references: Recent | None = None
        self.of_scales = TunedScales.of(tune)
        self.repeats = Repeats.of(tune if self._shortens else 0)
        self.n_diverging = 0

    @override
    def _of_data(self) -> list[OfData]:
        blocks = [] if self._block is None else [self._block.compiled]
        return [self._density.of_data, *self._metric.of_data, *blocks]

    @property
    def size(self) -> float:
        """Size of the leapfrog steps of the next trajectory."""
        if self._given_size is not None:
            return self._given_size
        adapted = math.exp(self.adaptation.current if self.tune else self.adaptation.average)
        return min(adapted, self._largest_size)

    @property
    def moved(self) -> list[str]:
        """Names of the value variables that trajectories move."""
        return self._density.values

    def log_density(self, point: PointType) -> float:
        """Log density along trajectories, up to a constant."""
        return float(self._density(self._density.read(point))[0])

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Simulate the trajectories of one draw from ``point``."""
        limits: Sequence[int] = [self.longest or self.max_depth]
        if self._shortens and not self.tune:
            self.repeats = self.repeats.judged()
            n = self.repeats.n
            limits = AFTER_TUNING if n == 1 else AFTER_TUNING[:1] * n
        new_point, found = point.copy(), []
        for limit in limits:
            found.append(self._trajectory(new_point, limit))
        if self._block is not None:
            self.rng, drawn, *_ = self._block(self.rng, new_point)
            new_point.update(drawn)
        new_point.update(self._imputed(self.rng, new_point))
        new_point.update(self._relabelled(self.rng, new_point))
        if self.tune:
            self.repeats = self.repeats.update(new_point, self.moved)
        acceptance = np.mean([stats["acceptance_probability"] for stats in found])
        return new_point, [
            {
                **found[-1],
                "acceptance_probability": acceptance,
                "n_leapfrog": sum(stats["n_leapfrog"] for stats in found),
                "diverging": any(stats["diverging"] for stats in found),
                "n_diverging": self.n_diverging,
            }
        ]

    def _trajectory(self, point: PointType, limit: int) -> dict[str, Any]:
        """Move a point along a trajectory, then along one of scales; the statistics of both."""
        located = self._density.read(point)
        start = self._density(located)
        if not np.isfinite(start[0]):
            names = ", ".join(self._density.values)
            raise ValueError(
                f"The log density of {names} is {start[0]} where a trajectory is to begin; start "
                "the chain elsewhere, with initvals."
            )
        precision = self._precision(point, start)
        size = self.size
        log_density, acceptance, n_leapfrog, diverging = self._move(
            self.rng, located, start, precision, size, limit
        )
        if self.tune:
            # Higher acceptance must not lengthen steps that already have their largest size.
            enough = self._target if size == self._largest_size else 1.0
            self.adaptation = self.adaptation.update(min(acceptance, enough))
        else:
            self.n_diverging += diverging
        of_scales: dict[str, Any] = {}
        if self._scales is not None:
            self.of_scales, log_density, of_scales = self._scales.move(
                self.of_scales, self._density, located, point, self.rng, tune=self.tune
            )
        point.update(self._density.point(located.place, point))
        return {
            "acceptance_probability": acceptance,
            "proposal_size": np.float64(size),
            "log_density": np.float64(log_density),
            "n_leapfrog": n_leapfrog,
            "diverging": bool(diverging),
            **of_scales,
        }

    def _precision(self, point: PointType, start: np.ndarray) -> np.ndarray:
        """Diagonal of the metric at a point."""
        references = self._typical(point)
        precision, *of_learnt = self._metric(point, references)
        if not of_learnt:
            return precision
        slopes, is_learnt = of_learnt
        curvature = self.curvature or Recent([np.ones_like(precision)])
        if self.tune:
            curvature = curvature.update([(start[1 : 1 + len(slopes)] - slopes) ** 2])
        self.curvature = curvature
        return precision + is_learnt * curvature.means[0]

    def _typical(self, point: PointType) -> list[np.ndarray]:
        """Typical values of what the metric is evaluated at, learnt in tuning."""
        first = self._metric.references(self._initial_point)
        known = self.references
        if known is None or [x.shape for x in known.means] != [x.shape for x in first]:
            known = Recent(first)
        if self.tune:
            known = known.update(self._metric.references(point))
        self.references = known
        return known.means

    def _move(
        self,
        rng: np.random.Generator,
        located: Located,
        start: np.ndarray,
        precision: np.ndarray,
        size: float,
        limit: int,
    ) -> tuple[float, float, int, bool]:
        """Overwrite a position by a draw from its trajectory; see :mod:`.trajectories`."""
        kernel = random_length if self.longest else no_u_turn
        move, density = self._density.given_to(kernel, located)
        found = move(density, located.place, start, precision, size, limit, rng)
        if self.longest is None:
            log_density, acceptance, n_leapfrog, _, diverging = found
            return log_density, acceptance, n_leapfrog, diverging
        return found

    @override
    def _progress(self, stats: dict[str, Any]) -> dict[str, Any]:
        return super()._progress(stats) | {"failing": stats["n_diverging"] > 0}

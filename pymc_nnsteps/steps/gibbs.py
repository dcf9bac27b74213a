"""The Gibbs step: exact draws from full conditionals read off the model's graph."""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import compress
from typing import Any, Literal, override

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.step_methods.compound import (
    StepMethodState,
    infer_warn_stats_info,
)
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_integer, require_bool
from pymc_nnsteps.compile.compiling import c_by_default, without_bookkeeping
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.graphs.shapes import require_numbers, shapes_of
from pymc_nnsteps.laws.conditional import Conditional
from pymc_nnsteps.laws.recognition import recognise
from pymc_nnsteps.moves.plan import Choice, Options, Scan, plan, refreshed_after
from pymc_nnsteps.steps.assignment import announce
from pymc_nnsteps.steps.compiled import OfData
from pymc_nnsteps.steps.explanation import explain
from pymc_nnsteps.steps.imputed_rows import ImputedRows
from pymc_nnsteps.steps.networks import Relabelling, first_held, held_scales
from pymc_nnsteps.steps.step import Step, Vars, chosen
from pymc_nnsteps.steps.sweep import Sweep
from pymc_nnsteps.steps.tuning import DualAveraging, Repeats

WARM_UP = 200
"""Number of first sweeps without these moves; a quarter of the tuning sweeps if that is less."""

MEMORY = 200
"""Number of sweeps after which averages over the tuning begin to forget."""

SWEEPS = "n_sweeps"
MOVES = ("interweaving_acceptance", "interweaving_rho")


@dataclass_state
class GibbsState(StepMethodState):
    """Sampling state of :class:`Gibbs`."""

    n_sweeps: int
    tune: bool
    warm_up: int
    n_held: int
    adaptations: tuple[DualAveraging, ...]
    averages: np.ndarray
    repeats: Repeats


class Gibbs(Step):
    """Draw variables from their full conditionals, one compiled function per sweep.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Random variables (or their names) of the model. None: all that have a full conditional
        with a known form, see :func:`pymc_nnsteps.explain`.
    sweeps : int or "auto"
        Sweeps per stored draw. "auto" is 1 in tuning, and then up to 10: as many as leave draws of
        variables of up to 100 elements nearly independent, judged by the second half of tuning, if
        this has at least 500 draws.
    scan : {"sequential", "parallel"}
        Order of a sweep. "sequential" follows the model from input to output (Piccioli et al.,
        Algorithm 1); "parallel" draws all post-activations, then all weights, then all
        pre-activations (Algorithm 2). Both leave the posterior invariant.
    collapse : bool or "auto"
        Whether to draw the learnt scale of a layer's noise, or else of its response (of fewer than
        four outputs for each unit), with the layer's activations integrated out, in place of its
        draw given the activations. Group effects alongside the layer are drawn both in this way and
        given the activations. "auto" is True. Both choices leave the posterior invariant.
    interweave : bool or "auto"
        Whether to move the weights of a layer jointly with its latent pre-activations as well, row
        by row, with the layer's activations integrated out. Networks with little noise mix only
        through this move. For a layer behind binary gates it replaces the other draws of the
        weights; the gates of the row are summed out and then redrawn. The cost is quadratic in a
        row's number of weights. "auto" moves rows of up to 128 weights, those behind gates also in
        layers of up to 1500 weights, and kernels of convolutions on which a single output depends.
        All choices leave the posterior invariant.
    passes : int
        Number of interweaving moves of each row per sweep. Behind gates up to half of them are
        skipped where trajectories are accepted.
    rays : bool
        Whether to follow the draws of scales by joint moves that multiply variables by one random
        number: a scale with the effects or output weights below it; levels of scales against each
        other; global scales against local ones; a factor against the effects that it multiplies
        (``sd * raw[group]``); the factors of a matrix (``U @ V.T``) against each other, with their
        scales; and units of a layer against their weights to a single output, with the scale of
        this output. Means of effects are then drawn jointly with all other linear terms, and the
        effects shift with them. So are the levels of correlated effects and of series, with the
        biases beside them. The level of effects with several children is exchanged with the bias of
        each child, and the level of a factor's columns with row effects beside the product. This
        leaves the posterior invariant.
    trajectories : bool
        Whether to move all weights of an interwoven layer at once, along a Hamiltonian trajectory
        that keeps the noise of the pre-activations. The weights from the layer to a single output,
        the bias of this output and its scale move too. These moves redistribute the network's
        function among its units and biases, and between these and effects beside it. Units of more
        than 16 weights are moved in every second sweep, of more than 32 in every third, and so on.
        Behind gates (bow ties) the gates are summed out along the trajectory, and the scales of
        weights and noise move too. This leaves the posterior invariant.
    relabel : bool
        Whether to permute the units of each hidden layer at random at the end of a sweep, and to
        flip signs where the density does not change, so that all units have the same distribution.
        Use False for traces of single units and for overlaps with a teacher. This leaves the
        posterior invariant.
    model, rng, blocked, initial_point, compile_kwargs
        As for :class:`~pymc_nnsteps.PCN`; all variables are one block.

    Attributes
    ----------
    plan : Explanation
        The draws of a sweep as a table, as :func:`pymc_nnsteps.explain` shows it for these options.

    Raises
    ------
    NotConjugate
        If a variable's full conditional is not of a known form; the message names the variable,
        the child in the way, and the reason.
    ValueError
        If ``sweeps``, ``scan``, ``collapse``, ``interweave``, ``passes``, ``rays`` or
        ``trajectories`` is invalid, if an option set to ``True`` is not possible, or if a full
        conditional is improper at the initial point, such as that of a variance with a Gamma prior
        if all observations are zero. (The scale of weights that start at zero keeps its value until
        these have been drawn.)

    Notes
    -----
    Interwoven rows are proposed by a Crank-Nicolson step. Its reference is the Gaussian posterior
    of the row on the current linear pieces of the activation or, behind gates, a Gaussian close to
    the posterior at the current gate probabilities. Its autocorrelation ``rho``, one for each unit,
    is adapted during tuning to a mean acceptance probability of 0.5 (zero where even then more are
    accepted), and then kept. A chain without tuning uses the values that the step was tuned to
    before: ``pm.sample(step=step, tune=0, initvals=...)`` after a ``pm.sample`` with the same step
    and ``cores=1`` (steps in other processes are copies, which do not come back). The first 200
    sweeps, if at least 800 are for tuning, or else the first quarter of the tuning sweeps, omit
    moves of latent pre-activations: from zero weights these would settle for a poor fit before
    plain sweeps have found a good one. The step size of trajectories is adapted in the same way, to
    a mean acceptance probability of 0.75, and so is their metric, an average of the Fisher
    information during tuning. Without tuning there are no trajectories. The statistics
    ``interweaving_acceptance`` and ``interweaving_rho`` are means over the units.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 10)
    ...     y = pm.Normal("y", slope * np.arange(4.0), 0.1, observed=[0.0, 1.1, 1.9, 3.0])
    ...     step = nns.Gibbs([slope])
    >>> point, stats = step.step(model.initial_point())
    >>> bool(0.8 < point["slope"] < 1.2)
    True
    """

    name = "gibbs"
    _state_class = GibbsState
    _tuned = ("adaptations", "averages", "repeats")
    adaptations: tuple[DualAveraging, ...]
    averages: np.ndarray

    @without_bookkeeping()
    def __init__(
        self,
        vars: Vars = None,
        *,
        sweeps: int | Literal["auto"] = "auto",
        scan: Scan = "sequential",
        collapse: Choice = "auto",
        interweave: Choice = "auto",
        passes: int = 5,
        rays: bool = True,
        trajectories: bool = True,
        relabel: bool = True,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._given_sweeps = None if sweeps == "auto" else positive_integer("sweeps", sweeps)
        self._options = options = Options(scan, collapse, interweave, passes, rays, trajectories)
        require_bool("relabel", relabel)
        model = modelcontext(model)
        if initial_point is None:
            initial_point = model.initial_point()
        rvs: Collection[TensorVariable] = (
            _recognised(model) if vars is None else chosen(model, vars)
        )
        shapes = shapes_of(model, initial_point)
        planned = plan(model, rvs, options, shapes)
        self.plan = planned.explanation
        drawn = dict.fromkeys(rv for conditional in planned.sweep for rv in conditional.draws)
        self.vars = [model.rvs_to_values[rv] for rv in drawn]
        self._names = [str(value.name) for value in self.vars]
        self._held = {model.rvs_to_values[rv].name for rv in held_scales(model, drawn)}
        self._relabelled = Relabelling(model, drawn if relabel else ())
        self.rng = get_random_generator(rng)
        in_c = c_by_default(compile_kwargs)
        self._sweep = Sweep(model, planned.sweep, shapes, in_c)
        self._imputed = ImputedRows(model, drawn, in_c)
        self._of_units = [not move.supplements for move in self._sweep.moves]
        stats: dict[str, Any] = {SWEEPS: (np.int64, [])}
        self._shown = {SWEEPS: ("Sweeps", "")}
        if self._sweep.n_tuned:
            stats |= {name: (np.float64, []) for name in MOVES}
            self._shown = {MOVES[0]: ("Accept", ":0.2f"), **self._shown}
        self.stats_dtypes, self.stats_dtypes_shapes = infer_warn_stats_info([], stats, "Gibbs")
        self._start(tune=1)
        rho = self._rho(self._moves())
        _, values, *_ = self._sweep(np.random.default_rng(0), initial_point, rho)
        strange = [name for name, value in values.items() if not np.isfinite(value).all()]
        if strange:
            require_numbers(model)
            raise ValueError(
                f"{', '.join(strange)} cannot be drawn at the initial point, where its full "
                "conditional is improper, such as that of a scale if all values that it scales "
                "equal their mean; give it a prior that keeps it from zero, or start elsewhere, "
                "with initvals."
            )
        announce()

    @override
    def _of_data(self) -> list[OfData]:
        return [self._sweep.compiled]

    @override
    def _start(self, *, tune: int) -> None:
        self.n_sweeps = 0
        super()._start(tune=tune)
        self.repeats = Repeats.of(tune)
        self.warm_up = min(WARM_UP, tune * self.sweeps // 4)
        self.n_held = first_held(tune * self.sweeps)
        self.adaptations = tuple(
            DualAveraging(move.target_accept, 0.0) for move in self._sweep.moves
        )
        self.averages = np.zeros(self._sweep.n_averages)

    @property
    def sweeps(self) -> int:
        """Number of sweeps of the next draw."""
        return self._given_sweeps or (1 if self.tune else self.repeats.n)

    def _rho(self, moved: Sequence[bool]) -> list[float]:
        """Autocorrelation of the proposals for each unit; one: it is not moved."""
        coordinates = [a.current if self.tune else a.average for a in self.adaptations]
        return [
            1 / (1 + math.exp(coordinate)) if moves else 1.0
            for coordinate, moves in zip(coordinates, moved, strict=True)
        ]

    def _moves(self) -> list[bool]:
        """Whether each unit is moved in the present sweep."""
        warm = self.n_sweeps >= self.warm_up
        return [
            self.n_sweeps % move.every == 0 and (warm or not move.waits)
            for move in self._sweep.moves
        ]

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Perform ``sweeps`` sweeps from ``point``."""
        new_point = point.copy()
        accepted = proposed = 0.0
        if not self.tune:
            self.repeats = self.repeats.judged()
        n_sweeps = self.sweeps
        for _ in range(n_sweeps):
            moved = self._moves()
            rho = self._rho(moved)
            self.rng, values, acceptance, numbers = self._sweep(
                self.rng, new_point, rho, self.averages
            )
            if self.n_sweeps < self.n_held:
                values = {name: x for name, x in values.items() if name not in self._held}
            new_point.update(values)
            accepted += sum(compress(acceptance, self._of_units))
            proposed += sum(compress(rho, self._of_units))
            if self.tune:
                units = zip(self.adaptations, acceptance, moved, strict=True)
                self.adaptations = tuple(
                    adaptation.update(mean) if moves else adaptation
                    for adaptation, mean, moves in units
                )
                self._average(numbers, moved)
            new_point.update(self._imputed(self.rng, new_point))
            new_point.update(self._relabelled(self.rng, new_point))
            self.n_sweeps += 1
        stats: dict[str, Any] = {SWEEPS: self.n_sweeps}
        if self.tune:
            self.repeats = self.repeats.update(new_point, self._names)
        if n := n_sweeps * sum(self._of_units):
            stats.update(zip(MOVES, (accepted / n, proposed / n), strict=True))
        return new_point, [stats]

    def _average(self, numbers: np.ndarray, moved: Sequence[bool]) -> None:
        """Add numbers to their averages, which forget what is long past."""
        averages = self.averages.copy()
        for parameter, part in self._sweep.averaged:
            if moved[parameter]:
                weight = 1 / min(self.adaptations[parameter].count, MEMORY)
                averages[part] += weight * (numbers[part] - averages[part])
        self.averages = averages

    def partial_sweeps(self, model: pm.Model) -> dict[str, Callable[[PointType], PointType]]:
        """Sweeps up to draws that complete joint moves: later ones may hide their errors."""
        names = {model.values_to_rvs[value].name for value in self.vars}
        model = plain_model(model)
        shapes = shapes_of(model, model.initial_point())
        rvs = [rv for rv in model.free_RVs if rv.name in names]
        draws = plan(model, rvs, self._options, shapes).sweep
        options = c_by_default(None)
        return {
            ", ".join(map(describe, draws[n - 1].draws)): partial(
                self._after, Sweep(model, draws[:n], shapes, options)
            )
            for n in refreshed_after(draws)
        }

    def _after(self, sweep: Sweep, point: PointType) -> PointType:
        """The point after a part of a sweep."""
        rho, averages = self._rho([True] * len(self.adaptations)), self.averages
        self.rng, values, *_ = sweep(
            self.rng, point, rho[: sweep.n_tuned], averages[: sweep.n_averages]
        )
        return {**point, **values}


def _recognised(model: pm.Model) -> dict[TensorVariable, Conditional]:
    """Full conditionals of a known form, of the free variables that have one."""
    recognised, _ = recognise(model)
    if not recognised:
        raise NotConjugate(
            f"No variable of the model has a full conditional of a known form:\n{explain(model)}"
        )
    return recognised

r"""Missing inputs moved row by row, with the noise of latent layers held.

Given a network's weights, the rows of its inputs are independent, and a missing entry may have
several modes: a response that grows with :math:`|x|` does not tell the sign of x. Let m and S be
the moments of a row's missing entries given the others of the row
(:mod:`~pymc_nnsteps.prediction.imputation`). The proposal

.. math:: x' = m + \sqrt{1 - \beta^2}\,(x - m) + \beta \xi, \qquad \xi \sim N(0, S),

is reversible with respect to their law (preconditioned Crank-Nicolson). Normal latent layers L move
along, such that their noise :math:`L - E(L \mid x)` stays: neither its density nor the volume
changes. So a row is accepted by the ratio of the densities of what is left, such as targets and
gates. Steps :math:`\beta` go from 1 (a draw from the law) down to small ones, without tuning.

Targets of little noise confine the missing entries of a row to a thin curved set, along which such
steps are small. Where a density has gradients, rows then follow trajectories, each accepted by
itself: a row has few missing entries, so that steps may be long where those of a trajectory in all
entries and weights may not.

References
----------
Cotter, Roberts, Stuart and White, *MCMC Methods for Functions*, Statistical Science 28 (2013),
Section 4.2. Neal, *MCMC Using Hamiltonian Dynamics*, Handbook of Markov Chain Monte Carlo (2011).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import depends_on, once_per_model, parameters
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.imputation import Imputation, ImputedCategory, imputations_of
from pymc_nnsteps.prediction.laws import log_density
from pymc_nnsteps.prediction.row_data import Known, arrays_in, with_rows
from pymc_nnsteps.steps.compiled import PointFunction

STEPS = (1.0, 0.5, 0.25, 0.12, 0.06)
"""Values of beta, one after another."""

SIZES, LEAPS = (0.3, 0.1, 0.03), 8
"""Sizes of leapfrog steps, in standard deviations of columns given those before; their number."""


@dataclass(frozen=True)
class RowMove:
    """What moves with the missing entries of a table."""

    imputation: Imputation
    layers: tuple[TensorVariable, ...]  # Normal latent layers whose noise is held
    # Other variables, by whose densities a row is accepted: what stands for each, and its log
    # density there.
    judges: dict[TensorVariable, tuple[TensorVariable, TensorVariable]]

    @property
    def completed(self) -> TensorVariable:
        """The inputs with all missing entries."""
        return self.imputation.completed

    @property
    def moved(self) -> list[TensorVariable]:
        """Variables that get new values."""
        return [*(column.entries for column in self.imputation.columns), *self.layers]


def imputed_rows(model: pm.Model, moved: Collection[TensorVariable]) -> list[RowMove]:
    """Moves of the tables with missing numbers whose variables are all among some."""
    found = [move for move in _moves_of(model) if move.imputation.columns]
    return [move for move in found if set(move.moved) <= set(moved)]


def imputed_levels(model: pm.Model) -> list[tuple[RowMove, ImputedCategory]]:
    """Categories with missing levels that are drawn row by row, and what moves with them."""
    return [(move, each) for move in _moves_of(model) for each in move.imputation.categories]


def moved_by_gradients(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """A step's variables without missing entries that it moves by row, if there are others."""
    entries = {
        column.entries for move in imputed_rows(model, rvs) for column in move.imputation.columns
    }
    return [rv for rv in rvs if rv not in entries] or list(rvs)


@once_per_model
def _moves_of(model: pm.Model) -> list[RowMove]:
    """Moves of all tables."""
    found = []
    for imputation in imputations_of(model):
        with suppress(NotConjugate, MixesRows):
            found.append(_read(model, imputation))
    return found


def _read(model: pm.Model, imputation: Imputation) -> RowMove:
    """What depends on the rows of completed inputs, each row on its own alone."""
    completed: Any = imputation.completed
    rows, candidates = {completed: completed.type()}, set(arrays_in(model.basic_RVs))
    move, _ = with_rows(lambda known: _follow(model, imputation, known), rows, candidates)
    return move


def _follow(model: pm.Model, imputation: Imputation, rows: Known) -> RowMove:
    """The layers and other variables behind rows that are known."""
    changed: set[Variable] = {imputation.completed}
    entries = imputation.entries
    laws, barriers = {*entries, *imputation.observed}, {*changed, *model.basic_RVs}
    known: Known = {rv: (rv, None) for rv in model.free_RVs} | rows
    for other in imputations_of(model):
        if len(other.missing) == len(imputation.missing) and not depends_on(
            other.completed, {*changed, *entries}
        ):
            known |= {other.completed: (other.completed, Rows(0))}
    layers, judges = [], {}
    for rv in model.basic_RVs:
        if rv not in laws and any(depends_on(p, entries, barriers) for p in parameters(rv)):
            raise NotConjugate(
                f"{describe(rv)} depends on missing entries other than through the inputs"
            )
        stated = [p for p in parameters(rv) if depends_on(p, changed, model.basic_RVs)]
        if not stated:
            continue
        is_layer = rv in model.free_RVs and has_law(model, rv, NormalRV)
        if is_layer and stated == [parameters(rv)[0]]:
            [followed], n_axes = stated, rv.ndim
            layers.append(rv)
            changed.add(rv)
        else:
            value = rv.type()
            known |= {value: (value, Rows(0))}
            followed = log_density(model, rv, value)
            n_axes = followed.ndim
            judges[rv] = value, followed
        new, place = follow_rows(followed, known)
        if place != Rows(0) or new.ndim != n_axes:
            raise MixesRows(f"{describe(rv)} has no row for each of the inputs")
        known |= {rv: (rv, Rows(0))}
    for potential in model.potentials:
        if depends_on(potential, {*changed, *entries}, model.basic_RVs):
            raise NotConjugate(f"{describe(potential)} is a potential that depends on the inputs")
    return RowMove(imputation, tuple(layers), judges)


def require_own_rows(imputation: Imputation) -> None:
    """Check that data containers have the rows whose entries are missing."""
    if not imputation.holds_own_rows:
        raise ValueError(
            "pm.set_data has changed columns with missing entries, which belong to the model's own "
            f"rows ({describe(imputation.entries[0])}): build the model again."
        )


class ImputedRows:
    """New values of missing inputs and of layers behind them, of tables that a step moves whole."""

    def __init__(
        self,
        model: pm.Model,
        moved: Collection[TensorVariable],
        compile_kwargs: Mapping[str, Any],
        *,
        follow: bool = False,
    ) -> None:
        self._moves = []

        def compiled(given: list[TensorVariable], outputs: list[TensorVariable]) -> PointFunction:
            values = model.replace_rvs_by_values(outputs)
            return PointFunction(model, given, values, compile_kwargs)

        for move in imputed_rows(model, moved):
            require_own_rows(move.imputation)
            shape = len(STEPS), len(move.imputation.missing), len(move.imputation.entries)
            noise = pt.tensor(dtype="float64", shape=shape)
            x = move.completed
            place, centre, change = x.type(), x.type(), x.type()
            step, level = pt.scalar(dtype="float64"), pt.vector(dtype="float64")
            proposed = (centre + pt.sqrt(1 - step**2) * (x - centre) + step * change).astype(
                x.dtype
            )
            functions = [
                compiled([noise], _drawn(move, noise)),
                compiled([centre, change, step, level], _new_values(model, move, proposed, level)),
            ]
            if follow:
                functions += [
                    compiled([], [x, _scales(move)]),
                    compiled([place], _density_and_slopes(model, move, place)),
                    compiled([place, level], _new_values(model, move, place, level)),
                ]
            names = [str(model.rvs_to_values[rv].name) for rv in move.moved]
            self._moves.append((names, shape, move.imputation.missing_numbers, functions))

    def __call__(
        self, rng: np.random.Generator, point: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """New values of what is moved."""
        found: dict[str, NDArray[Any]] = {}
        for names, shape, missing, functions in self._moves:
            propose, judge, *following = functions
            state = {**point, **found}
            noise, levels = rng.standard_normal(shape), np.log(rng.random(shape[:2]))
            centre, *changes = propose.at(state, noise)
            for step, change, level in zip(STEPS, changes, levels, strict=True):
                new = judge.at(state, centre, change, np.array(step), level)
                state.update(zip(names, new, strict=True))
            for size in SIZES if following else ():
                new = _followed(rng, missing, size, state, *following)
                state.update(zip(names, new, strict=True))
            found |= {name: state[name] for name in names}
        return found


def _followed(
    rng: np.random.Generator,
    missing: NDArray[np.bool_],
    size: float,
    point: Mapping[str, NDArray[Any]],
    where: PointFunction,
    density: PointFunction,
    settle: PointFunction,
) -> list[NDArray[Any]]:
    """New values after leapfrog steps of all rows, each of which is accepted by itself."""
    x, scales = where.at(point)
    velocity = rng.standard_normal(missing.shape) * missing
    before, slope = density.at(point, x)
    energy = (velocity**2).sum(axis=1) / 2 - before
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(LEAPS):
            velocity = velocity + size / 2 * scales * slope
            x = (x + size * scales * velocity).astype(x.dtype)
            after, slope = density.at(point, x)
            velocity = velocity + size / 2 * scales * slope
        change = energy - (velocity**2).sum(axis=1) / 2 + after
    level = np.where(np.log(rng.random(len(x))) < change, -np.inf, np.inf)
    return settle.at(point, x, level)


def _drawn(move: RowMove, noise: TensorVariable) -> list[TensorVariable]:
    """Inputs with means of the missing entries, and differences from these of a draw a step."""
    imputation = move.imputation
    given = pt.where(imputation.missing_numbers, np.nan, imputation.completed)
    [law] = {*imputation.made.values()}
    centre, *draws = (
        substitute([law], {imputation.inputs: given, imputation.noise: e})[0]
        for e in (pt.zeros_like(noise[0]), *(noise[k] for k in range(len(STEPS))))
    )
    return [centre, *((draw - centre).astype(centre.dtype) for draw in draws)]


def _scales(move: RowMove) -> TensorVariable:
    """Standard deviations of columns given those before, 1 without gaps: shape (n_features,)."""
    scales: Any = pt.ones(move.imputation.missing.shape[1])
    for column in move.imputation.columns:
        scales = pt.set_subtensor(scales[column.number], column.sigma)
    return scales


def _density_and_slopes(
    model: pm.Model, move: RowMove, place: TensorVariable
) -> list[TensorVariable]:
    """Log density of each row at completed inputs, with its derivatives in missing entries."""
    density = judged(model, move, moved_along(move, place))
    for column in move.imputation.columns:
        [mean] = substitute([column.mean], {column.before: place})
        density -= pt.sqr((place[:, column.number] - mean) / column.sigma) / 2
    [density] = model.replace_rvs_by_values([density])
    slopes: Any = pt.grad(density.sum(), place)
    return [density, pt.where(move.imputation.missing_numbers, slopes, 0.0)]


def _new_values(
    model: pm.Model, move: RowMove, proposed: TensorVariable, level: TensorVariable
) -> list[TensorVariable]:
    """Values of what is moved after each row has been proposed and judged."""
    new = moved_along(move, proposed)
    accepted = pt.lt(level, judged(model, move, new) - judged(model, move, {}))
    found = []
    for column in move.imputation.columns:
        moved = proposed[column.rows, column.number]
        found.append(pt.where(accepted[column.rows], moved, column.entries))
    for rv in move.layers:
        found.append(pt.where(pt.shape_padright(accepted, rv.ndim - 1), new[rv], rv))
    return found


def moved_along(move: RowMove, proposed: TensorVariable) -> dict[Any, Any]:
    """Completed inputs and the layers behind them, with the noise of these held."""
    new: dict[Any, Any] = {move.completed: proposed}
    for rv in move.layers:
        mean = parameters(rv)[0]
        [shifted] = substitute([mean], new | {judge: judge for judge in move.judges})
        new[rv] = (rv + shifted - mean).astype(rv.dtype)
    return new


def judged(model: pm.Model, move: RowMove, new: Mapping[Any, Any]) -> Any:
    """Log density of what judges each row, with new values of what moves."""
    total: Any = 0.0
    for rv, (placeholder, before) in move.judges.items():
        [density] = substitute([before], {**new, **{judge: judge for judge in move.judges}})
        value = model.rvs_to_values[rv] if rv in model.observed_RVs else rv
        [density] = substitute([density], {placeholder: value})
        total += density.sum(axis=list(range(1, density.ndim)))
    return total

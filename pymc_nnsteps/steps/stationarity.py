"""Whether what ``pm.sample`` runs leaves a model's posterior as it is: a chain, and its identities.

The chain is tuned as ``pm.sample`` would tune it. A first part of it, after tuning, says with what
scales the identities of :mod:`.identities` are stated and how far apart draws are looked at. Then
they are evaluated on draws. What they find has to be found again in another stretch, twice as long:
a chain that was still on its way has arrived by then, and an error is seen better.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import flatten_steps

from pymc_nnsteps.compile.compiling import without_blas_notice
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.steps.assignment import Step, assign
from pymc_nnsteps.steps.density_check import Array, Target, require_density
from pymc_nnsteps.steps.gibbs import Gibbs
from pymc_nnsteps.steps.hamiltonian import HMC
from pymc_nnsteps.steps.identities import (
    MOVES,
    SMALLEST_JUMP,
    STEIN,
    Axes,
    Scales,
    Series,
    jumps,
    limit,
    move_terms,
    moved,
    stein_terms,
    thinning,
)

DOUBTFUL, WRONG = 0.05, 1e-4
"""Probabilities that a correct chain gets another stretch, and that it is rejected."""

STRETCHES = (1, 2, 4)
"""Lengths of the stretches, in units of the first."""

PILOT, DRAWS = 200, 1000
"""Sweeps of the pilot; default number of draws that identities are evaluated on."""

ENTRIES = 4
"""Number of entries of each variable that are moved in each draw."""

SHORT_MOVE = 0.2
"""Length of the lines searched for jumps, in units of a variable's reach."""

LOOKS = 50
"""Number of pilot draws at which every variable is searched for jumps."""

Row = tuple[str, str, float]


@dataclass(frozen=True)
class Stationarity:
    """What a chain's identities say."""

    # Variable, identity, and the z-score of largest size among its entries and their mean.
    rows: tuple[Row, ...]
    n_tests: int  # number of z-scores
    # draws, thinning: number of draws, and of sweeps per draw.
    draws: int
    thinning: int

    def beyond(self, level: float) -> list[Row]:
        """Rows beyond a limit, the worst first."""
        rows = [row for row in self.rows if not abs(row[2]) < limit(self.n_tests, level)]
        return sorted(rows, key=lambda row: -abs(row[2]))

    @property
    def summary(self) -> str:
        """One sentence on what was done."""
        every = f", one of every {self.thinning} sweeps" if self.thinning > 1 else ""
        return (
            f"{self.n_tests} z-scores from {self.draws} draws{every}; right ones stay below "
            f"{limit(self.n_tests, WRONG):.1f}"
        )


def check_chain(
    model: pm.Model,
    *,
    sweeps: int | None,
    step: Step | Sequence[Step] | None,
    initvals: Any,
    rng: np.random.Generator,
) -> Stationarity:
    """Run a chain as ``pm.sample`` would, and evaluate its identities on a thousand draws."""
    with without_blas_notice():
        chain = _TunedChain.tuned(model, step, initvals, rng)
        start = chain.point
        pilot = _Pilot.of(chain, rng)
        for each in flatten_steps(chain.step):
            if isinstance(each, HMC):
                require_density(chain.target, each, start, chain.point)
        partial = chain.partial_sweeps()
        sweeps = sweeps or DRAWS * pilot.thinning
        for factor in STRETCHES:
            found = _evaluate(chain, partial, pilot, factor * sweeps, rng)
            if not found.beyond(DOUBTFUL):
                return found
            if factor > 1 and found.beyond(WRONG):
                raise AssertionError(_message(model, chain.step, found))
    return found


def _message(model: pm.Model, step: Step, found: Stationarity) -> str:
    wrong = found.beyond(WRONG)
    rows = [f"{variable}: {identity} fails, z = {z:.1f}" for variable, identity, z in wrong]
    names = wrong[0][0]
    drawn = "; ".join(f"{name}, {_drawn_by(model, step, name)}" for name in names.split(", "))
    return f"{'; '.join(rows)} ({found.summary}). Look first at how these are drawn: {drawn}"


def _drawn_by(model: pm.Model, step: Step, name: str) -> str:
    """The draws of a variable: rows of the plan, or the class of another step."""
    told = []
    for each in flatten_steps(step):
        value = model.rvs_to_values[model[name]]
        is_moved_along = isinstance(each, HMC) and value.name in each.moved
        if value not in each.vars and not is_moved_along:
            continue
        told.append(type(each).__name__)
        if isinstance(each, Gibbs):
            told += [f"{law}, {how}" for rv, law, how in each.plan.rows if rv == name]
    return ": ".join(told)


@dataclass
class _TunedChain:
    """A chain that can be continued."""

    step: Step
    point: PointType
    target: Target

    @classmethod
    def tuned(
        cls,
        model: pm.Model,
        step: Step | Sequence[Step] | None,
        initvals: Any,
        rng: np.random.Generator,
    ) -> "_TunedChain":
        """After as many sweeps as ``pm.sample`` tunes for."""
        seed = int(rng.integers(2**30))
        steps, tune, [point] = assign(model, step, 1, [seed], None, initvals, "auto", None, {})
        steps.setup_chain(rng.spawn(1)[0], tune, DRAWS)
        steps.tune = True
        if hasattr(steps, "reset_tuning"):
            steps.reset_tuning()
        chain = cls(steps, point, Target(model))
        chain.advance(tune)
        steps.stop_tuning()
        return chain

    def advance(self, sweeps: int) -> None:
        """Go on by some sweeps."""
        for _ in range(sweeps):
            self.point, _ = self.step.step(self.point)
            if not all(np.isfinite(value).all() for value in self.point.values()):
                raise self.outside(self.point)

    def partial_sweeps(self) -> dict[str, Callable[[PointType], PointType]]:
        """Ways from the present point to others of the same law, by what they end with."""
        return {
            name: run
            for step in flatten_steps(self.step)
            if isinstance(step, Gibbs)
            for name, run in step.partial_sweeps(self.target.model).items()
        }

    def slopes(self, point: PointType) -> tuple[float, dict[str, Array]]:
        """The log density at a point of the chain, which has to be there, and its slopes."""
        level, slopes = self.target.slopes(point)
        if not np.isfinite(level):
            raise self.outside(point)
        return level, slopes

    def outside(self, point: PointType) -> AssertionError:
        """Error for a point where the model has no density."""
        model = self.target.model
        names = self.target.without_density(point)
        drawn = [f"{n} ({_drawn_by(model, self.step, n)})" for n in names]
        return AssertionError(f"The model has no density at a draw, because of {', '.join(drawn)}.")


@dataclass(frozen=True)
class _Pilot:
    """Scales and thinning found in the pilot of a chain, by names of values."""

    scales: dict[str, Scales]  # scales of each variable that is not empty
    # Scales of the variables along which the log density is differentiable without a jump found.
    smooth: dict[str, Scales]
    axes: Axes | None  # principal axes of the smooth variables together
    thinning: int

    @classmethod
    def of(cls, chain: _TunedChain, rng: np.random.Generator) -> "_Pilot":
        """Run it."""
        points: list[PointType] = []
        slopes: list[dict[str, Array]] = []
        for _ in range(PILOT):
            chain.advance(1)
            points.append(chain.point)
            slopes.append(chain.slopes(chain.point)[1])
        values = {n: _stacked(points, n) for n, value in chain.point.items() if value.size}
        along = {n: _stacked(slopes, n) for n in values if n in slopes[0]}
        scales = {n: Scales.of(value, along.get(n)) for n, value in values.items()}
        smooth = {n: scales[n] for n in along if np.isfinite(along[n]).all()}
        for _ in range(LOOKS):
            chain.advance(1)
            level, at_point = chain.slopes(chain.point)
            for name in list(smooth):
                if _jumps(chain.target, chain.point, name, level, at_point, smooth[name], rng):
                    del smooth[name]
        terms = [
            term.reshape(PILOT, -1).mean(axis=1, keepdims=True)
            for name in smooth
            for term in stein_terms(values[name], along[name], scales[name])
        ]
        axes = None
        if sum(scales[name].centre.size for name in smooth) > 1:
            axes = Axes.of({name: values[name] for name in smooth})
            of_points = zip(points, slopes, strict=True)
            terms += list(np.moveaxis(np.array([axes.terms(*each) for each in of_points]), 1, 0))
        return cls(scales, smooth, axes, thinning(np.hstack(terms)) if terms else 1)


def _stacked(points: Sequence[Mapping[str, Array]], name: str) -> Array:
    return np.array([point[name] for point in points], dtype="float64")


def _jumps(
    target: Target,
    point: PointType,
    name: str,
    level: float,
    slopes: Mapping[str, Array],
    scales: Scales,
    rng: np.random.Generator,
) -> bool:
    """Whether the log density jumps along a short move of all entries of a variable."""
    value = point[name]
    line = SHORT_MOVE * scales.reach * rng.normal(size=value.shape)

    def along(place: float) -> tuple[float, float]:
        there = (value + place * line).astype(value.dtype)
        density, slope = target.slopes({**point, name: there})
        return density, float(np.sum(slope[name] * line))

    rounding = 10 * np.finfo(value.dtype).eps * abs(level)
    return not np.isfinite(slopes[name]).all() or jumps(along, SMALLEST_JUMP + rounding)


class _Evaluation:
    """Series of all identities at one place of a sweep."""

    def __init__(
        self, chain: _TunedChain, pilot: _Pilot, draws: int, rng: np.random.Generator
    ) -> None:
        self._chain, self._pilot, self._rng = chain, pilot, rng
        sizes = {name: scales.centre.size for name, scales in pilot.scales.items()}
        self._stein = {n: [Series(draws, sizes[n]) for _ in STEIN] for n in pilot.smooth}
        self._moves = {n: [Series(draws, size) for _ in MOVES] for n, size in sizes.items()}
        self._axes = pilot.axes
        n_axes = 0 if self._axes is None else len(self._axes.directions)
        self._joint = [Series(draws, n_axes) for _ in STEIN]

    def add(self, draw: int, point: PointType) -> None:
        """Add the terms of a point."""
        level, slopes = self._chain.slopes(point)
        scales = self._pilot.scales
        if self._stein:
            name = list(self._stein)[draw % len(self._stein)]
            target = self._chain.target
            if _jumps(target, point, name, level, slopes, scales[name], self._rng):
                del self._stein[name]
                self._axes = None
        for name, both in self._stein.items():
            terms = stein_terms(point[name], slopes[name], scales[name])
            for series, term in zip(both, terms, strict=True):
                series.add(draw, term.ravel())
        if self._axes is not None:
            for series, term in zip(self._joint, self._axes.terms(point, slopes), strict=True):
                series.add(draw, term)
        for name in self._moves:
            self._move(draw, point, name, level)

    def _move(self, draw: int, point: PointType, name: str, level: float) -> None:
        """Add the balance of moves of some entries of a variable."""
        value, scales = point[name], self._pilot.scales[name]
        terms, variances = np.zeros((2, len(MOVES), value.size))
        for i in self._rng.choice(value.size, min(value.size, ENTRIES), replace=False):
            new = moved(self._rng, value, i, scales)
            log_ratio = self._chain.target.log_density({**point, name: new}) - level
            terms[:, i], variances[:, i] = move_terms(
                value.flat[i], new.flat[i], log_ratio, scales.centre.flat[i]
            )
        for series, term, variance in zip(self._moves[name], terms, variances, strict=True):
            series.add(draw, term, variance)

    def found(self, where: str) -> tuple[list[Row], int]:
        """Rows of the z-scores of largest size, and the number of all."""
        model = self._chain.target.model
        rvs = {model.rvs_to_values[rv].name: describe(rv) for rv in model.free_RVs}
        scores: list[tuple[str, str, Array]] = []
        for value, name in rvs.items():
            named = [
                *zip(STEIN, self._stein.get(value, ()), strict=False),
                *zip(MOVES, self._moves.get(value, ()), strict=False),
            ]
            scores += [(name, identity, series.z_scores()) for identity, series in named]
        if self._axes is not None:
            for identity, series in zip(STEIN, self._joint, strict=True):
                z = series.z_scores()
                moving = self._axes.variables(int(np.argmax(np.abs(z))))
                names = ", ".join(rvs[value] for value in moving)
                scores.append((names, f"{identity} along an axis", z))
        rows = [(n, what + where, float(z[np.argmax(np.abs(z))])) for n, what, z in scores]
        return rows, sum(z.size for *_, z in scores)


def _evaluate(
    chain: _TunedChain,
    partial: Mapping[str, Callable[[PointType], PointType]],
    pilot: _Pilot,
    sweeps: int,
    rng: np.random.Generator,
) -> Stationarity:
    draws = max(2, sweeps // pilot.thinning)
    at_end = _Evaluation(chain, pilot, draws, rng)
    within = {name: _Evaluation(chain, pilot, draws, rng) for name in partial}
    for draw in range(draws):
        chain.advance(pilot.thinning)
        at_end.add(draw, chain.point)
        for name, run in partial.items():
            within[name].add(draw, run(chain.point))
    found = [at_end.found(""), *(e.found(f", after {n}") for n, e in within.items())]
    rows = tuple(row for rows, _ in found for row in rows)
    return Stationarity(rows, sum(n for _, n in found), draws, pilot.thinning)

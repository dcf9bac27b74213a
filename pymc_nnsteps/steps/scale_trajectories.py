"""Trajectories of scales with their weights, beside those of the weights.

Places are reached by :mod:`.standardised_weights`. In tuning the step size is adapted, and the
metric is learnt: the mean of products of slopes along the directions, recent ones above all.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.kernels.trajectories import Orbit, on_orbit
from pymc_nnsteps.steps.flat import FlatDensity, Located
from pymc_nnsteps.steps.networks import first_held
from pymc_nnsteps.steps.standardised_weights import StandardisedWeights
from pymc_nnsteps.steps.step_size import DualAveraging, Recent

LONGEST = 19
"""Upper limit of the number of leapfrog steps."""

TARGET_ACCEPT = 0.8
"""Mean acceptance probability that the adaptation aims at."""

FIRST_SIZE = 0.5

FLOOR = 1e-3
"""Least curvature along a direction."""


def basis_of(outer: Recent) -> np.ndarray:
    """Directions in which a mean of outer products is the identity, one column each.

    The fewer the values, the less is believed of what is beside the diagonal.
    """
    [curvature] = outer.means
    n = len(curvature)
    believed = outer.effective_count / (outer.effective_count + n)
    diagonal = np.diagonal(curvature)
    shrunk = believed * curvature + (1 - believed) * np.diag(diagonal) + FLOOR * np.eye(n)
    return np.linalg.inv(np.linalg.cholesky(shrunk)).T.copy()


@dataclass(frozen=True)
class TunedScales:
    """What is adapted.

    Attributes
    ----------
    n_held : int
        Number of draws that hold scales yet.
    curvature : Recent or None
        Products of slopes.
    """

    adaptation: DualAveraging
    n_held: int
    curvature: Recent | None = None

    @staticmethod
    def of(tune: int) -> "TunedScales":
        """At the start of a chain with so many tuning draws."""
        return TunedScales(DualAveraging(TARGET_ACCEPT, math.log(FIRST_SIZE)), first_held(tune))


class ScaleTrajectories:
    """Trajectories of the scales of some weights.

    Attributes
    ----------
    along : list of TensorVariable
        The scales.
    stats : dict
        Statistics of a draw, as steps declare them.
    """

    stats: ClassVar[dict[str, Any]] = {
        "scales_acceptance": (np.float64, []),
        "scales_size": (np.float64, []),
    }

    def __init__(self, standardised: StandardisedWeights) -> None:
        self._standardised = standardised
        self.along = standardised.scales
        self.refresh()

    def refresh(self) -> None:
        """Read the directions again: data may pick other scales, of other lengths."""
        self._orbit: Orbit | None = None
        self._basis: tuple[Recent, np.ndarray] | None = None

    def move(
        self,
        tuned: TunedScales,
        density: FlatDensity,
        located: Located,
        point: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        *,
        tune: bool,
    ) -> tuple[TunedScales, float, dict[str, Any]]:
        """Overwrite a place by a draw along the directions; return the log density there."""
        start = density(located)
        size = math.exp(tuned.adaptation.current if tune else tuned.adaptation.average)
        acceptance, log_density = 1.0, start[0]
        if tuned.n_held:
            tuned = replace(tuned, n_held=tuned.n_held - 1)
        else:
            if self._orbit is None:
                self._orbit = self._standardised.orbit(point)
            n = self._orbit.directions.max(initial=-1) + 1
            known, slope = tuned.curvature, np.empty(n)
            if known is None or len(known.means[0]) != n:  # of other data, with other scales
                known = Recent([np.eye(n)])
            if self._basis is None or self._basis[0] is not known:
                self._basis = known, basis_of(known)
            kernel, evaluate = density.given_to(on_orbit)
            place, numbers, layouts = located
            given = evaluate, self._orbit, place, start, self._basis[1], slope, size, LONGEST
            log_density, acceptance, *_ = kernel(*given, numbers, layouts, rng)
            adaptation = tuned.adaptation
            if tune:
                adaptation = adaptation.update(acceptance)
                known = known.update([np.outer(slope, slope)])
            tuned = TunedScales(adaptation, 0, known)
        stats = {"scales_acceptance": np.float64(acceptance), "scales_size": np.float64(size)}
        return tuned, log_density, stats


def scales_beside(
    model: pm.Model, moved: Sequence[TensorVariable], integrated_out: Collection[TensorVariable]
) -> ScaleTrajectories | None:
    """Trajectories of the scales of what a step moves; None if no other step draws any."""
    standardised = StandardisedWeights(model, moved, integrated_out)
    return ScaleTrajectories(standardised) if standardised.scales else None

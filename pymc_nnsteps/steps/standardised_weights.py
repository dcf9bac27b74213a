r"""Scales moved with their weights, the weights over their scales held.

Weights :math:`w = \hat w / \sqrt{\tau_{gi}}` hold on to the precisions of their units,
:math:`\tau_{gi} = \tau_g r_{gi}`, and these to that of the group: drawn given each other they
hardly move. With :math:`\hat w` and :math:`r` held, a level and a unit move by

.. math::

    \tau_g \to \tau_g e^{-2u}, \quad \tau_{gi} \to \tau_{gi} e^{-2u}, \quad w \to e^u w, \qquad
    \tau_{gi} \to \tau_{gi} e^{-2u_i}, \quad w_i \to e^{u_i} w_i.

These maps commute and form a group. In its coordinates u the density is the model's at the place
that they lead to, times the Jacobian :math:`\prod_w e^{u_w}` over the weights that are multiplied:
scales are stored as logarithms, which are shifted. It does not depend on where u is zero, so a
trajectory in u leaves the posterior invariant (Liu and Sabatti, *Generalised Gibbs sampler and
multigrid Monte Carlo for Bayesian computation*, Biometrika 87, 2000; Yu and Meng, *To center or not
to center*, JCGS 20, 2011). It is that for any degrees; those of the group are read off the model.
In tuning the step size is adapted, and the metric is learnt: the mean of products of slopes along
the directions, recent ones above all.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogTransform
from pytensor.compile.mode import Mode
from pytensor.tensor.random.basic import (
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    NormalRV,
    StudentTRV,
)
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import POSITIVE, prior_kind
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.values import natural_values, scalar_constant, substitute
from pymc_nnsteps.laws.scales import Scaled, scaled_child
from pymc_nnsteps.steps.compiled import PointFunction
from pymc_nnsteps.steps.flat import FlatDensity, Located
from pymc_nnsteps.steps.networks import first_held
from pymc_nnsteps.steps.trajectories import Orbit, on_orbit
from pymc_nnsteps.steps.tuning import DualAveraging, Recent

WEIGHTS = (NormalRV, StudentTRV, LaplaceRV)
SCALES = (HalfNormalRV, GammaRV, ExponentialRV, InvGammaRV)
"""Priors of variables that are proportional to their scales; a location has to be zero."""

Point = Mapping[str, np.ndarray]


LONGEST = 19
"""Upper limit of the number of leapfrog steps."""

TARGET_ACCEPT = 0.8
"""Mean acceptance probability that the adaptation aims at."""

FIRST_SIZE = 0.5

FLOOR = 1e-3
"""Least curvature along a direction."""


def basis_of(outer: Recent) -> np.ndarray:
    """Directions, a column each, in which a mean of outer products, shrunken, is the identity."""
    [curvature] = outer.means
    n = len(curvature)
    believed = outer.effective_count / (outer.effective_count + n)
    diagonal = np.diagonal(curvature)
    shrunk = believed * curvature + (1 - believed) * np.diag(diagonal) + FLOOR * np.eye(n)
    return np.linalg.inv(np.linalg.cholesky(shrunk)).T.copy()


@dataclass(frozen=True)
class TunedScales:
    """What is adapted."""

    adaptation: DualAveraging
    n_held: int  # number of draws that hold scales yet
    curvature: Recent | None = None  # products of slopes

    @staticmethod
    def of(tune: int) -> "TunedScales":
        """At the start of a chain with so many tuning draws."""
        return TunedScales(DualAveraging(TARGET_ACCEPT, math.log(FIRST_SIZE)), first_held(tune))


class StandardisedWeights:
    """Scales that other steps draw, and trajectories along which they and a step's weights move."""

    stats: ClassVar[dict[str, Any]] = {
        "scales_acceptance": (np.float64, []),
        "scales_size": (np.float64, []),
    }

    def __init__(
        self,
        model: pm.Model,
        moved: Sequence[TensorVariable],
        integrated_out: Collection[TensorVariable] = (),
    ) -> None:
        self._moved, self._integrated_out = list(moved), set(integrated_out)
        self._scaled = scaled_with(model, {*moved, *integrated_out})
        self.scales = list(self._scaled)
        self._pairs = [(rv, seen) for rv, scaled in self._scaled.items() for seen in scaled]
        self._names = {rv: model.rvs_to_values[rv].name for rv in model.free_RVs}
        self._is_logarithm = {
            rv: type(model.rvs_to_transforms[rv]) is LogTransform for rv in model.free_RVs
        }
        scales = [pt.log(parameters(seen.child)[seen.role.scale]) for _, seen in self._pairs]
        logarithms = substitute(scales, natural_values(model))
        mode = Mode(linker="py", optimizer="fast_compile")
        self._logarithms = PointFunction(model, (), logarithms, {"mode": mode})
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
                self._orbit = self.orbit(point)
            n = self._orbit.directions.max(initial=-1) + 1
            known, slope = tuned.curvature, np.empty(n)
            if known is None or len(known.means[0]) != n:  # of other data, with other scales
                known = Recent([np.eye(n)])
            if self._basis is None or self._basis[0] is not known:
                self._basis = known, basis_of(known)
            kernel, target = density.given_to(on_orbit, located)
            given = target, self._orbit, located.place, start, self._basis[1], slope, size, LONGEST
            log_density, acceptance, *_ = kernel(*given, rng)
            adaptation = tuned.adaptation
            if tune:
                adaptation = adaptation.update(acceptance)
                known = known.update([np.outer(slope, slope)])
            tuned = TunedScales(adaptation, 0, known)
        stats = {"scales_acceptance": np.float64(acceptance), "scales_size": np.float64(size)}
        return tuned, log_density, stats

    def orbit(self, point: Point) -> Orbit:
        """How what is moved, and the scales after it, move along the directions of scales."""
        degrees = self._degrees(point)
        rows = {rv: degrees[rv] for rv in (*self._moved, *self.scales)}
        whole = sparse.vstack(list(rows.values())).tocsr()
        multiplied = [
            np.full(part.shape[0], float(not self._is_logarithm[rv])) for rv, part in rows.items()
        ]
        begins, directions = (part.astype("int64") for part in (whole.indptr, whole.indices))
        return Orbit(np.concatenate(multiplied), begins, directions, whole.data)

    def _degrees(self, point: Point) -> dict[TensorVariable, sparse.csr_matrix]:
        """Degree of each entry of what moves, one row each, along each direction."""
        entries = self._entries(point)
        size = {rv: point[name].size for rv, name in self._names.items()}
        levels = [rv for rv in self.scales if self._is_level(rv, size)]
        n = sum(size[rv] for rv in levels)
        degrees: dict[TensorVariable, sparse.csr_matrix] = {}
        begin = 0
        for rv in (*self.scales, *self._moved):
            found = sparse.csr_matrix((size[rv], n))
            for (scale, seen), entry in zip(self._pairs, entries, strict=True):
                if seen.child is rv:
                    share = sparse.diags((entry >= 0) * seen.form.exponent)
                    found += share @ degrees[scale][np.maximum(entry, 0)]
            if rv in levels:
                found += sparse.eye(size[rv], n, begin) / self._exponent(rv)
                begin += size[rv]
            degrees[rv] = found.tocsr()
        return degrees

    def _entries(self, point: Point) -> list[np.ndarray]:
        """For each scale and child, the entry that scales each entry of the child; -1 for none."""
        found: list[np.ndarray] = []
        known = self._logarithms.at(point)
        for rv in self.scales:
            value = point[self._names[rv]]
            numbers = np.arange(1, value.size + 1) / (value.size + 1)
            shifted = {**point, self._names[rv]: value + numbers.reshape(value.shape)}
            after = self._logarithms.at(shifted)
            for (scale, seen), one, other in zip(self._pairs, known, after, strict=True):
                if scale is rv:
                    number = (other - one) / seen.form.exponent * (value.size + 1)
                    shape = point[self._names[seen.child]].shape
                    entry = np.broadcast_to(np.rint(number).astype("int64") - 1, shape)
                    found.append(entry.ravel())
        return found

    def _is_level(self, rv: TensorVariable, size: Mapping[TensorVariable, int]) -> bool:
        """Whether a scale has directions of its own: it scales more entries than it has."""
        seen = [each.child for each in self._scaled[rv]]
        if not self._integrated_out.isdisjoint(seen):
            return True
        return size[rv] < sum(size[child] for child in seen)

    def _exponent(self, rv: TensorVariable) -> float:
        """Power of a scale that weights are proportional to."""
        [seen, *_] = self._scaled[rv]
        below = self._exponent(seen.child) if seen.child in self._scaled else 1.0
        return seen.form.exponent * below


def scaled_with(
    model: pm.Model, weights: Collection[TensorVariable]
) -> dict[TensorVariable, list[Scaled]]:
    """Scales, parents first, with what is proportional to each: weights, and scales of weights."""
    found: dict[TensorVariable, list[Scaled]] = {}
    for rv in reversed(model.free_RVs):
        transform = model.rvs_to_transforms[rv]
        if rv in weights or type(transform) is not LogTransform:
            continue
        below = [child for child in children(model, rv) if child in weights or child in found]
        scaled = [seen for child in below if (seen := _proportional(model, child, rv)) is not None]
        if scaled:
            found[rv] = scaled
    return dict(reversed(found.items()))


def _proportional(model: pm.Model, child: TensorVariable, rv: TensorVariable) -> Scaled | None:
    """How the scale of a child depends on a positive variable that it is proportional to."""
    if type(model.rvs_to_transforms[child]) not in (NoneType, LogTransform):
        return None
    has_location = prior_kind(model, child) in WEIGHTS
    kind = prior_kind(model, child, POSITIVE)
    if not has_location and kind not in SCALES:
        return None
    seen = known_or_none(scaled_child, model, child, rv)
    if seen is not None and (has_location or kind is HalfNormalRV):
        location = parameters(child)[seen.role.scale - 1]
        return seen if scalar_constant(location) == 0 else None
    return seen

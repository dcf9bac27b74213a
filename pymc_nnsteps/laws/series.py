r"""Gaussian random walks and autoregressions of order one, all times at once.

Model, for a series :math:`v_1, \dots, v_T` (a GaussianRandomWalk has :math:`\rho = 1`):

.. math::

    v_1 \sim N(c_1, 1/e_1), \qquad v_t \mid v_{t-1} \sim N(c_t + \rho v_{t-1}, 1/e_t)

Each entry of a child sees the series at one time: Normal and LogNormal children by their mean,
Bernoulli and Binomial children by their logit (:mod:`.gaussian`). Posterior:
:math:`N(P^{-1} h, P^{-1})` with a tridiagonal

.. math::

    P_{tt} = e_t + \rho^2 e_{t+1} + a_t, \quad P_{t, t+1} = -\rho\, e_{t+1}, \quad
    h_t = e_t c_t - \rho\, e_{t+1} c_{t+1} + b_t

where :math:`a_t` and :math:`b_t` are the precision and the linear part that children add to
:math:`v_t`. A draw takes time linear in T and moves the series as one block.
"""

from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import Layout
from pymc_nnsteps.gaussian.observation import Child, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import LINE, describe, distribution, is_a
from pymc_nnsteps.graphs.search import children, parameters
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import draw_tridiagonal
from pymc_nnsteps.laws.conditional import (
    Conditional,
    Draw,
    Shapes,
    precision_of,
    require_free,
    require_support,
)
from pymc_nnsteps.laws.gaussian import OBSERVED, augmented, observe
from pymc_nnsteps.laws.table import recognises
from pymc_nnsteps.random.standard_normal import standard_normal


@dataclass(frozen=True)
class Start:
    """Means and precisions of a series, time last: of the ``first`` value and ``later`` steps."""

    first: tuple[TensorVariable, TensorVariable]
    later: tuple[TensorVariable, TensorVariable]
    slope: TensorVariable


@dataclass(frozen=True)
class GaussianSeries(Conditional):
    """Full conditional of a series whose entries each child sees one by one."""

    name = "Gaussian series"
    prior: Start
    observations: tuple[Child, ...]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [rv] = self.draws
        shape = tuple(rv.shape)
        batch, n_times = shape[:-1], shape[-1]

        def joined(*parts: TensorVariable) -> TensorVariable:
            sizes = zip(parts, (1, n_times - 1), strict=True)
            return pt.concatenate(
                [pt.broadcast_to(part, (*batch, n)) for part, n in sizes], axis=-1
            )

        def shifted(array: TensorVariable) -> TensorVariable:
            return pt.concatenate([array[..., 1:], pt.zeros_like(array[..., :1])], axis=-1)

        mean, precision = map(joined, self.prior.first, self.prior.later)
        slope, following = self.prior.slope, shifted(precision)
        diagonal = precision + pt.sqr(slope) * following
        linear = precision * mean - slope * following * shifted(mean)
        layout = Layout(rv, tuple(range(rv.ndim)), ())
        for observation in self.observations:
            rng, seen = augmented(rng, observation)
            evidence = evidence_of([layout], seen)
            diagonal += evidence.information_diagonal()[..., 0]
            linear += evidence.linear()[..., 0]
        rng, noise = standard_normal(rng, shape, rv.dtype)
        arrays = (diagonal, -slope * following, linear, noise)
        flat = (pt.broadcast_to(array, shape).reshape((-1, n_times)) for array in arrays)
        return Draw(rng, {rv: typed_like(rv, draw_tridiagonal(*flat).reshape(shape))})

    def about_shift(self) -> tuple[TensorVariable, TensorVariable]:
        """Precision and linear part that the prior gives one number added to all values."""
        [rv], slope = self.draws, self.prior.slope
        first, later = rv[..., :1], rv[..., 1:] - slope * rv[..., :-1]
        steps = (
            (first, pt.ones_like(slope), self.prior.first),
            (later, 1 - slope, self.prior.later),
        )
        total = linear = pt.zeros((), dtype=rv.dtype)
        for step, moved, (mean, precision) in steps:
            weight = precision * moved + pt.zeros_like(step)
            total += (weight * moved).sum()
            linear += (weight * (mean - step)).sum()
        return total.reshape((1, 1)), linear.reshape((1,))


@recognises(800, "Gaussian series, all times at once", {RandomWalkRV, AutoRegressiveRV}, OBSERVED)
def match_series(model: pm.Model, rv: TensorVariable) -> GaussianSeries:
    """Recognise a Gaussian random walk, or an autoregression of order one."""
    require_free(model, rv)
    require_support(model, rv, LINE)
    walk = is_a(rv, RandomWalkRV)
    prior = _walk(rv) if walk else _autoregression(rv)
    observations = []
    for child in children(model, rv):
        seen = observe(model, child, [rv])
        [term] = seen.terms
        if len(term.linked_axes) < rv.ndim:
            raise NotConjugate(f"child {describe(child)} depends on it at several times at once")
        observations.append(seen)
    return GaussianSeries((rv,), prior, tuple(observations))


def _walk(rv: TensorVariable) -> Start:
    """Innovations of a random walk, with the time axis first."""
    if rv.owner.op.ndim_supp != 1:
        raise NotConjugate("its value at each time is a vector")
    laws = []
    for innovation in rv.owner.inputs[:2]:
        mean, sigma = _normal(innovation, "an innovation")
        order = (*range(1, innovation.ndim), 0)
        precision = precision_of(rv, sigma)
        laws.append((mean.astype(rv.dtype).dimshuffle(order), precision.dimshuffle(order)))
    first, later = laws
    return Start(first, later, pt.ones((1,), dtype=rv.dtype))


def _autoregression(rv: TensorVariable) -> Start:
    op = rv.owner.op
    if op.ar_order != 1:
        raise NotConjugate(f"it is an autoregression of order {op.ar_order}, not 1")
    rho, sigma, first, *_ = rv.owner.inputs
    mean, spread = _normal(first, "the first value")
    rho = rho.astype(rv.dtype)
    constant = rho[..., :1] if op.constant_term else pt.zeros((1,), dtype=rv.dtype)
    later = constant, precision_of(rv, sigma)[..., None]
    return Start((mean.astype(rv.dtype), precision_of(rv, spread)), later, rho[..., -1:])


def _normal(rv: TensorVariable, role: str) -> tuple[TensorVariable, TensorVariable]:
    if not is_a(rv, NormalRV):
        raise NotConjugate(f"{role} is {distribution(rv)}, not Normal")
    mean, sigma = parameters(rv)
    return mean, sigma

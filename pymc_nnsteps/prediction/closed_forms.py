r"""Networks of which a part is integrated out in closed form.

In a model whose readout weights have been integrated out, with the last hidden layer in a matrix
:math:`\Psi`,

.. math::

    y \sim N(0, K), \quad K = C + \sigma^2 I, \quad C = \Psi \Psi^T, \qquad
    f = C K^{-1} y + A \phi, \quad \phi \sim N(0, I), \quad A A^T = C - C K^{-1} C:

the function ``f`` of the network is drawn given the targets, which are those of :math:`f` with the
noise :math:`\sigma`. That this is so is established at random points, not by names.

A network of one noisy hidden layer and one output is a sum of independent hidden units. Given the
weights, the mean of the target is ``offset + sum_j coefficient_j x_j`` with independent ``x_j``,
each a mixture: with a weight, ``location + scale e`` of a standard normal e between two bounds.
Such are activations behind piecewise-linear functions of normal pre-activations (a component for
each piece), behind binary gates (open and closed) and mixtures of normals.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.row_axes import Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import children, depends_on, parameters, stated_in
from pymc_nnsteps.graphs.shapes import length_of
from pymc_nnsteps.graphs.values import observed_values, substitute
from pymc_nnsteps.laws.gates import match_gates
from pymc_nnsteps.network.activations import read_activation
from pymc_nnsteps.network.layers import Gates, Layer, Mixture, Normal
from pymc_nnsteps.prediction.row_data import Known

MODE = Mode(linker="py", optimizer="fast_compile")


def read_readout(
    model: pm.Model, y: TensorVariable, container: TensorSharedVariable
) -> tuple[TensorVariable, TensorVariable] | None:
    """Read the function that was integrated out of targets with rows last, and their noise."""
    named = [f for f in model.deterministics if f.name.rpartition("::")[2] == "f"]
    if len(named) != 1 or not depends_on(named[0], {container}):
        return None
    [f] = named
    read = _covariance(model, y)
    if read is None:
        return None
    covariance, sigma = read
    hidden = stated_in([covariance], model.basic_RVs)
    phi = [rv for rv in model.free_RVs if rv in stated_in([f], model.basic_RVs) - hidden]
    if len(phi) != 1 or children(model, phi[0]) or not has_law(model, phi[0], NormalRV):
        return None
    return (f, sigma) if _is_posterior(model, y, f, covariance, sigma, phi[0]) else None


def _covariance(model: pm.Model, y: TensorVariable) -> tuple[TensorVariable, TensorVariable] | None:
    """Covariance of the targets over rows, and the standard deviation of their noise."""
    given = parameters(y)
    if not has_law(model, y, MvNormalRV):
        if len(given) != 2 or [parameter.ndim for parameter in given] != [2, 0]:
            return None
        psi, sigma = given
        return psi @ psi.T + pt.sqr(sigma) * pt.eye(psi.shape[0], dtype=psi.dtype), sigma
    covariance = given[1]
    if covariance.owner is not None and isinstance(covariance.owner.op, DimShuffle):
        [covariance] = covariance.owner.inputs
    if covariance.owner is None or len(covariance.owner.inputs) != 2:
        return None
    rest = covariance.owner.inputs[1]
    if rest.ndim != 2 or depends_on(rest, set(model.free_RVs)):
        return None
    constants = rest.eval(mode="FAST_COMPILE")
    variance = constants[0, 0] - constants[0, -1]
    if variance <= 0 or not np.allclose(
        constants, constants[0, -1] + variance * np.eye(len(constants))
    ):
        return None
    return covariance, pt.constant(variance**0.5)


def _is_posterior(
    model: pm.Model,
    y: TensorVariable,
    f: TensorVariable,
    covariance: TensorVariable,
    sigma: TensorVariable,
    phi: TensorVariable,
) -> bool:
    """Whether f, affine in ``phi``, is drawn given targets of this covariance, at two points."""
    places: dict[Any, Any] = {rv: rv.type() for rv in model.free_RVs}
    data: TensorVariable = model.rvs_to_values[y]
    direction, target = f.type(), data.type()
    slope = pt.grad((direction * f).sum(), phi)
    density = pm.logp(y, target, warn_rvs=False).sum()
    stated = [f, slope, density, covariance, sigma, *parameters(phi)]
    evaluate = pytensor.function(
        [*places.values(), direction, target],
        [data, *substitute(stated, {**places, **observed_values(model)})],
        mode=MODE,
        on_unused_input="ignore",
    )
    # Values, slopes and densities at phi = 0 with the data, and at a random point without.
    rng, shapes = np.random.default_rng(0), model.eval_rv_shapes()
    point = {rv: rng.normal(size=shapes[rv.name]).astype(rv.dtype) for rv in places}
    [values] = pytensor.function([], [data], mode=MODE)()
    v = rng.normal(size=values.T.shape).astype(f.dtype)
    at_zero = {**point, phi: np.zeros_like(point[phi])}
    _, mean, slope_there, log_density, K, noise, centre, spread = evaluate(
        *at_zero.values(), v, values
    )
    _, drawn, slope_here, log_density_at_zero, *_ = evaluate(*point.values(), v, 0 * values)
    # What these would be, were f drawn from its law given targets with covariance K.
    columns, directions = (np.atleast_2d(array.T).T for array in (values.T, v))
    signal = K - noise**2 * np.eye(len(K))
    gain = np.linalg.solve(K, signal).T
    squares = np.einsum("ic,ij,jc->c", directions, signal - gain @ signal, directions)
    halves = np.sum(columns * np.linalg.solve(K, columns)) / 2
    constant = columns.shape[1] * np.linalg.slogdet(2 * np.pi * K)[1] / 2
    pairs = [
        (centre, 0.0),
        (spread, 1.0),
        (slope_here, slope_there),
        (np.sum(v * (drawn - mean)), np.sum(slope_here * point[phi])),
        (mean, (gain @ columns).reshape(mean.shape)),
        (np.square(slope_here).reshape(len(squares), -1).sum(1), squares),
        (log_density, -halves - constant),
        (log_density_at_zero, -constant),
    ]
    tolerance = float(np.finfo(f.dtype).eps) ** 0.375
    return all(np.allclose(one, other, rtol=tolerance, atol=tolerance) for one, other in pairs)


@dataclass(frozen=True)
class HiddenUnits:
    """The hidden units, as graphs in terms of inputs and weights."""

    activations: TensorVariable  # shape (n_obs, units): an input, to be zero
    # shape (n_obs, ...): mean of the target where all activations are zero, and its own standard
    # deviation.
    offset: TensorVariable
    sd: TensorVariable
    # shape (n_obs, units): of the activations about their component's value.
    activation_sd: TensorVariable
    # Each of a shape that broadcasts to (n_obs, units).
    components: tuple[tuple[TensorVariable, ...], ...]


def read_units(
    model: pm.Model,
    child: TensorVariable,
    stated: Sequence[TensorVariable],
    latents: Mapping[TensorVariable, Layer],
    linear: Sequence[TensorVariable],
    known: Known,
) -> HiddenUnits | None:
    """Read a network as a sum of units, its mean affine in ``linear``; None if it may be none."""
    if len(linear) != 1 or linear[0].ndim != 2 or len(latents) > 2:
        return None
    [x] = linear
    [behind, *_] = [*(rv for rv in latents if rv is not x), None]
    if behind is not None and (children(model, behind) != (x,) or behind.ndim != 2):
        return None

    def followed(expression: TensorVariable, **others: tuple[Variable, Variable]) -> TensorVariable:
        more = {old: (new, Rows(0)) for old, new in others.values()}
        return follow_rows(expression, {**known, **more})[0]

    found = None
    with suppress(NotConjugate):
        found = _components(model, latents, x, behind, followed)
    if found is None:
        return None
    components, activation_sd = found
    activations = x.type.clone(dtype="float64", shape=(None, length_of(model, x, 1)))(
        f"{x.name} of zero"
    )
    offset, sd = (followed(each, x=(x, activations.astype(x.dtype))) for each in stated)
    return HiddenUnits(activations, offset, sd, activation_sd, components)


def _components(
    model: pm.Model,
    latents: Mapping[TensorVariable, Layer],
    x: TensorVariable,
    behind: TensorVariable | None,
    followed: Callable[..., TensorVariable],
) -> tuple[tuple[tuple[TensorVariable, ...], ...], TensorVariable] | None:
    """Components of the activations, and their noise beside these."""
    zero, one, infinity = (pt.constant(value, dtype="float64") for value in (0.0, 1.0, np.inf))
    layer = latents[x]
    if isinstance(layer, Mixture):
        n = layer.weights.type.shape[-1]
        if behind is not None or n is None:
            return None
        stated = map(followed, (layer.weights, layer.means, layer.sds))
        weights, mean, sd = pt.broadcast_arrays(*stated)
        return tuple(
            (weights[..., k], mean[..., k], sd[..., k], -infinity, infinity) for k in range(n)
        ), zero
    assert isinstance(layer, Normal)
    if behind is None or depends_on(layer.sd, {behind}, model.basic_RVs):
        return None
    below = latents[behind]
    if isinstance(below, Gates):
        match_gates(model, behind)
        p = followed(below.mean)
        gates = pt.ones_like(p).astype(behind.dtype)
        opened, closed = (followed(layer.mean, gate=(behind, gates * level)) for level in (1, 0))
        return (
            (p, opened, zero, -infinity, infinity),
            (one - p, closed, zero, -infinity, infinity),
        ), followed(layer.sd)
    if not isinstance(below, Normal):
        return None
    form = read_activation(model, behind, x)
    if form.offset is not None:
        return None
    m, s = followed(below.mean), followed(below.sd)
    knots = [(pt.constant(knot) - m) / s for knot in form.function.knots]
    bounds = [-infinity, *knots, infinity]
    return tuple(
        (one, slope * m + intercept, slope * s, bounds[k], bounds[k + 1])
        for k, (slope, intercept) in enumerate(form.function.lines)
    ), followed(layer.sd)

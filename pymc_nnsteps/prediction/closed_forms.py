r"""Networks whose readout weights have been integrated out.

With the last hidden layer in a matrix :math:`\Psi`,

.. math::

    y \sim N(0, K), \quad K = C + \sigma^2 I, \quad C = \Psi \Psi^T, \qquad
    f = C K^{-1} y + A \phi, \quad \phi \sim N(0, I), \quad A A^T = C - C K^{-1} C:

the function ``f`` of the network is drawn given the targets, which are those of :math:`f` with the
noise :math:`\sigma`. That this is so is established at random points, not by names.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.search import children, depends_on, parameters, stated_in
from pymc_nnsteps.graphs.values import observed_values, substitute

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

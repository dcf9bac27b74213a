r"""The law of what is observed of a row given the noise of its layers, and log probabilities of it.

What is observed is normal, a decision (:mod:`~pymc_nnsteps.network.activations`) by utilities of
parameters mean and sd, which are integrated out, or :class:`Other`.

A threshold has :math:`P(z > t) = \Phi((\mu - t) / \sigma)`. The largest of several has

.. math::

    P(a = \operatorname{argmax} z) = \int \phi(t)
    \prod_{b \ne a} \Phi\Big(\frac{\mu_a + \sigma_a t - \mu_b}{\sigma_b}\Big) dt,

whose integrand is log-concave. Newton's method finds its mode, which it approaches from one side.
The trapezoidal rule about the mode gives the integral, and converges exponentially fast.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy
from numpy.typing import NDArray
from pymc.distributions.shape_utils import change_dist_size
from pytensor.compile.mode import Mode
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, distribution, has_law, prior_kind
from pymc_nnsteps.graphs.search import children, depends_on, parameters, random_in, stated_in
from pymc_nnsteps.graphs.values import observed_values, substitute
from pymc_nnsteps.laws.piecewise import match_probit
from pymc_nnsteps.network.activations import Largest, Threshold, decides, read_decision
from pymc_nnsteps.network.layers import Normal
from pymc_nnsteps.network.network import Network

MODE = Mode(linker="py", optimizer="fast_compile")


def read_readout(
    model: pm.Model, y: TensorVariable, container: TensorSharedVariable
) -> tuple[TensorVariable, TensorVariable] | None:
    r"""Read the function that was integrated out of targets with rows last, and their noise.

    With the last hidden layer in a matrix :math:`\Psi`,

    .. math::

        y \sim N(0, K), \quad K = C + \sigma^2 I, \quad C = \Psi \Psi^T, \qquad
        f = C K^{-1} y + A \phi, \quad \phi \sim N(0, I), \quad A A^T = C - C K^{-1} C:

    the function ``f`` of the network is drawn given the targets, which are those of :math:`f` with
    the noise :math:`\sigma`. That this is so is established at random points, not by names.
    """
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


Numbers = NDArray[np.float64]

REACH = 9.0
"""Half-width of the trapezoidal rule, in standard deviations."""

SPACING = 0.7
"""Spacing of nodes relative to the integrand's sharpest feature: an error of about exp(-40)."""

MOST_NODES = 1000

NEWTON_STEPS = 12

FAR = -1e4
"""Below it the second derivative of ``-log Phi`` is one to eight digits; rounding takes as many."""


@dataclass(frozen=True)
class Other:
    """Any other distribution, by the log density that PyMC computes at a value."""

    value: TensorVariable
    kind: type


ELSEWHERE = (
    "draw responses by pm.sample_posterior_predictive, and have the likelihood by "
    "pm.compute_log_likelihood if the network has no latent layers"
)
"""What is left where the law of rows is not known."""

Law = Normal | Threshold | Largest | Other


Reading = tuple[Law, tuple[TensorVariable, ...], TensorVariable, TensorVariable]


def read_law(network: Network) -> Reading:
    """The law of what is observed or of utilities, its parameters, whose they are, and values."""
    model, y = network.model, network.response
    value: TensorVariable = model.rvs_to_values[y]
    if has_law(model, y, NormalRV):
        return *_normal(network, y), y, value
    for z in network.latents:
        decision = _decision(model, z, y)
        if decision is not None:
            return decision, _normal(network, z)[1], z, value
    readout = read_readout(model, y, network.inputs)
    if readout is not None:
        return Normal(*readout), readout, y, value.T
    with suppress(NotImplementedError):
        placeholder = y.type.clone(shape=(None, *y.type.shape[1:])[: y.ndim])("y")
        law = Other(placeholder, prior_kind(model, y))
        return law, (log_density(model, y, placeholder),), y, value
    raise ValueError(
        f"{describe(y)} is {distribution(y)}, for which PyMC has no density of a single row; "
        f"{ELSEWHERE}."
    )


def log_density(model: pm.Model, y: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Log density of a variable as PyMC computes it.

    PyMC copies and rewrites what random variables are made of, which is put in afterwards.
    """
    n_batch = y.ndim - getattr(y.owner.op, "ndim_supp", 0)
    law = change_dist_size(y, tuple(value.shape)[:n_batch])
    others: dict[Any, Any] = {}
    pending = [law]
    while pending:
        for part in pending.pop().owner.inputs:
            if random_in([part], model.basic_RVs):
                pending.append(part)
            elif isinstance(part, TensorVariable) and (part.ndim > 0 or part.owner is not None):
                others[part.type()] = part
    [law] = substitute([law], {part: other for other, part in others.items()})
    found: list[TensorVariable] = substitute([pm.logp(law, value)], others)
    return found[0]


def _normal(network: Network, rv: TensorVariable) -> tuple[Normal, tuple[TensorVariable, ...]]:
    """A normal variable, and its mean and standard deviation."""
    layer = network.layer(rv)
    assert isinstance(layer, Normal)
    return layer, (layer.mean, layer.sd)


def _decision(model: pm.Model, z: TensorVariable, y: TensorVariable) -> Law | None:
    """The law of ``y`` as a decision by utilities, if it is one."""
    if decides(y) and children(model, z) == (y,):
        with suppress(NotConjugate):
            match_probit(model, z)
            return read_decision(model, z, y)
    return None


def log_probability_above(level: float, mean: Numbers, sd: Numbers) -> tuple[Numbers, Numbers]:
    """``log P(z > level)`` and ``log P(z < level)`` of ``z ~ N(mean, sd^2)``."""
    distance = (mean - level) / sd
    return scipy.special.log_ndtr(distance), scipy.special.log_ndtr(-distance)


def log_probability_of_largest(winner: NDArray[np.intp], mean: Numbers, sd: Numbers) -> Numbers:
    """Log of the probability that ``winner`` (...) of independent normals is the largest.

    ``mean`` and ``sd`` have (..., n_classes); the error is that of rounding for similar deviations.
    """
    mean, sd = np.broadcast_arrays(mean, sd)
    n_classes = mean.shape[-1]
    others = np.arange(n_classes - 1) + (np.arange(n_classes - 1) >= winner[..., None])
    own_mean, own_sd = (np.take_along_axis(a, winner[..., None], -1) for a in (mean, sd))
    other_mean, other_sd = (np.take_along_axis(a, others, -1) for a in (mean, sd))
    start, slope = (own_mean - other_mean) / other_sd, own_sd / other_sd

    mode = np.zeros(winner.shape)
    for _ in range(NEWTON_STEPS):
        gradient, curvature = _derivatives(mode, start, slope)
        mode = mode - gradient / curvature
    _, curvature = _derivatives(mode, start, slope)
    sd_left = 1 / np.sqrt(-curvature)
    width = REACH * (sd_left + 1)
    sharpest = np.minimum(sd_left, 1 / slope.max(axis=-1, initial=1.0))
    needed = np.max(width / (SPACING * sharpest), initial=1.0)
    n_nodes = int(min(np.ceil(needed), MOST_NODES)) + 1
    t = (mode - REACH * sd_left)[..., None] + width[..., None] * np.linspace(0.0, 1.0, n_nodes)
    log_integrand = -0.5 * t**2
    for b in range(n_classes - 1):
        log_integrand = log_integrand + scipy.special.log_ndtr(
            start[..., b, None] + slope[..., b, None] * t
        )
    scale = np.log(width / (n_nodes - 1)) - 0.5 * np.log(2 * np.pi)
    return np.minimum(scipy.special.logsumexp(log_integrand, axis=-1) + scale, 0.0)


def _derivatives(t: Numbers, start: Numbers, slope: Numbers) -> tuple[Numbers, Numbers]:
    """First and second derivative of the log of the integrand."""
    x = start + slope * t[..., None]
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-x / np.sqrt(2))
    bend = np.where(x < FAR, 1.0, hazard * (hazard + x))
    gradient = -t + (slope * hazard).sum(-1)
    curvature = -1.0 - (slope**2 * bend).sum(-1)
    return gradient, curvature

r"""Coordinate ascent over all rows, its stochastic form over batches, and where both begin.

Both make the same sweep: scales, then what belongs to the rows, then weights and noise, then an
EM step.

The evidence lower bound (ELBO) is exact, with all constants: a function of the sums over rows and
of the laws of weights, noise and scales. Terms in :math:`E[\log \eta^2]`, :math:`E[\log\tau]` and
:math:`E[\log\psi]` cancel, because the orders of these laws are known.

Updates of weights, noise and scales are functions of the sums over rows
(:class:`~pymc_nnsteps.variational.rows.Statistics`) and of the other laws, and never lower it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.variational.factors import (
    GIG,
    SMALLEST,
    LayerFactors,
    LayerPrior,
    NetworkPrior,
    gaussian_rows,
    relative_entropy,
)
from pymc_nnsteps.variational.rows import (
    LOG_2PI,
    GateFactors,
    LayerStatistics,
    Statistics,
    forward_gates,
    sweep_rows,
)

Numbers = NDArray[np.float64]

LayerStart = Literal["laplace", "spike_slab"]

VARIANCE = 0.01
"""Variance of the weights at the start."""

MARGIN = 0.05
"""Margin around the range of the data for bends of units, as a share of that range."""

PENALTIES = np.logspace(-3, 3, 13)
"""Candidate ridge penalties, per mean square of an activation and row."""


def start_layers(
    network: NetworkPrior,
    x: Numbers,
    y: Numbers,
    start: LayerStart,
    rng: np.random.Generator,
    n_obs: int,
) -> list[LayerFactors]:
    r"""Laws of weights, noise and scales to begin with (Appendix D.1), from some of ``n_obs`` rows.

    The start decides which optimum is found. Hidden weights are Laplace with scale
    :math:`\sqrt{2/D_{l-1}}`, or zero or normal; each unit bends at a random place within the range
    of its inputs and 5 % beyond.
    """
    layers = []
    for prior in network.layers[:-1]:
        W = _hidden_weights(start, prior.shape, rng)
        low, high = x.min(axis=0), x.max(axis=0)
        place = rng.uniform(-MARGIN, 1 + MARGIN, size=prior.shape)
        b = -np.sum(W * (low + place * (high - low)), axis=1)
        layers.append(_layer(prior, np.column_stack([b, W]), n_obs))
        z = x @ W.T + b
        x = scipy.special.expit(z / network.temperature) * z
    layers.append(_layer(network.layers[-1], _ridge(x, y), n_obs))
    return layers


def _hidden_weights(start: LayerStart, shape: tuple[int, int], rng: np.random.Generator) -> Numbers:
    if start == "laplace":
        return rng.laplace(scale=np.sqrt(2 / shape[1]), size=shape)
    root = np.sqrt(shape[1])
    slab = rng.normal(scale=np.sqrt(2 / root), size=shape)
    return np.where(rng.random(shape) < 1 / (1 + root), slab, 0.0)


def _layer(prior: LayerPrior, mean: Numbers, n_obs: int) -> LayerFactors:
    """Weights about given means, noise with the precision of its prior, and scales that fit."""
    units, width = mean.shape
    precision = np.broadcast_to(np.eye(width) / VARIANCE, (units, width, width))
    shift = mean / VARIANCE
    _, cov, log_det = gaussian_rows(precision, shift)
    alpha = prior.alpha + n_obs / 2
    beta = alpha * prior.beta / prior.alpha
    scales = _about_centre(prior.tau), _about_centre(prior.psi)
    layer = LayerFactors(precision, shift, mean, cov, log_det, alpha, beta, *scales)
    return update_scales(prior, layer)


def _about_centre(prior: GIG | None) -> GIG | None:
    """A law whose mean inverse is that of the middle of the prior."""
    if prior is None:
        return None
    return GIG(-1.0, 2 * prior.centre, np.zeros_like(prior.centre))


def _ridge(x: Numbers, y: Numbers) -> Numbers:
    """Biases and weights of a ridge regression; the penalty has the least cross-validated error."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    left, values, right = np.linalg.svd(x - x_mean, full_matrices=False)
    projected = left.T @ (y - y_mean)
    size = max(float(np.mean(np.sum(x**2, axis=0))), np.finfo(float).tiny)
    best, weights = np.inf, np.zeros((y.shape[1], x.shape[1]))
    for penalty in PENALTIES * size:
        shrunk = values**2 / (values**2 + penalty)
        residuals = y - y_mean - left @ (shrunk[:, None] * projected)
        leverage = np.minimum(np.einsum("ni,i,ni->n", left, shrunk, left) + 1 / len(x), 1 - 1e-6)
        error = np.mean((residuals / (1 - leverage)[:, None]) ** 2)
        if error < best:
            best = error
            scaled = (values / (values**2 + penalty))[:, None] * projected
            weights = (right.T @ scaled).T
    return np.column_stack([y_mean - weights @ x_mean, weights])


Batch = tuple[Numbers, Numbers]
Report = Callable[[float], None]
"""Callback that receives the evidence after each sweep."""

STEADY = 3
"""Consecutive small changes after which a fit ends."""

LOCAL_TOLERANCE = 1e-4
"""Relative change of the evidence below which the rows of a batch are left as they are."""


@dataclass(frozen=True)
class Schedule:
    """Number of sweeps and step sizes of a fit."""

    sweeps: int = 500  # maximal number of sweeps, or batches
    # Relative change of the evidence that counts as none; 0: the fit goes on until the last sweep.
    tolerance: float = 1e-5
    em: bool = False  # whether a hyperparameter of the global scales is fitted
    # ``k`` of the steps ``(1 + t / delay)**-k`` of batch t, between 1/2 and 1; 0: the step is 1.
    forgetting: float = 0.75
    delay: float = 100.0  # batches before steps are much shorter than 1
    local_sweeps: int = 40  # most updates of the rows of a batch before those of weights and noise


@dataclass(frozen=True)
class Fitted:
    """Result of a fit."""

    network: NetworkPrior  # the prior, changed by EM steps if there were any
    layers: tuple[LayerFactors, ...]
    history: Numbers  # the evidence after each sweep
    evidence: float  # the last value; of noisy ones the average of the last tenth


def ascend(
    network: NetworkPrior,
    batches: Iterable[Batch],
    n_obs: int,
    start: LayerStart,
    schedule: Schedule,
    rng: np.random.Generator,
    report: Report,
) -> Fitted:
    r"""Natural gradients (Algorithm 4), one step for each batch of rows (x, y).

    Natural parameters of weights and of noise, :math:`\beta`, are averaged with the step :math:`(1
    + t/d)^{-k}`. (The paper averages :math:`1/\beta`, and its :math:`d = 1` makes steps so small
    that a fit stops early.) With k = 0 and the same batch of all rows each time, whose gates go on
    from where they are, this is coordinate ascent (Algorithm 1).
    """
    layers: list[LayerFactors] = []
    history: list[float] = []
    gates, rows = list[GateFactors](), None
    for x, y in islice(batches, schedule.sweeps):
        layers = layers or start_layers(network, x, y, start, rng, n_obs)
        if x is not rows:
            gates, rows = forward_gates(network, layers, x), x
        layers = [update_scales(*pair) for pair in zip(network.layers, layers, strict=True)]
        gates, sums = _settled_rows(network, layers, x, y, gates, n_obs, schedule.local_sweeps)
        step = (1 + (len(history) + 1) / schedule.delay) ** -schedule.forgetting
        layers = update_layers(network, layers, sums, step)
        network = em_step(network, layers) if schedule.em else network
        history.append(elbo(network, layers, sums))
        report(history[-1])
        if is_steady(history, schedule.tolerance):
            break
    if not layers:
        raise ValueError("batches is empty; pass pairs of inputs and targets.")
    last = history[-max(len(history) // 10, 1) :] if schedule.forgetting else history[-1:]
    return Fitted(network, tuple(layers), np.array(history), float(np.mean(last)))


def _settled_rows(
    network: NetworkPrior,
    layers: Sequence[LayerFactors],
    x: Numbers,
    y: Numbers,
    gates: list[GateFactors],
    n_obs: int,
    local_sweeps: int,
) -> tuple[list[GateFactors], Statistics]:
    """Update the rows of a batch until the evidence is steady, and sum as if over all rows."""
    before = -np.inf
    for left in reversed(range(local_sweeps)):
        gates, sums = sweep_rows(network, layers, x, y, gates)
        sums = sums * (n_obs / len(x))
        now = elbo(network, layers, sums) if left else np.nan
        if abs(now - before) < LOCAL_TOLERANCE * abs(now):
            break
        before = now
    return gates, sums


def is_steady(history: Sequence[float], tolerance: float) -> bool:
    """Whether the last relative changes are all below a tolerance."""
    last = np.asarray(history[-STEADY - 1 :])
    if len(last) <= STEADY:
        return False
    return bool(np.all(np.abs(np.diff(last)) < tolerance * np.abs(last[1:])))


def random_batches(
    x: Numbers, y: Numbers, batch_size: int, rng: np.random.Generator
) -> Iterable[Batch]:
    """Batches of rows of x and y without end, each row once before any comes again."""
    while True:
        order = rng.permutation(len(x))
        for first in range(0, len(x) - len(x) % batch_size or len(x), batch_size):
            rows = np.sort(order[first : first + batch_size])
            yield x[rows], y[rows]


def elbo(network: NetworkPrior, layers: Sequence[LayerFactors], sums: Statistics) -> float:
    """Evidence lower bound of ``log p(y)`` (Appendix B, corrected), given the present sums."""
    rows = sum(
        _of_rows(layer, seen, sums.n_obs, network.temperature)
        for layer, seen in zip(layers, sums.layers, strict=True)
    )
    priors = sum(
        _of_weights(prior, layer) + _of_noise(prior, layer)
        for prior, layer in zip(network.layers, layers, strict=True)
    )
    return float(sums.entropy + rows + priors)


def _of_rows(layer: LayerFactors, seen: LayerStatistics, n_obs: float, temperature: float) -> float:
    """Expected log densities of the layer's values and gates, without the logs of the noise."""
    errors = layer.noise_precision @ squared_error(layer, seen)
    gates = np.sum(layer.mean * seen.lean) / temperature
    doubt = np.sum(np.broadcast_to(seen.doubt, layer.second.shape) * layer.second)
    constants = n_obs * len(layer.mean) * LOG_2PI
    return float(-0.5 * (errors + constants) + gates - 0.5 * doubt / temperature**2)


def _of_weights(prior: LayerPrior, layer: LayerFactors) -> float:
    """Weights and scales, relative to their priors, without the logs of the scales."""
    expected = np.sum(prior_precision(prior, layer) * layer.squares)
    logs = np.log(prior.bias_var).sum() + np.log(prior.weight_var).sum()
    value = 0.5 * (layer.log_det.sum() + layer.mean.size - logs - expected)
    for law, its_prior in ((layer.tau, prior.tau), (layer.psi, prior.psi)):
        if law is not None and its_prior is not None:
            value -= relative_entropy(law, its_prior)
    return float(value)


def _of_noise(prior: LayerPrior, layer: LayerFactors) -> float:
    """Noise relative to its prior, with the expected logs of all that it is the noise of."""
    a, b = layer.alpha, layer.beta
    own = scipy.special.gammaln(a) - a * np.log(b) + a
    return float(
        np.sum(
            prior.alpha * np.log(prior.beta)
            - scipy.special.gammaln(prior.alpha)
            - prior.beta * a / b
            + own
        )
    )


LEAST_DELTA2 = 1e-12
"""Least ``delta^2`` that an EM step may give: without a limit it collapses to zero."""


def prior_precision(prior: LayerPrior, layer: LayerFactors) -> Numbers:
    """Expected prior precisions of biases and weights, shape (units, 1 + fan_in)."""
    weights = 1 / prior.weight_var
    if layer.tau is not None and layer.psi is not None:
        weights = weights * layer.tau.mean_inverse * layer.psi.mean_inverse
    return np.column_stack([1 / prior.bias_var, weights])


def update_weights(
    prior: LayerPrior,
    layer: LayerFactors,
    sums: LayerStatistics,
    temperature: float,
    step: float = 1.0,
) -> LayerFactors:
    r"""Update the laws of the rows of weights, eq. (16).

    .. math::

        B^{-1} = D^{-1} + \sum_n (\bar w/T^2 + \bar e\rho) E[\tilde a\tilde a^T], \qquad
        B^{-1} m = \sum_n \{\bar e\rho E[a\tilde a] + (\rho - \tfrac12)/T\, E[\tilde a]\}

    The step is the share of the new natural parameters in the result.
    """
    e = layer.noise_precision
    precision = e[:, None, None] * sums.seen + sums.doubt / temperature**2
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] += prior_precision(prior, layer)
    shift = e[:, None] * sums.product + sums.lean / temperature
    if step < 1:
        precision = (1 - step) * layer.precision + step * precision
        shift = (1 - step) * layer.shift + step * shift
    mean, cov, log_det = gaussian_rows(precision, shift)
    return replace(layer, precision=precision, shift=shift, mean=mean, cov=cov, log_det=log_det)


def squared_error(layer: LayerFactors, sums: LayerStatistics) -> Numbers:
    r"""Sum over rows of :math:`E[(a - \gamma z)^2]`, or of :math:`E[(y - z)^2]`, shape (units,).

    The printed eq. (15) leaves out the covariance of ``z`` and ``a``, and the evidence falls.
    """
    explained = 2 * np.einsum("dj,dj->d", layer.mean, sums.product)
    fitted = np.einsum("dij,dij->d", np.broadcast_to(sums.seen, layer.second.shape), layer.second)
    return np.maximum(sums.squares - explained + fitted, 0)


def update_noise(
    prior: LayerPrior, layer: LayerFactors, sums: LayerStatistics, step: float = 1.0
) -> LayerFactors:
    r"""Update the laws of the noise variances, eq. (15), corrected; the step is that of ``beta``.

    :math:`\beta = \beta_0 + \tfrac12 \sum_n E[(a - \gamma z)^2]`; :math:`\alpha` never changes.
    """
    beta = prior.beta + 0.5 * squared_error(layer, sums)
    return replace(layer, beta=(1 - step) * layer.beta + step * beta)


def update_scales(prior: LayerPrior, layer: LayerFactors) -> LayerFactors:
    r"""Update the laws of the global scale and then of the local ones, eqs (13) and (14).

    :math:`\hat\delta^2_\tau = \delta^2 + \sum E[\psi^{-1}] E[W^2]` and :math:`\hat\delta^2_\psi =
    \delta^2 + E[\tau^{-1}] E[W^2]`.
    """
    if prior.tau is None or prior.psi is None or layer.psi is None:
        return layer
    squares = layer.squares[:, 1:] / prior.weight_var
    total = prior.tau.delta2 + np.sum(layer.psi.mean_inverse * squares)
    tau = GIG(prior.tau.nu - squares.size / 2, np.maximum(total, SMALLEST), prior.tau.lambda2)
    local = prior.psi.delta2 + tau.mean_inverse * squares
    psi = GIG(prior.psi.nu - 0.5, np.maximum(local, SMALLEST), prior.psi.lambda2)
    return replace(layer, tau=tau, psi=psi)


def update_layers(
    network: NetworkPrior, layers: Sequence[LayerFactors], sums: Statistics, step: float = 1.0
) -> list[LayerFactors]:
    """Update weights and then noise of all layers."""
    new = []
    for prior, layer, seen in zip(network.layers, layers, sums.layers, strict=True):
        layer = update_weights(prior, layer, seen, network.temperature, step)
        new.append(update_noise(prior, layer, seen, step))
    return new


def em_step(network: NetworkPrior, layers: Sequence[LayerFactors]) -> NetworkPrior:
    r"""Set one hyperparameter of the global scales to what maximises the evidence.

    It is :math:`\delta` of inverse gamma laws, :math:`\lambda` of gamma and inverse Gaussian ones:

    .. math::

        \delta^2 = \frac{-2 \nu (L+1)}{\sum_l E[\tau_l^{-1}]}, \qquad
        \lambda^2 = \frac{2 \nu (L+1)}{\sum_l E[\tau_l]}, \qquad
        \lambda = \frac{\delta (L+1)}{\sum_l E[\tau_l]}.

    (The paper's last one is twice this.)
    """
    prior = shared_law(network)
    laws = [layer.tau for layer in layers if layer.tau is not None]
    if np.all(prior.lambda2 == 0):
        delta2 = -2 * prior.nu / np.mean([law.mean_inverse for law in laws])
        new = GIG(prior.nu, np.maximum(delta2, LEAST_DELTA2), prior.lambda2)
    else:
        mean = np.mean([law.mean for law in laws])
        is_gamma = np.all(prior.delta2 == 0)
        lambda2 = 2 * prior.nu / mean if is_gamma else prior.delta2 / mean**2
        new = GIG(prior.nu, prior.delta2, np.asarray(lambda2))
    changed = tuple(replace(layer, tau=new) for layer in network.layers)
    return replace(network, layers=changed)


def shared_law(network: NetworkPrior) -> GIG:
    """The law of all global scales, if an EM step can change it."""
    laws = [layer.tau for layer in network.layers if layer.tau is not None]
    if len(laws) < len(network.layers):
        raise NotConjugate(
            "em=True fits priors of global scales, but the network has none; leave em out"
        )
    first = laws[0]
    if any(
        (law.nu, law.delta2, law.lambda2) != (first.nu, first.delta2, first.lambda2) for law in laws
    ):
        raise NotConjugate(
            "em=True fits one prior of global scales for all layers, but the priors of this "
            "network differ"
        )
    if first.delta2 > 0 and first.lambda2 > 0 and first.nu != -0.5:
        raise NotConjugate(
            "em=True fits inverse gamma, gamma and inverse Gaussian priors of global scales; these "
            f"have a generalised inverse Gaussian prior with nu={first.nu:g} and both delta and "
            "lambda"
        )
    return first

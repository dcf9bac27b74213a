r"""Updates of the laws that all rows share: weights, noise, scales, and EM steps.

Each is a function of the sums over rows (:class:`~pymc_nnsteps.variational.rows.Statistics`) and
of the other laws, and never lowers the evidence.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.variational.factors import (
    GIG,
    SMALLEST,
    LayerFactors,
    LayerPrior,
    NetworkPrior,
    gaussian_rows,
)
from pymc_nnsteps.variational.rows import LayerStatistics, Statistics

Numbers = NDArray[np.float64]

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

    The printed eq. (15) leaves out the covariance of ``z`` and ``a`` in hidden layers after the
    first, which are a part of ``sums.product`` here; without them the evidence falls.
    """
    explained = 2 * np.einsum("dj,dj->d", layer.mean, sums.product)
    fitted = np.einsum("dij,dij->d", np.broadcast_to(sums.seen, layer.second.shape), layer.second)
    return np.maximum(sums.squares - explained + fitted, 0)


def update_noise(
    prior: LayerPrior, layer: LayerFactors, sums: LayerStatistics, step: float = 1.0
) -> LayerFactors:
    r"""Update the laws of the noise variances, eq. (15), corrected.

    :math:`\beta = \beta_0 + \tfrac12 \sum_n E[(a - \gamma z)^2]`; :math:`\alpha` never changes. The
    step is the share of the new ``beta``. (The paper averages its inverse, which is not the natural
    parameter.)
    """
    beta = prior.beta + 0.5 * squared_error(layer, sums)
    return replace(layer, beta=(1 - step) * layer.beta + step * beta)


def update_scales(prior: LayerPrior, layer: LayerFactors) -> LayerFactors:
    r"""Update the laws of the global scale and then of the local ones, eqs (13) and (14).

    :math:`\hat\delta^2_\tau = \delta^2 + \sum E[\psi^{-1}] E[W^2]` and
    :math:`\hat\delta^2_\psi = \delta^2 + E[\tau^{-1}] E[W^2]`; their orders are those of the prior
    less half the number of weights, and 1/2.
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
            "the network has no global scales, which em=True is to fit; leave it out"
        )
    first = laws[0]
    if any(
        (law.nu, law.delta2, law.lambda2) != (first.nu, first.delta2, first.lambda2) for law in laws
    ):
        raise NotConjugate("em=True fits one law for the global scales of all layers; they differ")
    if first.delta2 > 0 and first.lambda2 > 0 and first.nu != -0.5:
        raise NotConjugate(
            "em=True knows the global scales' laws inverse gamma, gamma and inverse Gaussian; "
            f"theirs is of order {first.nu:g} with both delta and lambda"
        )
    return first

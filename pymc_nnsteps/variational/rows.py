r"""Local variables of each row of the data: activations, gates and Polya-Gamma variables.

Given the laws of weights and noise these are updated row by row, and what the weights need to
know of the rows are sums over these, :class:`Statistics`. With :math:`\rho = E[\gamma]`,
:math:`\bar w = E[\omega]`, :math:`\bar e = E[\eta^{-2}]`, :math:`\mu` and :math:`C` the mean and
covariance of activations, and :math:`X_l = \text{Cov}(a_{l-1}, a_l)`:

- :func:`activations`, eq. (19): a Gaussian chain through the layers, by a backward recursion of
  its precisions and a forward pass of its moments;
- :func:`update_gates`, eqs (17) and (18), from
  :math:`\bar z = m\tilde\mu`, :math:`V = E[z^2]` and :math:`c^\times = E[za] - \bar z\mu`.

One hidden layer has one covariance for all rows; with more, every row has its own, and rows are
taken in chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from operator import add
from typing import Self

import numpy as np
import scipy
from numpy.typing import NDArray

from pymc_nnsteps.variational.factors import LayerFactors, NetworkPrior, inverse

Numbers = NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))
CHUNK_NUMBERS = 2_000_000
"""Numbers in the largest array of a chunk of rows."""

CERTAIN = 650.0
"""Largest logit of a gate: beyond it probabilities are subnormal numbers, and products slow."""


@dataclass(frozen=True)
class GateFactors:
    """Laws of the gates of one hidden layer and of the variables that make them Gaussian."""

    logit: Numbers  # shape (n_obs, units): of the probability ``rho`` that a gate is open
    tilt: Numbers  # shape (n_obs, units): ``A``: the Polya-Gamma law is PG(1, A)

    def __getitem__(self, rows: slice) -> "GateFactors":
        """The same of some of the rows."""
        return GateFactors(self.logit[rows], self.tilt[rows])

    @classmethod
    def of(cls, logit: Numbers, second: Numbers, temperature: float) -> Self:
        """Laws of gates with these logits and second moments of ``z``."""
        return cls(np.clip(logit, -CERTAIN, CERTAIN), np.sqrt(second) / temperature)


@dataclass(frozen=True)
class Activations:
    """Moments of the activations of one layer, the inputs being layer 0."""

    mean: Numbers  # shape (n_obs, units)
    # shape (n_obs or 1, units, units), or None: none: the layer is known, as the inputs are.
    cov: Numbers | None = None
    # shape (n_obs, fan_in, units), or None: covariance with the layer before; None: that layer is
    # known.
    cross: Numbers | None = None
    # shape (n_obs or 1,): log determinant of the conditional covariance given the layer before.
    log_det: Numbers = field(default_factory=lambda: np.zeros(1))

    @cached_property
    def second(self) -> Numbers:
        """Second moments of ``(1, a)``, as of :func:`_outer`."""
        return _outer(self.mean, self.cov)


@dataclass(frozen=True)
class LayerStatistics:
    r"""Sums over rows from which the laws of a layer's weights and noise are updated."""

    # shape (units or 1, 1 + fan_in, 1 + fan_in): :math:`\sum \rho\, E[\tilde a \tilde a^T]`, of the
    # output layer without :math:`\rho`.
    seen: Numbers
    # shape (units or 1, 1 + fan_in, 1 + fan_in): :math:`\sum \bar w\, E[\tilde a \tilde a^T]`; zero
    # of the output layer.
    doubt: Numbers
    # shape (units, 1 + fan_in): :math:`\sum \rho\, E[a\, \tilde a^T]`; of the output layer
    # :math:`\sum y\, E[\tilde a^T]`.
    product: Numbers
    # shape (units, 1 + fan_in): :math:`\sum (\rho - 1/2) E[\tilde a^T]`; zero of the output layer.
    lean: Numbers
    squares: Numbers  # shape (units,): :math:`\sum E[a^2]`; of the output layer :math:`\sum y^2`

    def __add__(self, other: Self) -> Self:
        """Sums over the rows of both."""
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: float) -> Self:
        """Sums over as many times the rows."""
        return type(self)(*(factor * getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Statistics:
    """Sums over rows, of all layers."""

    n_obs: float  # number of rows
    # Sum of what the evidence has of each row beside expectations that weights and noise enter:
    # entropies of activations and gates, and constants of the Polya-Gamma laws.
    entropy: float
    layers: tuple[LayerStatistics, ...]  # hidden layers and the output layer

    def __add__(self, other: "Statistics") -> "Statistics":
        """Sums over the rows of both."""
        layers = (a + b for a, b in zip(self.layers, other.layers, strict=True))
        return Statistics(self.n_obs + other.n_obs, self.entropy + other.entropy, tuple(layers))

    def __mul__(self, factor: float) -> "Statistics":
        """Sums over as many times the rows."""
        layers = tuple(layer * factor for layer in self.layers)
        return Statistics(factor * self.n_obs, factor * self.entropy, layers)


def _polya_gamma(tilt: Numbers) -> tuple[Numbers, Numbers]:
    """Means of PG(1, A), ``tanh(A/2) / (2 A)``, and logs of ``1 + exp(-A)``."""
    safe = np.maximum(tilt, 1e-8)
    less = np.expm1(-safe)
    both = 2 + less
    return -less / (both * (2 * safe)), np.log(both)


def _open(logit: Numbers) -> tuple[Numbers, Numbers]:
    """Probabilities of open gates, and their entropies."""
    size = np.abs(logit)
    small = np.exp(-size)
    minor = small / (1 + small)
    return np.where(logit > 0, 1 - minor, minor), np.log1p(small) + size * minor


def forward_gates(
    network: NetworkPrior, layers: Sequence[LayerFactors], x: Numbers
) -> list[GateFactors]:
    """Laws of gates from a pass of the means through the network, as if there were no targets."""
    gates = []
    for layer in layers[:-1]:
        z, second = pre_activations(layer, Activations(x))
        gates.append(GateFactors.of(z / network.temperature, second, network.temperature))
        x = scipy.special.expit(gates[-1].logit) * z
    return gates


def activations(
    network: NetworkPrior,
    layers: Sequence[LayerFactors],
    x: Numbers,
    y: Numbers | None,
    gates: Sequence[GateFactors],
) -> list[Activations]:
    r"""Update the laws of the activations, eq. (19), given rows x and y (or None) of targets.

    With :math:`R_n = \text{diag}(\bar e\rho_n) E[W]` of the layer above, of covariance
    :math:`S_{l+1}`, the precision of a layer given the one before is :math:`\text{diag}(\bar e_l) +
    \sum_d c_d E[W_d^T W_d] - R^T S_{l+1} R`, :math:`c = \bar e\rho + \bar w/T^2`.
    """
    T, n_obs = network.temperature, len(x)
    depth = network.depth
    shifts: list[Numbers] = [np.empty(0)] * depth
    covs, log_dets, slopes = list(shifts), list(shifts), list(shifts)
    # From the top down: the law of each layer given the one before.
    for index in reversed(range(depth)):
        own, above = layers[index], layers[index + 1]
        units = len(own.mean)
        e, e_above, W = own.noise_precision, above.noise_precision, above.mean[:, 1:]
        precision = np.zeros((1, units, units))
        shift: Numbers = np.zeros((n_obs, units))
        if index < depth - 1:
            rho = scipy.special.expit(gates[index + 1].logit)
            weight = e_above * rho + _polya_gamma(gates[index + 1].tilt)[0] / T**2
            R = (e_above * rho)[:, :, None] * W
            slope = covs[index + 1] @ R
            explained = R.transpose(0, 2, 1) @ slope
            precision = weight @ above.second[:, 1:, 1:].reshape(len(W), -1)
            precision = precision.reshape(n_obs, units, units) - explained
            t = _apply(covs[index + 1], shifts[index + 1] + e_above * rho * above.mean[:, 0])
            shift = _apply(R.transpose(0, 2, 1), t) + ((rho - 0.5) / T) @ W
            shift -= weight @ above.second[:, 0, 1:]
            slopes[index + 1] = slope
        elif y is not None:
            precision = np.einsum("d,dij->ij", e_above, above.second[:, 1:, 1:])[None]
            shift = (e_above * y) @ W - e_above @ above.second[:, 0, 1:]
        precision = precision + np.diag(e)
        covs[index], log_dets[index] = inverse(precision)
        shifts[index] = shift

    # From the bottom up: means, covariances and those with the layer before.
    chain = [Activations(x)]
    for index in range(depth):
        own, before = layers[index], chain[-1]
        z = before.mean @ own.mean[:, 1:].T + own.mean[:, 0]
        drive = own.noise_precision * scipy.special.expit(gates[index].logit) * z
        mean = _apply(covs[index], shifts[index] + drive)
        cov, cross = covs[index], None
        if before.cov is not None:
            cross = before.cov @ slopes[index].transpose(0, 2, 1)
            cov = cov + slopes[index] @ cross
        chain.append(Activations(mean, cov, cross, log_dets[index]))
    return chain


def update_gates(
    network: NetworkPrior, layers: Sequence[LayerFactors], chain: Sequence[Activations]
) -> list[GateFactors]:
    r"""Update the laws of gates and Polya-Gamma variables, eqs (17) and (18).

    :math:`A = \sqrt V / T` and :math:`\operatorname{logit} \rho = \bar e(\bar z\mu + c^\times -
    V/2) + \bar z/T`. The chain has the inputs and the hidden layers.
    """
    T = network.temperature
    gates = []
    for layer, before, own in zip(layers, chain, chain[1:], strict=False):
        z, second = pre_activations(layer, before)
        product = z * own.mean
        if own.cross is not None:
            product += np.einsum("dj,njd->nd", layer.mean[:, 1:], own.cross)
        logit = layer.noise_precision * (product - 0.5 * second) + z / T
        gates.append(GateFactors.of(logit, second, T))
    return gates


def pre_activations(layer: LayerFactors, before: Activations) -> tuple[Numbers, Numbers]:
    """First and second moments of ``z``, shape (n_obs, units); the latter at least the square."""
    z = before.mean @ layer.mean[:, 1:].T + layer.mean[:, 0]
    second = np.ascontiguousarray((_weights(layer) @ before.second).T)
    return z, np.maximum(second, z**2, out=second)


def statistics(
    network: NetworkPrior,
    chain: Sequence[Activations],
    gates: Sequence[GateFactors],
    y: Numbers,
) -> Statistics:
    """Sum over rows what the weights and the noise need to know."""
    n_obs = len(y)
    layers, entropy = [], 0.0
    for before, own, gate in zip(chain, chain[1:], gates, strict=False):
        (rho, uncertain), (omega, log_both) = _open(gate.logit), _polya_gamma(gate.tilt)
        units, width = rho.shape[1], before.mean.shape[1] + 1
        sums = np.hstack([rho, omega]).T @ before.second.T
        seen, doubt = np.split(_symmetric(sums, width), 2)
        product = _with_ones((rho * own.mean).T, before.mean)
        if own.cross is not None:
            product[:, 1:] += np.einsum("nd,njd->dj", rho, own.cross)
        squares = (own.mean**2).sum(axis=0) + np.diag(_summed(own.cov, n_obs))
        lean = _with_ones((rho - 0.5).T, before.mean)
        layers.append(LayerStatistics(seen, doubt, product, lean, squares))
        entropy += 0.5 * units * n_obs * (1 + LOG_2PI)
        entropy += 0.5 * n_obs * float(np.mean(own.log_det))
        # log 2 + log cosh(A/2) is A/2 + log(1 + exp(-A)).
        squares_of_tilts = np.einsum("nd,nd,nd->", gate.tilt, gate.tilt, omega)
        entropy += uncertain.sum() - log_both.sum()
        entropy += 0.5 * (squares_of_tilts - gate.tilt.sum())
    last = chain[-1]
    width = last.mean.shape[1] + 1
    seen = np.empty((1, width, width))
    seen[0, 0] = np.append(n_obs, last.mean.sum(axis=0))
    seen[0, :, 0] = seen[0, 0]
    seen[0, 1:, 1:] = last.mean.T @ last.mean + _summed(last.cov, n_obs)
    product = _with_ones(y.T, last.mean)
    zero = np.zeros_like(product)
    outputs = LayerStatistics(seen, np.zeros_like(seen), product, zero, np.einsum("nd,nd->d", y, y))
    return Statistics(float(n_obs), float(entropy), (*layers, outputs))


def sweep_rows(
    network: NetworkPrior,
    layers: Sequence[LayerFactors],
    x: Numbers,
    y: Numbers,
    gates: Sequence[GateFactors],
) -> tuple[list[GateFactors], Statistics]:
    """Update the laws of all that belongs to rows, once, in chunks of rows."""
    parts, sums = [], []
    for rows in chunks(network, len(x)):
        chain = activations(network, layers, x[rows], y[rows], [gate[rows] for gate in gates])
        parts.append(update_gates(network, layers, chain))
        sums.append(statistics(network, chain, parts[-1], y[rows]))
    joined = [
        GateFactors(np.concatenate([g.logit for g in of]), np.concatenate([g.tilt for g in of]))
        for of in zip(*parts, strict=True)
    ]
    return joined, reduce(add, sums)


def chunks(network: NetworkPrior, n_obs: int, copies: int = 1) -> list[slice]:
    """Rows that are taken at once, of whose arrays there are so many copies."""
    largest = 1
    for index, layer in enumerate(network.layers):
        units, fan_in = layer.shape
        pairs = (fan_in + 1) * (fan_in + 2) // 2 if index < network.depth else 1
        largest = max(largest, units, pairs)
        if network.depth > 1:
            largest = max(largest, fan_in * fan_in, units * fan_in)
    size = max(CHUNK_NUMBERS // (largest * copies), 1)
    return [slice(first, first + size) for first in range(0, n_obs, size)]


def _apply(matrices: Numbers, vectors: Numbers) -> Numbers:
    """Products of each vector with its matrix, or with the one there is."""
    if len(matrices) == 1:
        return vectors @ matrices[0].T
    return np.einsum("nij,nj->ni", matrices, vectors)


def _with_ones(rows: Numbers, x: Numbers) -> Numbers:
    """``rows @ (1, x)``."""
    return np.column_stack([rows.sum(axis=1), rows @ x])


def _summed(cov: Numbers | None, n_obs: int) -> Numbers:
    """Sum of covariances over all rows."""
    if cov is None:
        return np.zeros((1, 1))
    return n_obs * cov[0] if len(cov) == 1 else cov.sum(axis=0)


def _outer(x: Numbers, cov: Numbers | None) -> Numbers:
    """Second moments of ``(1, x)``, shape (pairs, n_obs), of the entries (i, j) with i <= j."""
    n_obs, width = x.shape
    columns = np.ascontiguousarray(x.T)
    out = np.empty(((width + 1) * (width + 2) // 2, n_obs))
    out[0] = 1
    out[1 : width + 1] = columns
    first = width + 1
    for i in range(width):
        last = first + width - i
        np.multiply(columns[i], columns[i:], out=out[first:last])
        if cov is not None:
            out[first:last] += cov[:, i, i:].T
        first = last
    return out


def _weights(layer: LayerFactors) -> Numbers:
    """Factors of :func:`_outer` that give second moments of ``z``."""
    rows, columns = np.triu_indices(layer.mean.shape[1])
    factor = np.where(rows == columns, 1.0, 2.0)
    return factor * layer.second[:, rows, columns]


def _symmetric(sums: Numbers, width: int) -> Numbers:
    """Matrices from their entries (i, j) with i <= j."""
    rows, columns = np.triu_indices(width)
    position = np.empty((width, width), dtype=int)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    return sums[:, position]

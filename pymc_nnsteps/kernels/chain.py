"""All layers of activations at once (:mod:`pymc_nnsteps.moves.chain`)."""

from typing import NamedTuple

import numpy as np

from pymc_nnsteps.kernels.jit import inline, jit
from pymc_nnsteps.kernels.linear_algebra import (
    TOO_PRECISE,
    Array,
    copy,
    factorise,
    is_rounding,
    put,
    solve,
    solve_rows_transposed,
    solve_transposed,
    weighted_gram,
)


class LayerSizes[Of](NamedTuple):
    """Units of each layer and rows of its design, shape (L,); arrays are larger than these."""

    widths: Of
    counts: Of


class Layers[Of](NamedTuple):
    """Each layer given the one below it."""

    # prior, offset of shape (L, n_obs, d): the diagonal of ``Lambda``, and ``o``.
    prior: Of
    offset: Of
    transition: Of  # shape (L, d, d): ``T``; that of the first layer is not looked at
    gain: Of  # shape (L, n_obs, d): ``g``


class LayerObservations[Of](NamedTuple):
    """What else is said of each layer."""

    design: Of  # shape (L, m, d): ``C``
    weight: Of  # shape (L, n_obs, m): ``w``
    linear: Of  # shape (L, n_obs, d): ``s``


@inline
def add_layer_above(
    layers: Layers, above: int, sample: int, factor: Array, told: Array, linear: Array, gram: Array
) -> Array:
    """Add what the layer above tells, given its ``P`` and ``h``; return ``R^T P^{-1} R``."""
    width, d = len(factor), len(gram)
    prior, offset = layers.prior[above, sample], layers.offset[above, sample]
    gain = layers.gain[above, sample]
    known, direct = np.empty(width, gram.dtype), np.empty(width, gram.dtype)
    for i in range(width):
        known[i] = told[i] + prior[i] * offset[i]
    solve_transposed(factor, known)
    solve(factor, known)
    step = layers.transition[above, :width, :d]
    whitened = np.empty((width, d), gram.dtype)
    for i in range(width):
        slope = prior[i] * gain[i]
        shift = slope * (known[i] - offset[i])
        direct[i] = slope * gain[i]
        for j in range(d):
            linear[j] += shift * step[i, j]
            whitened[i, j] = slope * step[i, j]
    solve_rows_transposed(factor, whitened)
    gram += weighted_gram(step, direct)
    lost = np.dot(whitened.T, whitened)
    gram -= lost
    return lost


@inline
def add_mean(layers: Layers, layer: int, sample: int, below: Array, linear: Array) -> None:
    """Add ``Lambda (o + diag(g) T a)`` with the layer below, which the first has not."""
    for j in range(len(linear)):
        mean = float(layers.offset[layer, sample, j])
        if layer > 0:
            carried = 0.0
            for k in range(len(below)):
                carried += layers.transition[layer, j, k] * below[k]
            mean += layers.gain[layer, sample, j] * carried
        linear[j] += layers.prior[layer, sample, j] * mean


@jit
def draw_chain(sizes: LayerSizes, layers: Layers, seen: LayerObservations, noise: Array) -> Array:
    r"""Draw the layers of a chain jointly, sample by sample: backward filter, forward draw.

    At each sample, :math:`a_l \sim N(o_l + \text{diag}(g_l) T_l a_{l-1}, \Lambda_l^{-1})`, and of
    :math:`a_l` more is said by :math:`\exp(-\tfrac12 a_l^T C_l^T \text{diag}(w_l) C_l a_l
    + a_l^T s_l)`. With :math:`R_l = \Lambda_l \text{diag}(g_l) T_l`, backwards from the last layer,

    .. math::

        P_l &= \Lambda_l + C_l^T \text{diag}(w_l) C_l
               + R_{l+1}^T (\Lambda_{l+1}^{-1} - P_{l+1}^{-1}) R_{l+1}, \\
        h_l &= s_l + R_{l+1}^T (P_{l+1}^{-1} (h_{l+1} + \Lambda_{l+1} o_{l+1}) - o_{l+1}),

    and forwards :math:`a_l \sim N(P_l^{-1} (h_l + \Lambda_l (o_l + \text{diag}(g_l) T_l a_{l-1})),
    P_l^{-1})`.

    ``noise`` is standard normal, (L, n_obs, d).
    """
    n_layers, n_obs, width = noise.shape
    out = np.zeros_like(noise)
    factors = np.zeros((n_layers, width, width), noise.dtype)
    for n in range(n_obs):
        # Backwards: h, which the draw then takes the place of, and the factor of P.
        finite = True
        for layer in range(n_layers - 1, -1, -1):
            d, m = sizes.widths[layer], sizes.counts[layer]
            gram = weighted_gram(seen.design[layer, :m, :d], seen.weight[layer, n, :m])
            linear = out[layer, n, :d]
            copy(seen.linear[layer, n, :d], linear)
            lost = np.zeros((d, d), noise.dtype)
            if layer + 1 < n_layers:
                w = sizes.widths[layer + 1]
                told, factor = out[layer + 1, n, :w], factors[layer + 1, :w, :w]
                lost = add_layer_above(layers, layer + 1, n, factor, told, linear, gram)
            size, root = np.empty(d, noise.dtype), np.empty(d, noise.dtype)
            for j in range(d):
                gram[j, j] += layers.prior[layer, n, j]
                size[j] = gram[j, j] + lost[j, j]
            finite = finite and factorise(gram)
            for j in range(d):
                root[j] = gram[j, j]
            if is_rounding(size, root):
                raise np.linalg.LinAlgError(TOO_PRECISE)
            put(gram, factors[layer], 0, 0)
        # Forwards: each layer given the one below.
        for layer in range(n_layers):
            d, below = sizes.widths[layer], max(layer - 1, 0)
            row, factor = out[layer, n, :d], factors[layer, :d, :d]
            add_mean(layers, layer, n, out[below, n, : sizes.widths[below]], row)
            solve_transposed(factor, row)
            row += noise[layer, n, :d]
            solve(factor, row)
            if not finite:
                row[:] = np.nan
    return out

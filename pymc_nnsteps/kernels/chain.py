"""All layers of activations at once (:mod:`pymc_nnsteps.moves.chain`)."""

import numpy as np

from pymc_nnsteps.kernels.jit import jit
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


@jit
def draw_chain(
    widths: Array,
    counts: Array,
    prior: Array,
    offset: Array,
    design: Array,
    weight: Array,
    linear: Array,
    transition: Array,
    gain: Array,
    noise: Array,
) -> Array:
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

    Parameters
    ----------
    widths, counts : array of int, shape (L,)
        Units of each layer and rows of its design. Beyond them the arrays are not looked at.
    prior, offset, linear, noise : array, shape (L, n_obs, d)
        The diagonal of ``Lambda``, ``o``, ``s`` and standard normals.
    design : array, shape (L, m, d)
    weight : array, shape (L, n_obs, m)
    transition : array, shape (L, d, d)
        Those of the first layer are not looked at.
    gain : array, shape (L, n_obs, d)
        ``g``.
    """
    n_layers, n_obs, width = prior.shape
    out = np.zeros_like(noise)
    factors = np.zeros((n_layers, width, width), prior.dtype)
    vector, direct = np.zeros(width, prior.dtype), np.zeros(width, prior.dtype)
    size, root = np.zeros(width, prior.dtype), np.zeros(width, prior.dtype)
    for n in range(n_obs):
        finite = True
        for layer in range(n_layers - 1, -1, -1):
            d, m = widths[layer], counts[layer]
            gram = weighted_gram(design[layer, :m, :d], weight[layer, n, :m])
            linear_part = out[layer, n, :d]
            copy(linear[layer, n, :d], linear_part)
            lost = np.zeros((d, d), prior.dtype)
            if layer + 1 < n_layers:
                above = widths[layer + 1]
                known = vector[:above]
                for i in range(above):
                    known[i] = (
                        out[layer + 1, n, i] + prior[layer + 1, n, i] * offset[layer + 1, n, i]
                    )
                upper = factors[layer + 1, :above, :above]
                solve_transposed(upper, known)
                solve(upper, known)
                step = transition[layer + 1, :above, :d]
                whitened = np.empty((above, d), prior.dtype)
                for i in range(above):
                    slope = prior[layer + 1, n, i] * gain[layer + 1, n, i]
                    shift = slope * (known[i] - offset[layer + 1, n, i])
                    direct[i] = slope * gain[layer + 1, n, i]
                    for j in range(d):
                        linear_part[j] += shift * step[i, j]
                        whitened[i, j] = slope * step[i, j]
                solve_rows_transposed(upper, whitened)
                gram += weighted_gram(step, direct[:above])
                lost = np.dot(whitened.T, whitened)
                gram -= lost
            for j in range(d):
                gram[j, j] += prior[layer, n, j]
                size[j] = gram[j, j] + lost[j, j]
            finite = finite and factorise(gram)
            for j in range(d):
                root[j] = gram[j, j]
            if is_rounding(size[:d], root[:d]):
                raise np.linalg.LinAlgError(TOO_PRECISE)
            put(gram, factors[layer], 0, 0)
        for layer in range(n_layers):
            d = widths[layer]
            row = out[layer, n, :d]
            for j in range(d):
                mean = float(offset[layer, n, j])
                if layer > 0:
                    carried = 0.0
                    for k in range(widths[layer - 1]):
                        carried += transition[layer, j, k] * out[layer - 1, n, k]
                    mean += gain[layer, n, j] * carried
                row[j] += prior[layer, n, j] * mean
            upper = factors[layer, :d, :d]
            solve_transposed(upper, row)
            row += noise[layer, n, :d]
            solve(upper, row)
            if not finite:
                row[:] = np.nan
    return out

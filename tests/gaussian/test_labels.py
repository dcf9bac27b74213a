"""Kernels of Gaussian draws with a precision per label, against joint Gaussians written out.

The oracle knows nothing of precisions, whitening or recursions: it writes all variables of one
label as an affine map of independent normals, forms their joint covariance, and conditions it.
The law of a draw is read off exactly: the noise is set to zero, then to each unit vector.
"""

from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import linalg, stats

from pymc_nnsteps.compile import linear_algebra
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian import bands, labels
from pymc_nnsteps.gaussian.bands import CHUNK
from pymc_nnsteps.moves import chain
from pymc_nnsteps.moves.loops import residual_scales, rows
from pymc_nnsteps.random import lattice

MODES = {"C": Mode(linker="py", optimizer="fast_compile"), "NUMBA": "NUMBA"}


def conditioned(mean, covariance, seen, values):
    """Mean and covariance of the other entries of a normal vector, given those that are seen."""
    rest = np.setdiff1d(np.arange(len(mean)), seen)
    known = covariance[np.ix_(seen, seen)]
    gain = linalg.solve(known, covariance[np.ix_(seen, rest)], assume_a="sym").T
    return (
        mean[rest] + gain @ (values - mean[seen]),
        covariance[np.ix_(rest, rest)] - gain @ covariance[np.ix_(seen, rest)],
    )


def posterior(mean, variance, design, noise, y):
    """Law of ``v ~ N(mean, diag(variance))`` given ``y = design v + N(0, diag(noise))``."""
    d, m = len(mean), len(y)
    root = np.block([[np.eye(d), np.zeros((d, m))], [design, np.eye(m)]])
    covariance = root @ np.diag(np.r_[variance, noise]) @ root.T
    return conditioned(root @ np.r_[mean, np.zeros(m)], covariance, d + np.arange(m), y)


def response_law(mean, variance, design, weight):
    """Law of a response of activations that are integrated out."""
    covariance = design @ np.diag(variance) @ design.T + np.diag(1 / weight)
    return stats.multivariate_normal(design @ mean, covariance)


def units(d):
    """No noise, and noise in each direction."""
    return np.vstack([np.zeros(d), np.eye(d)])


def law(drawn):
    """Mean and covariance of a draw, from its values at the noises of :func:`units`."""
    factor = drawn[1:] - drawn[0]
    return drawn[0], factor.T @ factor


def assert_same_law(found, expected, rtol=1e-9):
    """The mean in units of the standard deviation, and the covariance in units of its diagonal."""
    scale = np.sqrt(np.diag(expected[1]))
    size = max(1.0, np.abs(expected[0] / scale).max())
    np.testing.assert_allclose(found[0] / scale, expected[0] / scale, rtol=0, atol=rtol * size)
    np.testing.assert_allclose(
        found[1] / np.outer(scale, scale), expected[1] / np.outer(scale, scale), rtol=0, atol=rtol
    )


# --- factors and solves -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7])
def test_factor_and_solves(n):
    """A transposed factor, a row that is not updated, a solve in the wrong direction."""
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    matrix, vector, rows = root @ root.T + np.eye(n), rng.normal(size=n), rng.normal(size=(n, 3))
    found = matrix.copy()
    assert linear_algebra.factorise(found)
    factor = np.triu(found)
    np.testing.assert_allclose(factor.T @ factor, matrix, rtol=1e-12)
    for kernel, inverse, array in [
        (linear_algebra.solve, np.linalg.inv(factor), vector),
        (linear_algebra.solve_transposed, np.linalg.inv(factor.T), vector),
        (linear_algebra.solve_rows_transposed, np.linalg.inv(factor.T), rows),
    ]:
        solved = array.copy()
        kernel(found, solved)
        np.testing.assert_allclose(solved, inverse @ array, rtol=1e-9)


@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 2), (2, 2)])
def test_nan_is_told(place):
    """A NaN that passes the comparison with zero, or that is taken for a matrix without root."""
    matrix = np.eye(3)
    matrix[place] = np.nan
    assert not linear_algebra.factorise(matrix)


@pytest.mark.parametrize(
    "matrix", [np.zeros((2, 2)), -np.eye(2), np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]])]
)
def test_no_root(matrix):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        linear_algebra.factorise(matrix.copy())


# --- a precision matrix per label ---------------------------------------------------------------


def label_problem(rng, labels, n, d, scale=1.0):
    return {
        "design": rng.normal(size=(n, d)),
        "weight": scale * rng.gamma(1.0, size=(labels, n)),
        "mean": rng.normal(size=(labels, d)),
        "prior": rng.gamma(1.0, size=(labels, d)) + 0.1,
        "y": rng.normal(size=(labels, n)),
    }


def by_entries(p, noise, dtype):
    score = p["weight"] * p["y"]
    linear = p["prior"] * p["mean"] + score @ p["design"]
    given = p["weight"], score, linear, p["prior"], p["mean"], noise
    return labels.draw_labels(*(a.astype(dtype) for a in (p["design"], *given)))


def by_rows(p, noise, dtype):
    d = noise.shape[1] - len(p["design"])
    given = p["weight"], p["weight"] * p["y"], p["prior"], p["mean"], noise[:, d:], noise[:, :d]
    return labels.draw_few_rows(*(a.astype(dtype) for a in (p["design"], *given)))


def by_precisions(p, noise, dtype):
    design, weight = p["design"], p["weight"]
    precision = np.einsum("ni,ln,nj->lij", design, weight, design)
    precision += p["prior"][..., None] * np.eye(len(design.T))
    linear = p["prior"] * p["mean"] + (weight * p["y"]) @ design
    given = (a.astype(dtype) for a in (precision, linear, noise))
    return labels.draw_precisions(*given)[0]


WAYS = [by_entries, by_rows, by_precisions]


def draw_of_labels(p, way, noise=None, dtype="float64"):
    """Draws of each label at each row of noise, shape (labels, rows, d)."""
    if noise is None:
        noise = units(p["design"].shape[1] + (len(p["design"]) if way is by_rows else 0))
    n_labels, repeats = len(p["weight"]), len(noise)
    repeated = {
        name: array if name == "design" or len(array) < n_labels else np.repeat(array, repeats, 0)
        for name, array in p.items()
    }
    drawn = way(repeated, np.tile(noise, (n_labels, 1)), dtype)
    assert drawn.dtype == dtype
    return drawn.reshape(n_labels, repeats, -1)


# A precision matrix alone cannot tell what it has lost.
@pytest.mark.parametrize(
    ("way", "scale"), [*product(WAYS, [1e-6, 1.0]), (by_entries, 1e8), (by_rows, 1e8)]
)
@pytest.mark.parametrize(("labels", "n", "d"), [(1, 1, 1), (3, 5, 2), (2, 2, 4), (4, 1, 3)])
def test_labels(labels, n, d, scale, way):
    """Weights of another label, a variance for a precision, a prior added twice."""
    p = label_problem(np.random.default_rng(n), labels, n, d, scale)
    drawn = draw_of_labels(p, way)
    for i in range(labels):
        prior = p["mean"][i], 1 / p["prior"][i]
        expected = posterior(*prior, p["design"], 1 / p["weight"][i], p["y"][i])
        assert_same_law(law(drawn[i]), expected, 1e-9 if scale < 10 else 1e-6)


def test_few_rows_and_a_prior_that_labels_share():
    """A prior of one label that is taken for the next one's, or worked out for none."""
    p = label_problem(np.random.default_rng(3), 3, 2, 4)
    p["prior"], p["mean"] = p["prior"][:1], p["mean"][:1]
    drawn = draw_of_labels(p, by_rows)
    for i in range(3):
        rows = p["design"], 1 / p["weight"][i], p["y"][i]
        assert_same_law(law(drawn[i]), posterior(p["mean"][0], 1 / p["prior"][0], *rows))


def test_few_rows_that_contradict_each_other_lose_no_digits():
    """Large numbers that cancel, at a label beside one that is drawn as ever."""
    p = label_problem(np.random.default_rng(4), 2, 3, 4)
    p["design"][1] = p["design"][0]
    p["weight"][0] = 1e12, 2e12, 1.0
    p["y"][0, :2] = 0.7, 1.0
    drawn = draw_of_labels(p, by_rows)
    once = p["design"][[0, 2]], np.array([1 / 3e12, 1.0]), np.array([0.9, p["y"][0, 2]])
    mean, covariance = posterior(p["mean"][0], 1 / p["prior"][0], *once)
    np.testing.assert_allclose(law(drawn[0])[0], mean, rtol=0, atol=1e-3)
    np.testing.assert_allclose(law(drawn[0])[1], covariance, rtol=0, atol=1e-12)
    rows = p["design"], 1 / p["weight"][1], p["y"][1]
    assert_same_law(law(drawn[1]), posterior(p["mean"][1], 1 / p["prior"][1], *rows))


@pytest.mark.parametrize("way", WAYS)
def test_labels_in_single_precision(way):
    p = label_problem(np.random.default_rng(0), 2, 5, 3)
    single, double = (draw_of_labels(p, way, dtype=kind) for kind in ("float32", "float64"))
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_no_weight_say_nothing(way):
    """A weight of zero that gives NaN, and a label without any observation."""
    p = label_problem(np.random.default_rng(1), 2, 4, 2)
    p["weight"][0] = 0
    p["weight"][1, 2:] = 0
    drawn = draw_of_labels(p, way)
    assert_same_law(law(drawn[0]), (p["mean"][0], np.diag(1 / p["prior"][0])))
    kept = p["design"][:2], 1 / p["weight"][1, :2], p["y"][1, :2]
    assert_same_law(law(drawn[1]), posterior(p["mean"][1], 1 / p["prior"][1], *kept))


@pytest.mark.parametrize("way", WAYS)
def test_nan_stays_with_its_label(way):
    """A NaN that spreads to other labels, is lost, or stops the sweep; no density raises."""
    p = label_problem(np.random.default_rng(2), 4, 3, 2)
    clean = draw_of_labels(p, way)
    p["weight"][0, 1], p["prior"][1, 1], p["y"][2, 0] = np.nan, np.nan, np.nan
    drawn = draw_of_labels(p, way)
    assert np.isnan(drawn[:3]).all()
    np.testing.assert_array_equal(drawn[3], clean[3])
    p["prior"][3] = -100.0
    if way is by_precisions:
        assert np.isnan(draw_of_labels(p, way)).all()
        return
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        draw_of_labels(p, way)


def test_factors_of_precisions():
    """A factor of another label, and what is told where there is none."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(3, 4, 4))
    precision = root @ root.mT + np.eye(4)
    precision[1, 3, 3] = -1.0
    linear, noise = rng.normal(size=(2, 3, 4))
    block, factor = labels.draw_precisions(precision, linear, noise)
    assert np.isnan(block[1]).all()
    assert np.isnan(factor[1]).all()
    for i in (0, 2):
        upper = np.triu(factor[i])
        np.testing.assert_allclose(upper.T @ upper, precision[i], rtol=1e-12)
    assert linear_algebra.all_keep_digits(precision[[0, 2]], factor[[0, 2]])
    assert not linear_algebra.all_keep_digits(precision, factor)


# --- activations integrated out -----------------------------------------------------------------

SCALES = [(1.0, 1.0), (1e-8, 1.0), (1.0, 1e8), (1e-8, 1e8), (1e4, 1e-4)]


@pytest.mark.parametrize(("variance", "weight"), SCALES)
@pytest.mark.parametrize(("m", "d"), [(1, 1), (1, 3), (2, 4), (3, 3), (4, 2)])
def test_whitened_design(m, d, variance, weight):
    """``B^T B`` is what the response says, by the covariance of activations and response."""
    rng = np.random.default_rng(m)
    design, response = rng.normal(size=(m, d)), np.zeros((1, m))
    weight = weight * (0.2 + rng.gamma(1.0, size=(1, m)))
    variance = variance * (0.2 + rng.gamma(1.0, size=d))
    factor, whitened = np.empty((m, m)), np.empty((m, d))
    rows.whiten(rows.Above(design, weight, response, variance), 0, 0, factor, whitened)
    covariance = response_law(np.zeros(d), variance, design, weight[0]).cov
    upper = np.triu(factor)
    scale = np.abs(covariance).max()
    np.testing.assert_allclose(upper.T @ upper / scale, covariance / scale, atol=1e-12)
    np.testing.assert_allclose(
        upper.T @ whitened, design, rtol=1e-9, atol=1e-9 * np.abs(design).max()
    )


# --- chains -------------------------------------------------------------------------------------


def chain_problem(seed, n_obs, widths, counts, scale=1.0):
    """Layers of a chain, sample by sample, with observations of each."""
    rng = np.random.default_rng(seed)
    return {
        "widths": widths,
        "counts": counts,
        "prior": [0.1 + rng.gamma(1.0, size=(n_obs, d)) for d in widths],
        "offset": [rng.normal(size=(n_obs, d)) for d in widths],
        "design": [rng.normal(size=(m, d)) for m, d in zip(counts, widths, strict=True)],
        "weight": [scale * rng.gamma(1.0, size=(n_obs, m)) for m in counts],
        "y": [rng.normal(size=(n_obs, m)) for m in counts],
        "transition": [
            rng.normal(size=(d, below)) for d, below in zip(widths, (1, *widths), strict=False)
        ],
        "gain": [rng.integers(2, size=(n_obs, d)) * rng.normal(size=(n_obs, d)) for d in widths],
    }


def padded(arrays, rows, columns):
    """Matrices of different sizes in one array, with NaN where nothing is to be looked at."""
    out = np.full((len(arrays), rows, columns), np.nan)
    for full, array in zip(out, arrays, strict=True):
        full[: array.shape[0], : array.shape[1]] = array
    return out


def chain_arguments(p, noise, dtype="float64"):
    """Arguments of the kernel with the rows of noise one after another at each sample."""
    widths, counts = p["widths"], p["counts"]
    n_obs, d, m = len(p["prior"][0]), max(widths), max(counts)
    linear = [(w * y) @ c for w, y, c in zip(p["weight"], p["y"], p["design"], strict=True)]
    rows = n_obs * len(noise)

    def by_sample(arrays, columns):
        return padded([np.repeat(array, len(noise), 0) for array in arrays], rows, columns)

    noises = np.split(np.tile(noise, (n_obs, 1)), np.cumsum(widths)[:-1], axis=1)
    transition = [np.full((widths[0], d), np.nan), *p["transition"][1:]]
    arrays = (
        by_sample(p["prior"], d),
        by_sample(p["offset"], d),
        padded(transition, d, d),
        by_sample([np.full_like(p["gain"][0], np.nan), *p["gain"][1:]], d),
        padded(p["design"], m, d),
        by_sample(p["weight"], m),
        by_sample(linear, d),
        padded(noises, rows, d),
    )
    return [np.array(widths), np.array(counts), *(array.astype(dtype) for array in arrays)]


def draw_of_chain(p, noise, dtype="float64"):
    """Draws of all layers, one after another, shape (n_obs, rows, sum of widths)."""
    drawn = chain.draw_chain(*chain_arguments(p, noise, dtype))
    assert drawn.dtype == dtype
    joined = np.hstack([out[:, :d] for out, d in zip(drawn, p["widths"], strict=True)])
    return joined.reshape(-1, *noise.shape)


def chain_law(p, n):
    """Law of all layers at one sample, by the joint law of layers and observations.

    All are affine in independent normals: each layer in its own and those of the layers before.
    """
    widths, total = p["widths"], sum(p["widths"])
    root, mean, below = np.zeros((0, total)), np.zeros(0), (np.zeros((0, total)), np.zeros(0))
    start = 0
    for layer, d in enumerate(widths):
        rows, centre = np.zeros((d, total)), p["offset"][layer][n].copy()
        rows[:, start : start + d] = np.diag(1 / np.sqrt(p["prior"][layer][n]))
        if layer:
            step = np.diag(p["gain"][layer][n]) @ p["transition"][layer]
            rows, centre = rows + step @ below[0], centre + step @ below[1]
        root, mean, below = np.vstack([root, rows]), np.r_[mean, centre], (rows, centre)
        start += d
    design = linalg.block_diag(*p["design"])
    noise = np.concatenate([1 / weight[n] for weight in p["weight"]])
    y = np.concatenate([y[n] for y in p["y"]])
    prior = root @ root.T
    covariance = np.block(
        [[prior, prior @ design.T], [design @ prior, design @ prior @ design.T + np.diag(noise)]]
    )
    return conditioned(np.r_[mean, design @ mean], covariance, total + np.arange(len(y)), y)


@pytest.mark.parametrize(
    ("widths", "counts"),
    [
        ((1,), (1,)),
        ((3,), (2,)),
        ((1, 1), (0, 1)),
        ((2, 3), (3, 1)),
        ((4, 1), (0, 2)),
        ((1, 3, 2), (3, 2, 2)),
        ((3, 2, 4), (1, 5, 0)),
        ((2, 2, 1, 2), (2, 1, 2, 3)),
    ],
)
def test_chain(widths, counts):
    """Padding that is read, a step through the wrong layer, a gain on one side only."""
    p = chain_problem(sum(widths), 3, widths, counts)
    drawn = draw_of_chain(p, units(sum(widths)))
    for n in range(3):
        assert_same_law(law(drawn[n]), chain_law(p, n))


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_chain_with_gates_all_closed_or_open(gate):
    """Closed gates part the layers: no covariance is left between them."""
    p = chain_problem(5, 2, (2, 3), (2, 1))
    p["gain"] = [np.full_like(gain, gate) for gain in p["gain"]]
    drawn = draw_of_chain(p, units(5))
    for n in range(2):
        assert_same_law(law(drawn[n]), chain_law(p, n))
    assert (np.abs(law(drawn[0])[1][:2, 2:]).max() < 1e-15) == (gate == 0)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_chain_at_all_scales(scale):
    """Precisions that differ by many orders: layers of little noise, exact observations."""
    p = chain_problem(6, 2, (2, 3, 2), (2, 3, 1), scale=scale)
    p["prior"][1] = p["prior"][1] * 1e8
    drawn = draw_of_chain(p, units(7))
    for n in range(2):
        assert_same_law(law(drawn[n]), chain_law(p, n), 1e-5)


def test_chain_that_is_rounding_alone():
    """A layer whose prior is lost beside the precision of the next one."""
    p = chain_problem(6, 2, (2, 1), (0, 0))
    p["gain"][1][:] = 1.0
    p["prior"][1] = p["prior"][1] * 1e18
    with pytest.raises(np.linalg.LinAlgError, match="larger noise or a tighter prior"):
        draw_of_chain(p, units(3))


@pytest.mark.slow
def test_chain_in_single_precision():
    p = chain_problem(7, 2, (2, 3), (2, 1))
    np.testing.assert_allclose(
        draw_of_chain(p, units(5), "float32"), draw_of_chain(p, units(5)), rtol=1e-3, atol=1e-3
    )


def test_chain_of_nan():
    """A NaN that spreads to other samples or leaves a layer of its own as it was."""
    p = chain_problem(8, 4, (2, 3), (2, 1))
    clean = draw_of_chain(p, units(5))
    p["weight"][0][0, 0], p["prior"][1][1, 2], p["offset"][0][2, 0] = np.nan, np.nan, np.nan
    drawn = draw_of_chain(p, units(5))
    assert np.isnan(drawn[:2]).all()
    assert np.isnan(drawn[2]).all()
    np.testing.assert_array_equal(drawn[3], clean[3])
    p["prior"][0][3] = -100.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        draw_of_chain(p, units(5))


# --- bands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 9, 9), (1, 2, 100)])
def test_band_draws_what_the_whole_matrix_does(shape):
    """A panel that forgets those before it, rows in another order, a band that is too narrow."""
    rng = np.random.default_rng(2)
    (channels, height, width), ky, kx = shape, 2, 3
    C = np.zeros((3, height - ky + 2, width - kx + 1, *shape))
    K = rng.normal(size=(3, channels, ky, kx))
    for y in range(height - ky + 1):  # nothing is seen by the last row
        for x in range(width - kx + 1):
            C[:, y, x, :, y : y + ky, x : x + kx] = K
    d = channels * height * width
    design = C.reshape(-1, d)
    weight, prior = rng.gamma(2.0, size=len(design)), rng.gamma(2.0, size=d)
    mean, y = rng.normal(size=(1, d)), np.tile(rng.normal(size=len(design)), (d + 1, 1))
    assert d > CHUNK > 2 * bands.PANEL - 1
    block, matrix, factor = bands.draw_banded(
        design, weight, y, prior, mean, np.array(shape), units(d)
    )
    assert_same_law(law(block), posterior(mean[0], 1 / prior, design, 1 / weight, y[0]), 1e-10)
    distance = np.subtract.outer(np.arange(d), np.arange(d))
    # rows of nine or two pixels, times channels, then the kernel's width
    bandwidth = {9: 2 * 9 + 2 * 2 + 1, 2: 2 * 2 + 1}[height]
    assert np.all(factor[(distance < 0) | (distance > bandwidth)] == 0)
    np.testing.assert_allclose(np.tril(factor @ factor.T), np.tril(matrix), rtol=0, atol=1e-10)


def test_no_factor_of_a_band_is_told():
    design = np.full((2, 80), 1e200)
    ones = np.ones(80)
    *_, factor = bands.draw_banded(
        design, ones[:2], np.ones((1, 2)), 0 * ones, ones[None], np.array([80]), ones[None]
    )
    assert np.isnan(factor).all()


# --- a point of several -------------------------------------------------------------------------


def test_points_are_chosen_by_their_density():
    """A point that is next to the one to choose, and one of no density."""
    points = np.arange(5.0)
    density = np.array([0.1, np.nan, 0.3, 1e-300, 0.6])
    log_density = 800 + np.log(density)
    levels = (np.arange(1000) + 0.5) / 1000
    chosen = [lattice.choose_point(points, log_density, levels[[n]])[0] for n in range(1000)]
    np.testing.assert_array_equal(np.bincount(np.int64(chosen)), [100, 0, 300, 0, 600])


@pytest.mark.parametrize("n", [0, 1, residual_scales.AT_ONCE, 3 * residual_scales.AT_ONCE + 5])
@pytest.mark.parametrize("size", [1.0, 1e60, 1e-60])
def test_one_logarithm_of_several_variances(n, size):
    """Products that overflow or vanish, entries that are last or not seen, factors exchanged."""
    rng = np.random.default_rng(n)
    squares, spread = rng.exponential(size=(2, n)) * np.array([[1.0], [size]])
    is_seen = (rng.random(n) < 0.7).astype(float)
    of_response, of_activations = np.exp(rng.normal(size=(2, 5))) * np.array([[size], [1.0]])
    variance = of_response + spread[:, None] * of_activations
    expected = (is_seen[:, None] * (np.log(variance) + squares[:, None] / variance)).sum(0)
    found = residual_scales.sum_over_variances(
        squares, spread, is_seen, of_response, of_activations
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("by_row", [False, True])
def test_sums_over_covariances(by_row, spreads):
    """Outputs that are not seen, patterns that come back, an output's scale for another's."""
    rng = np.random.default_rng(5)
    residual, loadings = rng.normal(size=(40, 4)), rng.normal(size=(4, 2))
    weight = np.exp(rng.normal(size=(40, 4))) * (rng.random((40, 4)) < 0.7)
    weight = weight if by_row else weight[np.arange(40) % 3]
    spread, is_scaled = loadings @ loadings.T, np.array([0.0, 1.0, 0.0, 1.0])
    of_response = np.exp(rng.normal(size=5))
    of_activations = np.exp(rng.normal(size=5)) if spreads else np.ones(5)
    expected = np.zeros(5)
    for row, w in zip(residual, weight, strict=True):
        seen = w > 0
        for j, (s, t) in enumerate(zip(of_response, of_activations, strict=True)):
            own = np.where(is_scaled > 0, s, 1.0)[seen] / w[seen]
            covariance = np.diag(own) + t * spread[np.ix_(seen, seen)]
            whitened = np.linalg.solve(covariance, row[seen])
            expected[j] += np.linalg.slogdet(covariance)[1] + row[seen] @ whitened
    given = weight, residual, spread, is_scaled, of_response, of_activations
    found = residual_scales.sum_over_covariances(*given)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9)


# --- in compiled graphs -------------------------------------------------------------------------


def arguments_of(name):
    rng = np.random.default_rng(0)
    if name == "choose_point":
        return [rng.normal(size=5), np.array([-900.0, 1.0, np.nan, 2.0, -np.inf]), np.array([0.5])]
    if name == "choose_points":
        return [*rng.normal(size=(2, 3, 5)), np.array([0.1, 0.5, 0.9])]
    if name == "draw_chain":
        p = chain_problem(9, 3, (2, 3), (2, 2))
        # layers and observations beyond a width are zero in a graph
        return [np.nan_to_num(a) for a in chain_arguments(p, units(5))]
    if name == "draw_banded":
        arrays = [rng.normal(size=shape) for shape in [(5, 6), (4, 5), (4, 6), (4, 6)]]
        design, response, mean, noise = arrays
        weight, prior = rng.gamma(1.0, size=5), rng.gamma(1.0, size=6)
        return [design, weight, response, prior, mean, np.array([3, 2]), noise]
    q = label_problem(rng, 4, 3, 2)
    block, noise = rng.normal(size=(2, 4, 2))
    if name == "redraw_labels":
        matrix, factor = np.array([np.eye(2)] * 4), np.array([np.eye(2)] * 4)
        factor[1:3] = np.nan
        cases = [rng.normal(size=(3, 5, 2)), *rng.gamma(1.0, size=(3, 3, 5))]
        index = np.array([1, 0, 1])
        return [block, matrix, factor, *cases, index, q["prior"], q["mean"], noise]
    if name == "draw_few_rows":
        return [*(q[k] for k in ("design", "weight", "y", "prior", "mean")), q["y"], noise]
    if name == "draw_precisions":
        return [q["design"].T @ q["design"] + np.zeros((4, 1, 1)), block, noise]
    return [q["design"], q["weight"], q["y"], q["mean"], q["prior"], q["mean"], noise]


OPS = {
    "choose_point": as_op(lattice.choose_point, 1),
    "choose_points": as_op(lattice.choose_points, 1),
    "redraw_labels": as_op(labels.redraw_labels, 2),
    "draw_banded": as_op(bands.draw_banded, 2, 2, 2),
    "draw_labels": as_op(labels.draw_labels, 2),
    "draw_few_rows": as_op(labels.draw_few_rows, 2),
    "draw_precisions": as_op(labels.draw_precisions, 2, 3),
    "draw_chain": as_op(chain.draw_chain, 3),
}


@pytest.mark.parametrize(("name", "mode"), [("choose_point", "NUMBA"), *product(OPS, ["C"])])
def test_ops(name, mode):
    """Arrays that are views with the axes exchanged, and arguments in the wrong order."""
    values = arguments_of(name)
    inputs = [pt.tensor(dtype=value.dtype, shape=(None,) * value.ndim) for value in values]
    transposed = [value.T.copy() for value in values]
    outputs = OPS[name](*(variable.T for variable in inputs))
    function = pytensor.function(inputs, outputs, mode=MODES[mode])
    found, expected = function(*transposed), OPS[name].kernel(*values)
    pairs = (
        zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    )
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_ops_take_the_type_of_their_last_argument():
    """A float64 literal that makes a float32 model's draw one of float64."""
    *arguments, noise = arguments_of("draw_labels")
    drawn = OPS["draw_labels"](*arguments, noise.astype("float32"))
    assert drawn.dtype == "float32"
    found = pytensor.function([], drawn, mode=MODES["C"])()
    assert found.dtype == "float32"
    expected = labels.draw_labels(*arguments, noise)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

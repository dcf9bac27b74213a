"""R-hat over time, against its definition."""

import numpy as np
import pytest

import pymc_nnsteps as nns
from tests.diagnostics.networks import NETWORKS, X_NEW, by_hand, independent, line, prior


def classical(values):
    """Eqs. A1-A5 for values with axes (chain, draw, ...)."""
    n = values.shape[1]
    within = values.var(axis=1, ddof=1).mean(axis=0)
    between = n * values.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def test_is_the_classical_one_of_each_block():
    model = by_hand()
    draws = prior(model, 3, 23).assign_coords(draw=np.arange(23) * 100)
    over_time = nns.lab.rhat_over_time(draws, X_NEW, block=10, model=model)
    f = nns.predict(draws, X_NEW, model=model).values
    expected = np.stack([classical(f[:, :10]), classical(f[:, 10:20])])
    np.testing.assert_allclose(over_time["rhat"].transpose("block", ...), expected)
    np.testing.assert_allclose(over_time["mean"], expected.mean((1, 2)))
    levels = [0.25, 0.5, 0.75, 0.95]
    quantiles = np.quantile(expected, levels, axis=(1, 2), method="higher")
    np.testing.assert_allclose(over_time["quantiles"].transpose("quantile", "block"), quantiles)
    assert list(over_time["block"]) == [900, 1900]
    assert list(over_time["quantile"]) == levels


def test_chains_that_merge():
    """A chain that forgets its start after half of the draws."""
    start = np.where(np.arange(500) < 250, 20.0, 0.0) * [[0], [0], [0], [1]]
    model, draws = line(independent() + start)
    mean = nns.lab.rhat_over_time(draws, [[1.0]], model=model)["mean"].values
    assert len(mean) == 10
    assert (mean[:5] > 3).all()
    assert (mean[5:] < 1.1).all()


def test_other_kinds():
    model, draws = line(independent(shape=(2, 20)))
    rank = nns.lab.rhat_over_time(draws, [[1.0]], block=20, method="rank", model=model)["rhat"]
    whole = nns.diagnose(draws, [[1.0]], model=model).dataset["f"].sel(statistic="rhat")
    np.testing.assert_array_equal(rank.squeeze(), whole.squeeze())


def test_network_with_latent_layers():
    model = NETWORKS["intermediate_noise_mlp"]()
    draws = prior(model, 2, 10)[["W1", "b1", "W2", "b2"]]
    over_time = nns.lab.rhat_over_time(draws, X_NEW, block=5, model=model)
    assert over_time["quantiles"].sizes == {"quantile": 4, "block": 2}
    assert np.isfinite(over_time["rhat"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 30}, "idata must have at least block=30 draws in each chain; it has 20"),
        ({"block": 3}, "block must be at least 4 draws; got 3"),
        ({"block": 2.5}, "block must be a positive integer"),
        ({"block": 10, "method": "median"}, 'method must be one of "rank", "split"'),
    ],
)
def test_bad_options(options, message):
    model, draws = line(independent(shape=(2, 20)))
    with pytest.raises(ValueError, match=message):
        nns.lab.rhat_over_time(draws, [[1.0]], model=model, **options)


@pytest.mark.parametrize(("second", "expected"), [(2.0, np.inf), (1.0, np.nan)])
def test_chains_that_do_not_move(second, expected):
    """R-hat of different constants is infinite, that of one constant is none."""
    model, draws = line(np.repeat([[1.0], [second]], 20, axis=1))
    over_time = nns.lab.rhat_over_time(draws, [[1.0], [2.0], [3.0]], block=10, model=model)
    for values in over_time.data_vars.values():
        np.testing.assert_array_equal(values, np.full(values.shape, expected))

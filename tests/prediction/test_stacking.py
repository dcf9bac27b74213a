"""Weights of chains, against closed forms and ArviZ's own for models."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import pymc_nnsteps as nns
from pymc_nnsteps.prediction.log_likelihood import maximal_weights

RNG = np.random.default_rng(0)


def with_rows(log_likelihood, **groups):
    """The result of ``nns.log_likelihood``, of dims (chain, draw, obs)."""
    rows = xr.Dataset({"y": (("chain", "draw", "obs"), log_likelihood)})
    rows = rows.assign_coords(chain=np.arange(len(log_likelihood)) + 3)
    return xr.DataTree.from_dict({"log_likelihood": rows, **groups})


def test_weights_of_two_chains_and_none_of_a_wrong_one():
    """Densities 3 and 1 on 60 % of rows, 1 and 3 on others: weights .7 and .3 (Yao et al., eq. 6).

    It would catch weights by the sum of densities, or by pseudo-BMA, where the best chain has all.
    """
    first = np.repeat(np.log([3.0, 1.0]), [60, 40])
    chains = np.stack([first, np.log(3) - first, np.full(100, np.log(0.01))])
    noise = 1e-6 * RNG.normal(size=(3, 200, 100))
    weights = nns.stacking_weights(with_rows(chains[:, None] + noise))
    np.testing.assert_allclose(weights, [0.7, 0.3, 0], atol=1e-4)
    np.testing.assert_array_equal(weights["chain"], [3, 4, 5])
    assert weights.attrs["unreliable"] == 0


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_weights_are_those_of_arviz_for_models():
    """Chains near -1, 1 and 0.9, and a wrong one: rows not left out, or the wrong sign."""
    y, means = RNG.normal(size=150), np.array([-1, 1, 0.9, 3])[:, None, None]
    drawn = norm.logpdf(y, means + 0.5 * RNG.normal(size=(4, 200, 1)))
    alone = {chain: az.loo(with_rows(drawn[[chain]]), pointwise=True, reff=1) for chain in range(4)}
    expected = az.compare(alone, method="stacking", round_to="none")["weight"].sort_index()
    found = nns.stacking_weights(with_rows(drawn))
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_densities_below_the_smallest_number_are_weighed():
    """A row that all chains miss by far: densities are zero in floating point, ratios are not."""
    np.testing.assert_allclose(maximal_weights(np.array([[-900.0, -2000.0]])), [1, 0], atol=1e-8)


def test_quantiles_of_weighted_chains():
    """A chain without weight has none of the interval: the documented use, by xarray."""
    responses = xr.DataArray(
        np.stack([np.linspace(0, 1, 101), np.full(101, 9.0)]), dims=("chain", "draw")
    ).assign_coords(chain=[3, 4])
    weights = xr.DataArray([1.0, 0.0], {"chain": [3, 4]}, ["chain"])
    found = responses.weighted(weights).quantile([0.05, 0.95], dim=("chain", "draw"))
    np.testing.assert_allclose(found, [0.05, 0.95], atol=0.01)


def test_bad_input():
    """One sentence each."""
    rows = RNG.normal(size=(2, 24, 5))
    for few in (rows, rows[:1]):
        with pytest.raises(ValueError, match=r"^idata must have two chains .* of 24\.$"):
            nns.stacking_weights(with_rows(few))
    with pytest.raises(ValueError, match=r"nns.log_likelihood\.$"):
        nns.stacking_weights(xr.Dataset())
    other = with_rows(rows)["log_likelihood"].to_dataset().rename(y="z")
    both = other.merge(other.rename(z="y"))
    with pytest.raises(ValueError, match="of one observed variable"):
        nns.stacking_weights(xr.DataTree.from_dict({"posterior": other, "log_likelihood": both}))

"""Sweeps of the bow-tie network: joint distribution tests, NUTS without gates, sampling."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from tests.statistics import bonferroni_limit
from tests.steps.joint import assert_joint
from tests.steps.priors import LIGHT

X = np.random.default_rng(3).normal(size=(2, 2))


def tiny(shrinkage, hidden=(2, 2), **options):
    return nns.bow_tie(
        X,
        [-1.0, 1.0],
        hidden=hidden,
        temperature=0.7,
        shrinkage=LIGHT[shrinkage],
        bias_var=0.7,
        hidden_alpha=4,
        hidden_beta=0.4,
        noise_alpha=4,
        noise_beta=0.3,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shrinkage", "collapse", "transitions"),
    [("student_t", True, 2_500), ("nig", False, 12_000)],
)
def test_joint_distribution(shrinkage, collapse, transitions):
    """A sweep that does not leave the posterior of two layers invariant.

    The long chain sees errors of a few per cent. All families, at little noise, are in
    ``test_interwoven_gates.py``.
    """
    model = tiny(shrinkage)
    step = nns.Gibbs(model=model, collapse=collapse)
    assert_joint(step, model, "targets", transitions=transitions)


def test_everything_is_assigned_to_gibbs():
    """A gate, a scale or a bias that PyMC gives to a step of its own."""
    model = tiny("laplace")
    with model:
        idata = pm.sample(
            5, tune=5, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True
        )
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {rv.name for rv in model.free_RVs}
    assert posterior["gamma1"].dtype == "int64"
    moves = {"interweaving_acceptance", "interweaving_rho"}
    assert set(idata["sample_stats"].data_vars) == {"n_sweeps"} | moves


@pytest.mark.slow
def test_agrees_with_nuts_without_gates():
    """NUTS knows nothing of conditionals, and sums all gates out."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(8, 1))
    options = {
        "hidden": (2, 2),
        "temperature": 1.0,
        "bias_var": 1.0,
        "hidden_alpha": 4,
        "hidden_beta": 1,
        "noise_alpha": 4,
        "noise_beta": 1,
        "shrinkage": LIGHT["normal_gamma"],
    }
    y = 1.5 * np.abs(x[:, 0])
    gates, smooth = (
        nns.bow_tie(x, y, marginalize_gates=without, **options) for without in (False, True)
    )
    quiet = {"progressbar": False, "quiet": True, "cores": 1, "compute_convergence_checks": False}
    with smooth:
        nuts = pm.sample(3_000, tune=1_000, chains=2, target_accept=0.95, random_seed=1, **quiet)
    expected, its_error = _means(nuts["posterior"], nns.predict(nuts, x, model=smooth))
    gibbs = pm.sample(9_000, tune=1_000, chains=2, random_seed=1, model=gates, **quiet)
    found, error = _means(gibbs["posterior"], nns.predict(gibbs, x, model=gates))
    z = (found - expected) / np.hypot(error, its_error)
    assert np.abs(z).max() < bonferroni_limit(z.size, 1e-4), z


def _means(posterior, functions):
    """Means of bounded statistics that exchanging units does not change, and their errors."""
    scales = [
        np.log(scale).mean([dim for dim in scale.dims if dim not in ("chain", "draw")])
        for name, scale in posterior.data_vars.items()
        if name.startswith(("tau", "eta_sq"))
    ]
    size = abs(posterior["W1"]).mean("hidden1")
    layer = np.tanh(posterior["a1"]).mean("hidden1")
    parts = [functions, *scales, size, layer, layer**2]
    draws = np.concatenate([p.values.reshape(*p.shape[:2], -1) for p in parts], axis=-1)
    draws = np.tanh(np.concatenate([draws, (draws - draws.mean((0, 1))) ** 2], axis=-1))
    batches = draws.reshape(-1, len(draws[0]) // 30, draws.shape[-1]).mean(axis=1)
    return batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))

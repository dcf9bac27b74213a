"""Probabilities against closed forms and simulation, responses against both."""

from contextlib import nullcontext

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.special import expit, log_ndtr, ndtr, softmax

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import blocks
from pymc_nnsteps.prediction.laws import log_probability_of_largest

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(6, 2)), RNG.normal(size=(5, 2))
CLASSES = np.arange(6) % 3
NOISELESS = {"pre": 0, "post": 0, "output": 0.3}


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def made_up(model, n_draws=3):
    rng = np.random.default_rng(1)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        point = model.initial_point(0)
    stored = {
        rv.name: (
            ("chain", "draw", *model.named_vars_to_dims[rv.name]),
            rng.normal(size=(2, n_draws, *point[rv.name].shape)),
        )
        for rv in model.free_RVs
        if rv.name[0] in "Wb"
    }
    return xr.Dataset(stored, {"chain": [0, 1], "draw": np.arange(n_draws)})


def network(y, **options):
    return nns.intermediate_noise_mlp(X, y, **({"hidden": (2,), "noise": 0.2} | options))


def probit(**options):
    return network((X[:, 0] > 0).astype(int), likelihood="probit", **options)


def multinomial(classes=CLASSES, **options):
    return network(classes, likelihood="multinomial_probit", **options)


def test_probabilities_without_hidden_noise():
    """The closed forms of one and two utilities; logistic ones; sums of one."""
    model = probit(noise=NOISELESS)
    draws = made_up(model)
    p = nns.predict(draws, X_NEW, model=model, kind="probability")
    f = nns.predict(draws, X_NEW, model=model)
    np.testing.assert_allclose(p, ndtr(f / 0.3**0.5), rtol=1e-12)
    model = multinomial(CLASSES % 2, noise=NOISELESS)
    draws = made_up(model)
    p = nns.predict(draws, X_NEW, model=model, kind="probability")
    f = nns.predict(draws, X_NEW, model=model)
    between = (f - f.isel(output=slice(None, None, -1)).values) / 0.6**0.5
    np.testing.assert_allclose(p, ndtr(between), rtol=1e-9)
    logistic = nns.hierarchical_mlp(X, X > 0, likelihood="bernoulli", hidden=(2,), priors=FIXED)
    draws = made_up(logistic)
    p = nns.predict(draws, X_NEW, model=logistic, kind="probability")
    f = nns.predict(draws, X_NEW, model=logistic)
    np.testing.assert_allclose(p, expit(f), rtol=1e-9)
    logistic = nns.hierarchical_mlp(X, CLASSES, likelihood="categorical", hidden=(2,), priors=FIXED)
    draws = made_up(logistic)
    p = nns.predict(draws, X_NEW, model=logistic, kind="probability")
    np.testing.assert_allclose(
        p, softmax(nns.predict(draws, X_NEW, model=logistic), axis=-1), rtol=1e-9
    )


FIXED = {"ih": 1, "bh": 1, "ho": 1, "bo": 1}


@pytest.mark.parametrize("n_classes", [3, 10])
@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0])
def test_probability_of_the_largest(n_classes, spread):
    """Sums of one with standard deviations of all sizes; adaptive quadrature far in a tail."""
    rng = np.random.default_rng(n_classes)
    mean = spread * rng.normal(size=(20, n_classes))
    sd = np.exp(rng.normal(size=n_classes))
    logs = [log_probability_of_largest(np.full(20, a), mean, sd) for a in range(n_classes)]
    np.testing.assert_allclose(np.exp(logs).sum(0), 1, rtol=1e-9)
    worst = int(np.argmin(mean[0]))
    [log] = log_probability_of_largest(np.array([worst]), mean[:1], np.ones(n_classes))
    others = np.delete(mean[0], worst) - mean[0, worst]

    def integrand(t):
        return np.exp(log_ndtr(t - others).sum() - t**2 / 2 - log) / (2 * np.pi) ** 0.5

    top = others.max()
    value, _ = quad(integrand, -5, top + 9, points=np.linspace(0, top, 9), limit=400)
    np.testing.assert_allclose(value, 1, rtol=1e-6)


@pytest.mark.parametrize("distance", [1e3, 3e4, 1e5, 1e8, 1e12])
@pytest.mark.parametrize("sd", [(1.0, 1.0), (1.0, 3.0), (5.0, 1.0)])
def test_probability_of_the_far_less_likely_of_two_classes(distance, sd):
    """Derivatives whose rounding grows with the distance: another mode, or NaN."""
    mean = np.array([[-distance, 0.0]])
    log = log_probability_of_largest(np.array([0, 1]), mean.repeat(2, axis=0), np.array(sd))
    expected = log_ndtr(np.array([-1, 1]) * distance / np.hypot(*sd))
    np.testing.assert_allclose(log, expected, rtol=1e-10)


@pytest.mark.parametrize("build", [probit, multinomial])
def test_hidden_noise_is_part_of_a_probability(build):
    """As often as responses are of each class; those of a network without noise are bolder."""
    model = build(noise={"pre": 0.5, "post": 0.5, "output": 0.1})
    draws = made_up(model, 2)
    p = nns.predict(
        draws, X_NEW, model=model, kind="probability", noise_draws=2000, random_seed=1
    ).values
    many = np.repeat(X_NEW, 4000, axis=0)
    y = nns.predict(draws, many, model=model, kind="response", random_seed=2).values
    labels = np.arange(p.shape[-1]) if p.shape[-1] > 1 else [1]
    often = (y.reshape(2, 2, 5, 4000, 1) == labels).mean(axis=3)
    np.testing.assert_allclose(p, often, atol=5 * (0.25 / 2000 + 0.25 / 4000) ** 0.5)
    if p.shape[-1] > 1:
        np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-9)


def test_responses_have_the_noise_of_all_layers():
    """Responses of a linear network are normal; another seed is another draw."""
    noise = {"pre": 0.1, "post": 0.2, "output": 0.3}
    model = network(X, activation="identity", noise=noise)
    draws = made_up(model, 1)
    many = np.repeat(X_NEW[:2], 4000, axis=0)
    options = {"model": model, "kind": "response"}
    y = nns.predict(draws, many, random_seed=1, **options)
    assert (y.name, y.dims) == ("y", ("chain", "draw", "obs", "output"))
    f = nns.predict(draws, X_NEW[:2], model=model).values
    W2 = draws["W2"].values[:, 0]
    covariance = 0.3 * np.eye(2) + 0.3 * W2 @ W2.transpose(0, 2, 1)
    groups = y.values.reshape(2, 2, 4000, 2)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))[:, None]
    assert np.all(np.abs(groups.mean(2) - f[:, 0]) < 4.5 * sd / 4000**0.5)
    for chain in range(2):
        found = np.cov(groups[chain, 0].T)
        np.testing.assert_allclose(found, covariance[chain], atol=0.1 * covariance[chain].max())
    xr.testing.assert_identical(y, nns.predict(draws, many, random_seed=1, **options))
    assert not np.any(y == nns.predict(draws, many, random_seed=2, **options))


def test_responses_have_all_columns_of_the_targets():
    """Those of a mean that is repeated along them, each with noise of its own."""
    with pm.Model(coords={"feature": [0, 1]}) as model:
        rate = pm.math.exp(pm.Data("inputs", X) @ pm.Normal("W", dims="feature"))
        pm.Poisson("y", rate[:, None], observed=np.zeros((len(X), 3), int))
    y = nns.predict(made_up(model, 200), X_NEW, model=model, kind="response", random_seed=1)
    assert y.shape == (2, 200, 5, 3)
    assert np.any(y[..., 0] != y[..., 1])


@pytest.mark.parametrize("build", [probit, multinomial])
@pytest.mark.parametrize("kind", ["probability", "response"])
def test_no_draws(build, kind):
    model = build()
    some = made_up(model)
    options = {"model": model, "kind": kind, "noise_draws": 1}
    width = nns.predict(some, X_NEW, **options).sizes["output"]
    for none in ({"draw": []}, {"chain": []}):
        p = nns.predict(some.isel(none), X_NEW, num_samples=2, **options)
        assert p.size == 0
        assert p.shape[2:] == (5, width)


def test_stacked_and_thinned_draws():
    model = network(X[:, 0])
    draws = made_up(model, 10)
    f = nns.predict(draws, X_NEW, model=model)
    tree = xr.DataTree.from_dict({"posterior": draws})
    some = az.extract(tree, num_samples=6, random_seed=1)
    stacked = nns.predict(some, X_NEW, model=model)
    assert stacked.dims == ("sample", "obs", "output")
    for position, (chain, draw) in enumerate(some["sample"].values):
        np.testing.assert_array_equal(stacked[position], f.sel(chain=chain, draw=draw))
    one = nns.predict(some, X_NEW, model=model, num_samples=3)
    np.testing.assert_array_equal(one["draw"], some["draw"][[0, 2, 5]])
    thinned = nns.predict(tree, X_NEW, model=model, num_samples=8)
    xr.testing.assert_identical(thinned, f.isel(draw=[0, 3, 6, 9]))
    p = nns.predict(some, X_NEW, model=model, kind="response")
    assert p.sizes == {"sample": 6, "obs": 5, "output": 1}


def test_a_bar_appears_if_it_takes_long(monkeypatch):
    shown = []

    class Bar(nullcontext):
        def add_task(self, title, completed, total):
            shown.append((title, completed, total))

        def update(self, task, completed):
            shown.append(completed)

    monkeypatch.setattr(blocks, "create_simple_progress", lambda progressbar: Bar())
    list(blocks.tracked("Counting", 3, True))
    monkeypatch.setattr(blocks, "SECONDS", -1.0)
    list(blocks.tracked("Counting", 3, False))
    assert shown == []
    assert list(blocks.tracked("Counting", 3, True)) == [0, 1, 2]
    assert shown == [("Counting", 1, 3), 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "classes"}, 'kind must be one of "function", "probability", "response"; got'),
        ({"kind": "probability"}, 'y is Normal, whose classes are not known; kind="probability"'),
        ({"num_samples": 1}, "num_samples must be at least the number of chains, 2; got 1"),
        ({"num_samples": 0}, "num_samples must be a positive integer; got 0"),
        ({"kind": "response", "noise_draws": 1.5}, "noise_draws must be a positive integer"),
    ],
)
def test_bad_input(options, message):
    model = network(X[:, 0])
    with pytest.raises(ValueError, match=message):
        nns.predict(made_up(model), X_NEW, model=model, **options)


def test_names_of_classes():
    model = multinomial(np.array(["ash", "oak", "fir"])[CLASSES])
    p = nns.predict(made_up(model), X_NEW, model=model, kind="probability", noise_draws=10)
    assert list(p["output"].values) == ["ash", "fir", "oak"]
    assert p.name == "p"
    with pm.Model() as counts:
        pm.Poisson(
            "y", pm.math.exp(pm.Data("inputs", X) @ pm.Normal("w", shape=2)), observed=CLASSES
        )
    draws = xr.Dataset({"w": (("chain", "draw", "w_dim_0"), np.full((1, 500, 2), 0.3))})
    draws = draws.assign_coords(chain=[0], draw=np.arange(500))
    y = nns.predict(draws, X_NEW, model=counts, kind="response", random_seed=3)
    rate = np.exp(X_NEW @ [0.3, 0.3])
    assert np.all(np.abs(y[0, ..., 0].mean("draw") - rate) < 4.5 * (rate / 500) ** 0.5)

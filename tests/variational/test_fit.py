"""Fits as a user sees them: starts, batches, ensembles, selection, draws and predictions."""

import json
import subprocess
import sys
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.variational.ascent import Schedule, ascend
from pymc_nnsteps.variational.draws import by_iteration, by_monte_carlo, select
from pymc_nnsteps.variational.factors import gaussian_rows
from pymc_nnsteps.variational.reading import read_model
from tests.statistics import assert_moments
from tests.variational.networks import FAMILIES, small_model

rng = np.random.default_rng(36)
X = rng.uniform(-2, 2, size=(270, 2))
Y = 0.1 * X[:, 0] ** 2 + 10 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(270)
QUIET = {"progressbar": False, "random_seed": 1}


@pytest.fixture(scope="module")
def model():
    """The simulated example of the paper's Section 4.1."""
    return nns.bow_tie(X, Y, hidden=(20,))


@pytest.fixture(scope="module")
def several(model):
    return nns.fit(model, starts=3, sweeps=300, ensemble=True, zeta=0.01, **QUIET)


def test_a_fit_predicts(several):
    new = np.random.default_rng(0).uniform(-2, 2, size=(100, 2))
    truth = 0.1 * new[:, 0] ** 2 + 10 * np.sin(new[:, 0])
    found = several.best
    assert len(found.elbo) <= 300
    assert (np.diff(found.elbo) > -1e-8 * np.abs(found.elbo[1:])).all()
    for method in ("monte_carlo", "iteration"):
        predicted = found.predict(new, method=method, random_seed=1)
        error = predicted["mean"].values[:, 0] - truth
        assert np.sqrt(np.mean(error**2)) < 0.5
        assert 0.4 < predicted["sd"].mean() < 1.0
        inside = (predicted["lower"] < truth[:, None]) & (truth[:, None] < predicted["upper"])
        assert inside.mean() > 0.95


def test_draws_are_usable_elsewhere(model, several):
    found = several.best
    idata = found.sample(400, random_seed=1)
    functions = nns.predict(idata, X[:30], model=model)[0, :, :, 0]
    direct = found.predict(X[:30], random_seed=2)
    error = functions.std("draw") / np.sqrt(400)
    z = (functions.mean("draw").values - direct["mean"].values[:, 0]) / np.maximum(error, 0.01)
    assert np.abs(z).max() < 6
    with model:
        predictive = pm.sample_posterior_predictive(idata, random_seed=1, progressbar=False)
    y = predictive["posterior_predictive"]["y"][0]
    np.testing.assert_allclose(y.std("draw")[:30], direct["sd"][:, 0], rtol=0.25)
    assert "W1[0, 0]" in az.summary(idata).index
    for name, mean in found.mean.items():
        if name.startswith(("W", "b")):
            drawn = idata["posterior"][name].values[0]
            assert_moments(drawn, mean.values, found.sd[name].values ** 2)


def test_an_ensemble_is_a_mixture(several):
    evidence = np.array([member.elbo[-1] for member in several.members])
    weights = np.exp(0.01 * (evidence - evidence.max()))
    np.testing.assert_allclose(several.weights, weights / weights.sum())
    assert several.best.elbo[-1] == evidence.max()
    parts = [m.predict(X[:9], method="iteration") for m in several.members]
    mixture = several.predict(X[:9], method="iteration")
    means, sds = (np.array([p[name] for p in parts]) for name in ("mean", "sd"))
    mean = np.einsum("k,kno->no", several.weights, means)
    square = np.einsum("k,kno->no", several.weights, sds**2 + means**2)
    np.testing.assert_allclose(mixture["mean"], mean)
    np.testing.assert_allclose(mixture["sd"], np.sqrt(square - mean**2))
    assert several.sample(50, random_seed=1)["posterior"].sizes["draw"] == 50
    drawn = several.predict(X[:9], random_seed=1)
    np.testing.assert_allclose(drawn["mean"], mean, atol=0.3)


@pytest.mark.slow
def test_starts_in_processes_are_the_same(model):
    options = {"starts": 2, "sweeps": 20, "start": ["spike_slab", "laplace"], "ensemble": True}
    alone, shared = (nns.fit(model, cores=cores, **options, **QUIET) for cores in (1, 2))
    for one, other in zip(alone.members, shared.members, strict=True):
        np.testing.assert_array_equal(one.elbo, other.elbo)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_batch_of_all_rows_is_a_sweep(family):
    reading = read_model(small_model(family, (3, 2), n_outputs=2))
    rows = reading.inputs, reading.targets

    def fitted(**options):
        schedule = Schedule(sweeps=1, em=family != "gaussian", local_sweeps=1, **options)
        generator = np.random.default_rng(1)
        given = (reading.network, [rows], len(rows[0]), "laplace", schedule, generator)
        return ascend(*given, lambda _: None)

    sweep, found = fitted(forgetting=0.0), fitted(delay=1e300)
    np.testing.assert_allclose(found.history, sweep.history, rtol=1e-12)
    for one, other in zip(found.layers, sweep.layers, strict=True):
        np.testing.assert_allclose(one.cov, other.cov, rtol=1e-9)
        np.testing.assert_allclose(one.beta, other.beta, rtol=1e-9)


def test_stochastic_steps(model):
    """They come as far as sweeps; with steps that are short from the start the error is 0.76."""
    found = nns.fit(model, "svi", batch_size=60, sweeps=300, **QUIET)
    predicted = found.predict(X, random_seed=1)["mean"].values[:, 0]
    assert np.sqrt(np.mean((predicted - Y) ** 2)) < 0.65
    assert np.median(found.elbo[-30:]) > np.median(found.elbo[:30])


def batches_from_disk(folder, n_obs, n_features, batch_size, sweeps):
    """Fit rows that lie in a file, in a process of its own; its peak memory and its error."""
    program = f"""
import json, numpy as np, pymc_nnsteps as nns
def peak_memory():  # in MB; getrusage tells that of the process that started this one, if larger
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
shape = ({n_obs}, {n_features})
x = np.memmap("x.bin", np.float32, "w+", shape=shape)
rng = np.random.default_rng(0)
for first in range(0, {n_obs}, 10_000):
    x[first:first + 10_000] = rng.normal(size=x[first:first + 10_000].shape)
x.flush()
x = np.memmap("x.bin", np.float32, "r", shape=shape)
def target(rows):
    return np.abs(rows[:, 0]) + rows[:, 1]
def batches():
    while True:
        rows = np.sort(rng.integers({n_obs}, size={batch_size}))
        part = x[rows].astype(float)
        yield part, target(part) + 0.1 * rng.normal(size=len(part))
X, y = next(batches())
model = nns.bow_tie(X, y, hidden=(10,))
before = peak_memory()
found = nns.fit(model, "svi", batches=batches(), n_obs={n_obs}, sweeps={sweeps}, random_seed=1,
                progressbar=False)
part = x[:500].astype(float)
error = found.predict(part, method="iteration")["mean"].values[:, 0] - target(part)
print(json.dumps([before, peak_memory(), float(np.sqrt(np.mean(error ** 2)))]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_rows_that_lie_on_disk(tmp_path):
    before, peak, error = batches_from_disk(tmp_path, 50_000, 20, 500, 60)
    assert peak - before < 100
    assert error < 1.0


@pytest.mark.slow
def test_a_million_rows_that_lie_on_disk(tmp_path):
    _, peak, error = batches_from_disk(tmp_path, 1_000_000, 50, 1000, 200)
    assert peak < 1000
    assert error < 1.1


def test_columns_of_batches_are_found_by_name():
    table = pd.DataFrame(X, columns=["a", "b"])
    named, plain = nns.bow_tie(table, Y, hidden=(3,)), nns.bow_tie(X, Y, hidden=(3,))
    options = {"n_obs": len(X), "random_seed": 1, "progressbar": False}
    turned = nns.fit(named, "svi", batches=[(table[["b", "a"]], pd.Series(Y))] * 3, **options)
    straight = nns.fit(plain, "svi", batches=[(X, Y)] * 3, **options)
    np.testing.assert_array_equal(turned.elbo, straight.elbo)


@pytest.mark.slow
def test_wrong_batches(model):
    pair = (X[:5], Y[:5])
    for options, message in [
        ({"batches": [pair]}, "n_obs, the number of all rows"),
        ({"batches": [(X[:5, :1], Y[:5])], "n_obs": 9}, r"inputs of batches must have shape"),
        ({"batches": [(X[:5] * np.nan, Y[:5])], "n_obs": 9}, "inputs of batches has .* NaN"),
        ({"batches": [(X[:5], Y[:5] * np.nan)], "n_obs": 9}, "targets of batches has .* NaN"),
        ({"batches": [(X[:5], Y[:4])], "n_obs": 9}, "of the same rows"),
        (
            {"batches": [(pd.DataFrame(X[:5]), pd.Series(Y[:5])[::-1])], "n_obs": 9},
            "targets of batches has the row labels of inputs of batches in another order",
        ),
        ({"batches": [(X[:0], Y[:0])], "n_obs": 9}, "of the same rows"),
        ({"batches": [X[:5]], "n_obs": 9}, "must give pairs of inputs and targets; got ndarray"),
        ({"batches": 5, "n_obs": 9}, "must give pairs of inputs and targets; got int"),
        ({"batches": [], "n_obs": 9}, "batches is empty"),
        ({"batches": [pair], "n_obs": 9, "starts": 2}, "starts must be 1"),
        ({"forgetting": 0.4}, "forgetting must be above 1/2"),
        ({"delay": 0}, "delay must be a positive number"),
    ]:
        with pytest.raises(ValueError, match=message):
            nns.fit(model, "svi", **options, **QUIET)
    for options, message in [
        ({"batches": [pair], "n_obs": 9}, 'for method="svi"'),
        ({"start": "warm"}, "start must be one of"),
        ({"method": "advi"}, "method must be one of"),
        ({"zeta": -1}, "zeta must be"),
        ({"zeta": "much"}, "zeta must be a finite number"),
    ]:
        with pytest.raises(ValueError, match=message):
            nns.fit(model, **options, **QUIET)
    with pytest.raises(nns.laws.NotConjugate, match="but the network has none"):
        nns.fit(nns.bow_tie(X, Y, shrinkage="gaussian"), em=True, **QUIET)


def test_selection(several):
    found = several.best
    sparse = found.select(0.01)
    kept = np.concatenate([mask.ravel() for mask in sparse.selection.weights])
    [units] = sparse.selection.units
    assert 0 < units.sum() < 20
    incoming, outgoing = sparse.selection.weights
    np.testing.assert_array_equal(incoming.any(axis=1), outgoing.any(axis=0))
    same, fewer = (m.predict(X, method="iteration")["mean"].values for m in (found, sparse))
    assert np.sqrt(np.mean((same - fewer) ** 2)) < 0.5
    path = found.selection_path([0.001, 0.01, 0.1])
    assert path.index.name == "level"
    assert (np.diff(path["weights"]) >= 0).all()
    assert path.loc[0.01, "weights"] == kept.sum()
    with pytest.raises(ValueError, match=r"level must be a positive number up to 0\.5"):
        found.select(0.7)


def test_a_unit_without_inputs_is_folded_into_the_bias():
    """What it passes on is a constant: predictions of the mean are as before."""
    network = read_model(small_model("gaussian", (3,))).network
    generator = np.random.default_rng(0)
    layers = []
    found = nns.fit(small_model("gaussian", (3,)), sweeps=2, **QUIET).fitted.layers
    for layer in found:
        mean = 1 + generator.random(layer.mean.shape)
        precision = np.broadcast_to(1e8 * np.eye(mean.shape[1]), layer.cov.shape)
        _, cov, log_det = gaussian_rows(precision, 1e8 * mean)
        layers.append(replace(layer, mean=mean, cov=cov, log_det=log_det))
    layers[0].mean[1, 1:] = 0.0
    x = generator.normal(size=(5, 2))
    chosen = select(network, layers, 0.05)
    assert list(chosen.units[0]) == [True, False, True]
    before = by_monte_carlo(network, layers, x, 20_000, np.random.default_rng(1))
    after = by_monte_carlo(network, chosen.layers, x, 20_000, np.random.default_rng(2))
    error = np.sqrt((before.variance + after.variance) / 20_000)
    assert (np.abs(before.mean - after.mean) < 5 * error).all()
    gone = replace(chosen.layers[1], mean=np.where([1, 1, 0, 1], layers[1].mean, 0))
    without = by_monte_carlo(network, [chosen.layers[0], gone], x, 20_000, np.random.default_rng(2))
    assert (np.abs(before.mean - without.mean) > 20 * error).all()


def test_iteration_agrees_with_draws_where_weights_are_known():
    """Then both ways of predicting know the law of one hidden layer exactly, but for its gates."""
    fitted = nns.fit(small_model("laplace", (3,), n_obs=40), sweeps=30, **QUIET).fitted
    layers = [replace(layer, cov=1e-12 * layer.cov) for layer in fitted.layers]
    layers[0] = replace(layers[0], beta=1e-6 * layers[0].alpha)
    x = 3 * np.random.default_rng(0).normal(size=(30, 2))
    sharp = replace(fitted.network, temperature=1e-4)
    one = by_iteration(sharp, layers, x)
    other = by_monte_carlo(sharp, layers, x, 4000, np.random.default_rng(1))
    np.testing.assert_allclose(one.mean, other.mean, atol=0.01)
    np.testing.assert_allclose(one.variance, other.variance, rtol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("shrinkage", ["student_t", "gaussian"])
def test_chains_begin_where_a_fit_ends(shrinkage):
    options = {"hidden": (5, 3), "shrinkage": shrinkage}
    network = nns.bow_tie(X, Y, **options)
    found = nns.fit(network, starts=4, sweeps=60, ensemble=True, random_seed=0, progressbar=False)
    points = found.initvals(4, random_seed=1)
    assert not np.array_equal(points[0]["W1"], points[1]["W1"])
    y = Y - Y.mean()
    for point in points:
        z = X @ point["W1"].T + point["b1"]
        np.testing.assert_array_equal(point["gamma1"], z > 0)
        last = point["a2"] @ point["W3"].T + point["b3"]
        assert np.mean((last[:, 0] - Y) ** 2) < 0.2 * np.mean(y**2)


def test_initvals(model, several):
    initvals = several.initvals(2, random_seed=1)
    assert set(initvals[0]) == {rv.name for rv in model.free_RVs}
    assert initvals[0]["W1"][0, 0] != initvals[1]["W1"][0, 0]
    quiet = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}
    with model:
        idata = pm.sample(2, tune=2, chains=2, initvals=initvals, random_seed=1, **quiet)
    assert idata["posterior"].sizes["chain"] == 2


@pytest.mark.slow
def test_means_are_those_of_long_chains():
    """On few data with an undecided gate; intervals of a mean-field law are known to be short."""
    few = small_model("student_t", (2,), n_obs=30, temperature=0.3)
    found = nns.fit(few, starts=5, em=False, **QUIET)
    with few:
        idata = pm.sample(4000, tune=1000, chains=2, cores=1, progressbar=False, random_seed=1)
    new = np.random.default_rng(5).normal(size=(20, 2))
    exact = nns.predict(idata, new, model=few)
    ours = nns.predict(found.sample(2000, random_seed=1), new, model=few)
    difference = ours.mean(("chain", "draw")) - exact.mean(("chain", "draw"))
    spread = exact.std(("chain", "draw"))
    assert float(abs(difference / spread).median()) < 0.5
    assert float(abs(difference / spread).max()) < 2
    ratio = ours.std(("chain", "draw")) / spread
    assert 0.3 < float(ratio.median()) < 1.1

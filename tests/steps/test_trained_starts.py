"""Chains that begin at trained networks."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.initial_point import make_initial_point_fns_per_chain

import pymc_nnsteps as nns
from pymc_nnsteps.steps.terms import by_row
from pymc_nnsteps.steps.trained_starts import _slopes, _total, _trained, adam, trained_starts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2))
Y = np.sin(2 * X[:, 0])


def network(**options):
    return nns.hierarchical_mlp(X, Y, hidden=(6,), sigma="network", **options)


def function(start, x):
    hidden = np.tanh(x @ start["W_ih1"].T + start["bh1"])
    return hidden, (hidden @ start["W_h1o"].T + start["bo"])[:, 0]


@pytest.mark.parametrize("likelihood", ["normal", "student_t"])
def test_slopes_are_those_of_half_the_mean_square_of_given_rows(likelihood):
    """Catches other rows of inputs than of targets, and a sum, or noise, in the misfit."""
    model = network(likelihood=likelihood)
    found = by_row(model, model.observed_RVs)
    total = _total(model, found, noise=False)
    weights = _trained(model, total)
    assert [rv.name for rv in weights] == ["W_ih1", "bh1", "W_h1o", "bo"]
    values = [RNG.normal(size=model.initial_point()[rv.name].shape) for rv in weights]
    rows = np.array([7, 3, 41])
    slopes = _slopes(model, weights, found, total)(*values, rows)
    start = dict(zip([rv.name for rv in weights], values, strict=True))
    hidden, f = function(start, X[rows])
    miss = (f - Y[rows])[:, None] / 3
    back = miss * start["W_h1o"] * (1 - hidden**2)
    expected = [back.T @ X[rows], back.sum(axis=0), miss.T @ hidden, miss.sum(axis=0)]
    for slope, exact in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, exact, rtol=1e-10)


def test_with_the_noise_slopes_are_those_of_the_log_density():
    """Catches noise that stays as it began, rows of another part, and a sum in place of a mean."""
    model = network(likelihood="student_t")
    found = by_row(model, model.observed_RVs)
    total = _total(model, found, noise=True)
    weights = _trained(model, total)
    assert [rv.name for rv in weights] == ["W_ih1", "bh1", "W_h1o", "bo", "W_h1s"]
    start = model.initial_point()
    values = [RNG.normal(size=start[rv.name].shape) for rv in weights]
    rows = np.array([7, 3, 41])
    slopes = _slopes(model, weights, found, total)(*values, rows)
    with model:
        pm.set_data({"inputs": X[rows], "targets": Y[rows]})
    seen = model.logp(vars=model.observed_RVs)
    slopes_of_rows = pt.grad(seen, [model.rvs_to_values[rv] for rv in weights])
    used = {"inputs": model.value_vars, "on_unused_input": "ignore"}
    gradient = model.compile_fn(slopes_of_rows, **used)
    exact = gradient(start | dict(zip([rv.name for rv in weights], values, strict=True)))
    for slope, of_rows in zip(slopes, exact, strict=True):
        np.testing.assert_allclose(slope, -of_rows / 3, rtol=1e-8)


def test_steps_on_a_plane_have_the_length_of_the_schedule():
    """On constant slopes Adam moves by exactly its length: catches means that begin biased."""
    plane = np.array([3.0, -0.2])
    n, rate = 7, 0.1
    [end] = adam(lambda value, rows: [plane], [np.zeros(2)], [np.arange(2)] * n, rate, 0.5)
    lengths = rate * (1 + np.cos(np.pi * np.arange(1, n + 1) / n)) / 2
    np.testing.assert_allclose(end, -np.sign(plane) * lengths.sum(), rtol=1e-6)


def test_matrices_decay_by_a_share_of_each_length():
    """Catches a decay of biases, and one that enters the slopes, whose length Adam undoes."""
    given, n, rate, decay = [np.full((2, 1), 2.0), np.full(3, 2.0)], 7, 0.1, 0.5
    ends = adam(lambda *_: [0 * v for v in given], given, [np.arange(2)] * n, rate, decay)
    lengths = rate * (1 + np.cos(np.pi * np.arange(1, n + 1) / n)) / 2
    np.testing.assert_allclose(ends[0], given[0] * np.prod(1 - decay * lengths), rtol=1e-12)
    np.testing.assert_array_equal(ends[1], given[1])


def test_steps_follow_running_means_of_each_value():
    """Against the algorithm entry by entry, of a number, a vector and a matrix of other dtype."""
    given = [np.array(0.3), np.array([1.0, -2.0]), np.array([[0.5, 4.0]], dtype="float32")]
    n, rate, rng = 9, 0.02, np.random.default_rng(0)
    seen = [[rng.normal(size=v.shape) for v in given] for _ in range(n)]
    asked = []

    def slopes(*called):
        asked.append([v.dtype for v in called[:-1]])
        return [slope.astype(v.dtype) for slope, v in zip(seen[called[-1]], given, strict=True)]

    ends = adam(slopes, given, range(n), rate, 0.0)
    assert asked == [[v.dtype for v in given]] * n
    for end, start, path in zip(ends, given, zip(*seen, strict=True), strict=True):
        value, mean, square = start.astype(float), 0.0, 0.0
        for k, slope in enumerate(path, 1):
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
            length = rate * (1 + np.cos(np.pi * k / n)) / 2
            value -= length * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
        assert end.shape == start.shape
        np.testing.assert_allclose(end, value, rtol=1e-6)


def test_each_chain_begins_at_a_network_of_its_own_that_fits():
    model = network()
    starts = trained_starts(model, chains=2, epochs=600, batch=32, random_seed=1)
    for start in starts:
        assert np.std(function(start, X)[1] - Y) < 0.2 * np.std(Y)
    assert not np.allclose(starts[0]["W_ih1"], starts[1]["W_ih1"])
    again = trained_starts(model, chains=2, epochs=600, batch=32, random_seed=1)
    np.testing.assert_array_equal(starts[1]["W_h1o"], again[1]["W_h1o"])
    begun = make_initial_point_fns_per_chain(model=model, overrides=starts, chains=2)
    for start, point in zip(starts, begun, strict=True):
        assert np.isfinite(model.compile_logp()(point(0)))
        np.testing.assert_array_equal(point(0)["W_ih1"], start["W_ih1"])


def test_classes_are_trained_by_their_probabilities():
    """Of a network written by hand, with a single number among its weights."""
    labels = (X.sum(axis=1) > 0.7).astype(int)
    with pm.Model():
        x, seen = pm.Data("x", X), pm.Data("seen", labels)
        w, v, b = pm.Normal("w", shape=(4, 2)), pm.Normal("v", shape=4), pm.Normal("b")
        pm.Bernoulli("y", logit_p=pm.math.tanh(x @ w.T) @ v + b, observed=seen)
        [start] = trained_starts(chains=1, epochs=300, batch=32, random_seed=1)
    logits = np.tanh(X @ start["w"].T) @ start["v"] + start["b"]
    assert ((logits > 0) != labels).mean() < 0.1


def targets_of_no_data():
    w = pm.Normal("w", shape=2)
    pm.Normal("y", pm.math.tanh(X @ w), observed=Y)


def inputs_of_no_data():
    w = pm.Normal("w", shape=2)
    pm.Normal("y", pm.math.tanh(X @ w), observed=pm.Data("seen", Y))


def noise_in_a_layer():
    w = pm.Normal("w", shape=2)
    z = pm.Normal("z", pm.Data("x", X) @ w, 0.1)
    pm.Normal("y", pm.math.tanh(z), observed=pm.Data("seen", Y))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (targets_of_no_data, "those of y are not pm.Data"),
        (inputs_of_no_data, "those of y also depend on other rows, or on values outside pm.Data"),
        (noise_in_a_layer, "between them and y is z, a layer with noise"),
    ],
)
def test_what_cannot_be_trained_is_named(function, reason):
    with pm.Model() as model:
        function()
    with pytest.raises(ValueError, match=reason):
        trained_starts(model)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="epochs must be a positive"):
        trained_starts(network(), epochs=0)
    with pytest.raises(ValueError, match="decay must not be negative"):
        trained_starts(network(), decay=-0.1)
    with pytest.raises(ValueError, match=r"model must be a pm\.Model; got ndarray"):
        trained_starts(X)


def test_a_generator_is_a_seed_too():
    seeds = 3, np.random.default_rng(3)
    starts = [trained_starts(network(), chains=1, epochs=1, random_seed=seed) for seed in seeds]
    np.testing.assert_array_equal(starts[0][0]["W_ih1"], starts[1][0]["W_ih1"])

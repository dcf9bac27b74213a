"""Bernoulli children with a logit: densities given the precisions, and exact draws as an oracle."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws import match
from pymc_nnsteps.laws.gaussian import BinaryObservation
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.network.activations import logit_of
from pymc_nnsteps.random.polya_gamma import PolyaGammaRV, polya_gamma
from tests.cases import quick
from tests.laws.graphs import (
    draw_graph,
    evaluate,
    gaussian_law,
    integrand_of,
    point_of,
    put,
    random_nodes,
    shapes_of,
)
from tests.statistics import bonferroni_limit
from tests.steps.chains import chain

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 2))
Y = np.array([0, 1, 1, 0, 1, 1])
YY = np.stack([Y, 1 - Y, Y[::-1]], axis=1)
GROUPS = np.array([0, 2, 2, 1, 0, 1])


def regression():
    beta = pm.Normal("beta", [0.0, 0.5], [1.0, 2.0])
    intercept = pm.Normal("intercept", -0.3, 1.5)
    pm.Bernoulli("y", logit_p=X @ beta + intercept, observed=Y)
    return ["beta intercept"]


def probability_by_sigmoid():
    slope = pm.Normal("slope", 0.2, 0.7)
    pm.Bernoulli("y", p=pm.math.sigmoid(slope * X[:, 0] + 0.2), observed=Y)
    return ["slope"]


def several_outputs():
    W = pm.Normal("W", 0, 1.0, shape=(3, 2))
    pm.Bernoulli("y", logit_p=X[:2] @ W.T, observed=YY[:2])
    return ["W"]


def random_intercepts():
    mu = pm.Normal("mu", 0, 1)
    theta = pm.Normal("theta", mu, 0.8, shape=3)
    pm.Bernoulli("y", logit_p=theta[GROUPS], observed=Y)
    return ["mu", "theta"]


def beside_a_normal_child():
    beta = pm.Normal("beta", 0, 1, shape=2)
    pm.Bernoulli("y", logit_p=X @ beta, observed=Y)
    pm.Normal("u", 2 * beta, 1.5, observed=[0.4, -0.2])
    return ["beta"]


def more_coefficients_than_rows():
    beta = pm.Normal("beta", 0, 1, shape=2)
    pm.Bernoulli("y", logit_p=X[:1] @ beta + 0.5, observed=Y[1:2])
    return ["beta"]


def latent_scores():
    """A stochastic layer behind binary outputs, one logit per entry."""
    W = pm.Normal("W", 0, 1, shape=2)
    score = pm.Normal("score", X @ W, 0.7)
    pm.Bernoulli("y", logit_p=2 * score - 0.3, observed=Y)
    return ["W", "score"]


def gates_of_a_unit():
    """Logits of a small temperature, and a gate that is a free variable."""
    z = pm.Normal("z", 0.1, 0.3, shape=3)
    pm.Bernoulli("gate", logit_p=z / 0.1, shape=3)
    return ["z"]


MODELS = [regression, probability_by_sigmoid, several_outputs, random_intercepts,
          beside_a_normal_child, more_coefficients_than_rows, latent_scores,
          gates_of_a_unit]  # fmt: skip
QUICK = {regression, several_outputs, beside_a_normal_child, latent_scores}


def build(function):
    with pm.Model() as model:
        return model, function()


@pytest.mark.parametrize("function", quick(MODELS, QUICK))
def test_density_given_the_precisions(function):
    """A lost half, offset or child, a precision of another row, a tilt by another logit."""
    model, expected = build(function)
    wanted = [rv for rv in model.free_RVs if rv.name != "gate"]
    blocks = find_conditionals(model, wanted)
    assert [" ".join(rv.name for rv in block.draws) for block in blocks] == expected
    rng = np.random.default_rng(0)
    gates = {"gate": np.array([1, 0, 1])} if "gate" in model.named_vars else {}
    point = point_of(model, rng, **gates)
    for block in blocks:
        generator, next_generator, values = draw_graph(model, block)
        nodes = random_nodes(generator, next_generator, values)
        tilts = [node.inputs[2] for node in nodes if isinstance(node.op, PolyaGammaRV)]
        names = {value: point[value.name] for value in model.value_vars}
        sizes = [tilt.size for tilt in evaluate(tilts, names)]
        omegas = [rng.gamma(2.0, size=size) for size in sizes]
        law = gaussian_law(model, block, point, held=omegas)
        binary = [s for s in block.observations if isinstance(s, BinaryObservation)]
        children = [seen.child for seen in binary]
        assert len(children) == len(tilts)

        shapes = shapes_of(model)
        integrand = integrand_of(
            model, {c: w.reshape(shapes[c]) for c, w in zip(children, omegas, strict=True)}
        )

        def at(vector, block=block, integrand=integrand):
            return integrand(put(point, model, block.draws, vector))

        for tilt, child in zip(evaluate(tilts, names), children, strict=True):
            natural = {model.values_to_rvs[v]: point[v.name] for v in model.value_vars}
            [psi] = evaluate([logit_of(child)], natural)
            np.testing.assert_allclose(tilt, psi.ravel())
        for scale in (0.3, 1.0, 10.0):
            other = law.mean + law.factor @ (scale * rng.normal(size=law.factor.shape[1]))
            theirs = at(other) - at(law.mean)
            np.testing.assert_allclose(
                law.log_density(other) - law.log_density(law.mean), theirs, rtol=1e-9, atol=1e-9
            )


def test_against_exact_draws():
    """Precisions that are not drawn afresh, or given the new value instead of the old."""
    model, _ = build(regression)
    exact = nns.lab.rejection_sample(model, 20_000, random_seed=0, progressbar=False)
    names = [rv.name for rv in model.free_RVs]
    independent = np.hstack([exact.posterior[name].values[0].reshape(20_000, -1) for name in names])
    step = nns.Gibbs(model=model)
    draws, _ = chain(step, model.initial_point(), 20_000, burn=100)
    order = [value.name for value in step.vars]
    widths = [model.initial_point()[name].size for name in order]
    parts = dict(zip(order, np.split(draws, np.cumsum(widths)[:-1], axis=1), strict=True))
    ours = np.hstack([parts[name] for name in names])
    scores = []
    for statistic in (lambda v: v, np.square):
        a, b = statistic(ours), statistic(independent)
        batches = a.reshape(50, 400, -1).mean(1)
        error = np.hypot(batches.std(0, ddof=1) / np.sqrt(50), b.std(0) / np.sqrt(len(b)))
        scores.append((a.mean(0) - b.mean(0)) / error)
    assert np.abs(scores).max() < bonferroni_limit(np.size(scores), 1e-4)


def test_a_threshold_is_no_logit():
    """A decision on a utility taken for a logistic one."""
    with pm.Model() as model:
        z = pm.Normal("z", 0, 1, shape=6)
        y = pm.Bernoulli("y", p=pt.gt(z, 0), observed=Y)
    assert logit_of(y) is None
    assert match(model, z).name != "Gaussian given Polya-Gamma"


@pytest.mark.parametrize(
    ("logit", "reason"),
    [
        (lambda b: pt.tanh(X @ b), "the logit of child y is not affine in it"),
        (lambda b: (X @ b) ** 2, "the logit of child y is not affine in it"),
    ],
)
def test_declines(logit, reason):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Bernoulli("y", logit_p=logit(b), observed=Y)
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        match(model, b)


def test_large_logits():
    """Rows that are certain: nothing overflows, and the prior of what they do not tell is kept."""
    with pm.Model():
        b = pm.Normal("b", 0, 1)
        pm.Bernoulli("y", logit_p=1e4 * (2 * Y - 1) + b, observed=Y)
        step = nns.Gibbs([b], rng=np.random.default_rng(0))
    draws, _ = chain(step, {"b": np.array(0.0)}, 2_000)
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 0.2
    assert draws.std() == pytest.approx(1, abs=0.15)


def counts():
    """Counts of trials, some of none, and probabilities that are indexed and repeated."""
    beta, intercept = pm.Normal("beta", 0, 1, shape=2), pm.Normal("intercept")
    trials = pm.Data("trials", np.array([3, 1, 0, 7, 2, 5]))
    pm.Binomial("y", trials, logit_p=X @ beta + intercept, observed=[1, 1, 0, 5, 0, 5])
    W = pm.Normal("W", 0, 1, shape=(2, 3))
    seen = RNG.integers(2, size=(6, 3, 4))
    pm.Bernoulli("repeated", pm.math.sigmoid(X @ W)[:, :, None], observed=seen)
    u = pm.Normal("u", shape=6)
    picked = pm.math.sigmoid(u)[[0, 0, 1, 5, 5]].reshape((5, 1))
    pm.Binomial("picked", n=4, p=picked, observed=RNG.integers(5, size=(5, 2)))
    return ["beta intercept", "W", "u"]


def test_counts_and_rearranged_probabilities(monkeypatch):
    """Lost trials, a tilt of another entry, an information where there are no trials."""
    model, expected = build(counts)
    names = [row[0].replace(",", "") for row in nns.verify(model, random_seed=0).rows]
    assert names == expected
    monkeypatch.setattr(
        BinaryObservation, "draw_precision", lambda seen, rng: polya_gamma(rng, seen.logit)
    )
    with pytest.raises(AssertionError, match=r"child y is misread|children: y"):
        nns.verify(model, random_seed=0)


def test_one_row_where_the_graph_does_not_tell():
    """A logit of unknown length that is broadcast against the entries of a block."""
    with pm.Model() as model:
        x = pm.Data("x", np.ones((1, 3)))
        latent = pm.Normal("latent", shape=x.shape[0])
        logit = x @ pm.Normal("w", shape=3) + pm.Normal("b") + latent
        pm.Bernoulli("y", logit_p=logit, observed=[1])
    assert all(difference < 1 for *_, difference in nns.verify(model, random_seed=0).rows)


def test_trials_that_depend_on_the_variable():
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Binomial("y", n=pt.cast(pt.exp(b), "int64"), logit_p=b, observed=1)
    with pytest.raises(
        nns.laws.NotConjugate, match="the number of trials of child y depends on it"
    ):
        match(model, b)

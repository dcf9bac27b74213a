"""Layers drawn jointly: the law of all activations, given the precisions of the gates' logits.

The claimed law is read off the draw's graph. It must have the model's own differences of log
densities, with Bernoulli densities replaced by their Polya-Gamma integrands.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws.gaussian import BinaryObservation, Gaussian
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.chain import match_chains
from pymc_nnsteps.network.activations import logit_of
from pymc_nnsteps.random.polya_gamma import PolyaGammaRV
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
    sweep_of,
)
from tests.statistics import assert_chain_moments
from tests.steps.chains import chain

RNG = np.random.default_rng(5)
N = 3
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=(N, 2))
SPREAD = np.exp(RNG.normal(size=(N, 3)) / 2)


def bow_tie(*hidden, y=Y):
    return nns.bow_tie(X, y, hidden=hidden, temperature=0.9, start="prior")


def gated(name, z, sigma, **options):
    gamma = pm.Bernoulli(f"g{name}", logit_p=z / 1.2, **options)
    return pm.Normal(f"a{name}", gamma * z, sigma, **options)


def biases_apart():
    """As terms of their own, one of them a constant, and one of each sample."""
    z = X @ pm.Normal("W1", shape=(2, 3)) + pm.Normal("b1", shape=3) - 0.3
    a1 = gated(1, z, 0.6)
    z = a1 @ pm.Normal("W2", 0.2, 1, shape=(3, 2)) + pm.Normal("b2", shape=2) + Y[:, :1]
    a2 = gated(2, z, pm.InverseGamma("var", 2, 1, shape=2) ** 0.5)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(2, 2)) + pm.Normal("b3", shape=2), 0.5, observed=Y)
    return ["a1 a2"]


def no_biases():
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 1)), 0.6)
    a2 = gated(2, a1 @ pm.Normal("W2", shape=(1, 3)), 0.8)
    pm.Normal(
        "y", a2 @ pm.Normal("w3", shape=3), pm.InverseGamma("var", 2, 1) ** 0.5, observed=Y[:, 0]
    )
    return ["a1 a2"]


def constant_offset():
    """Constants in the mean of a layer, behind its gates or before, and in the gates' logits."""
    W1, W2 = pm.Normal("W1", shape=(2, 2)), pm.Normal("W2", shape=(2, 3))
    a1 = pm.Normal("a1", 0.4 + X @ W1, 0.7)
    gamma = pm.Bernoulli("g2", logit_p=a1 @ W2 - 0.5)
    a2 = pm.Normal("a2", 0.3 - gamma * (2 * (a1 @ W2) - 1.1), 0.6)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(3, 2)) + Y[::-1], 0.5, observed=Y)
    return ["a1 a2"]


def noise_of_each_sample():
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 3)), SPREAD)
    a2 = gated(2, a1 @ pm.Normal("W2", shape=(3, 3)), SPREAD[::-1])
    pm.Normal("y", a2 @ pm.Normal("w3", shape=3), SPREAD[:, 0], observed=Y[:, 0])
    return ["a1 a2"]


def heteroscedastic_without_gates():
    """Samples of their own weights, and no precision to draw."""
    a1 = pm.Normal("a1", X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    a2 = pm.Normal("a2", a1 @ pm.Normal("W2", shape=(2, 3)), SPREAD)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(3, 2)), 0.3, observed=Y)
    return ["a1 a2"]


def seen_several_times():
    """A first layer that is also seen directly, and binary outputs beside continuous ones."""
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 2)), 0.6)
    a2 = gated(2, a1 @ pm.Normal("W2", shape=(2, 3)), 0.8)
    pm.Normal("u", 0.1 + 2 * a1, 0.9, observed=Y)
    w = pm.Normal("w3", shape=3)
    pm.Bernoulli("v", logit_p=a2 @ w - 0.2, observed=[1, 0, 1])
    pm.Normal("y", a2 @ w, 0.7, observed=Y[:, 0])
    return ["a1 a2"]


def a_part_of_the_layers():
    """Layers that the step does not draw stay as they are."""
    bow_tie(2, 3, 2)
    return ["a2 a3"]


def network(*hidden, **options):
    def build():
        bow_tie(*hidden, **options)
        return [" ".join(f"a{layer + 1}" for layer in range(len(hidden)))]

    build.__name__ = "bow_tie_" + "_".join(map(str, hidden))
    return build


two_layers, three_layers = network(2, 2), network(2, 3, 1)
CHAINS = [two_layers, network(1, 3, y=Y[:, 0]), network(3, 1), three_layers,
          network(1, 1, 1, y=Y[:, 0]), biases_apart, no_biases, constant_offset,
          noise_of_each_sample, heteroscedastic_without_gates, seen_several_times,
          a_part_of_the_layers]  # fmt: skip
QUICK = {two_layers, three_layers, no_biases, noise_of_each_sample, seen_several_times}


def built(build):
    with pm.Model() as model:
        return model, build()


def chains_of(model, without=()):
    rvs = [rv for rv in model.free_RVs if rv.name not in without]
    blocks = find_conditionals(model, rvs)
    return match_chains([block for block in blocks if isinstance(block, Gaussian)])


def names(chains):
    return [" ".join(rv.name for rv in found.draws) for found in chains]


def random_point(model, rng):
    shapes = shapes_of(model)
    bits = [rv for rv in model.free_RVs if rv.dtype == "int64"]
    return point_of(model, rng, **{rv.name: rng.integers(2, size=shapes[rv]) for rv in bits})


def held_omegas(model, found, rng):
    """Precisions of the logistic children, in the order in which they are drawn."""
    seen = [child for layer in found.layers for child in layer.observations]
    shapes = shapes_of(model)
    logistic = [child.child for child in seen if isinstance(child, BinaryObservation)]
    return {child: rng.gamma(2.0, size=shapes[child]) for child in logistic}


@pytest.mark.parametrize("build", quick(CHAINS, QUICK), ids=lambda build: build.__name__)
def test_joint_law_given_the_precisions(build):
    """A layer's offset, gain or precision lost or of another layer; a step that is transposed."""
    model, expected = built(build)
    [found] = chains_of(model, ["a1"] if build is a_part_of_the_layers else [])
    assert names([found]) == expected
    rng = np.random.default_rng(0)
    point = random_point(model, rng)
    omegas = held_omegas(model, found, rng)
    law = gaussian_law(model, found, point, held=[omega.ravel() for omega in omegas.values()])
    log_density = integrand_of(model, omegas)

    def at(vector):
        return log_density(put(point, model, found.draws, vector))

    assert np.isfinite(law.mean).all()
    root = np.linalg.cholesky(law.covariance)
    for scale in (0.3, 1.0, 1.0, 10.0, 10.0, 100.0):
        other = law.mean + root @ (scale * rng.normal(size=len(root)))
        ours = -0.5 * np.sum(np.linalg.solve(root, other - law.mean) ** 2)
        theirs = at(other) - at(law.mean)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("build", [network(2, 3, 1), seen_several_times])
def test_precisions_are_drawn_at_the_present_logits(build):
    """Precisions of another layer's logit, or of the logit without its offset."""
    model, _ = built(build)
    [found] = chains_of(model)
    rng = np.random.default_rng(1)
    point = random_point(model, rng)
    omegas = held_omegas(model, found, rng)
    nodes = random_nodes(*draw_graph(model, found))
    tilts = [node.inputs[2] for node in nodes if isinstance(node.op, PolyaGammaRV)]
    values = {value: point[value.name] for value in model.value_vars}
    natural = {model.values_to_rvs[value]: point[value.name] for value in model.value_vars}
    assert len(tilts) == len(omegas) > 0
    for tilt, child in zip(evaluate(tilts, values), omegas, strict=True):
        [psi] = evaluate([logit_of(child)], natural)
        np.testing.assert_allclose(tilt, psi.ravel())


def without_gates(n):
    """Equal samples, so that one draw is ``n`` independent ones."""
    inputs, spread, y = (np.repeat(array[:1], n, 0) for array in (X, SPREAD, Y))
    a1 = pm.Normal("a1", inputs @ SPREAD[:2, :2], 0.6)
    a2 = pm.Normal("a2", a1 @ SPREAD[1:, 1:], spread[:, :2])
    pm.Normal("y", a2 @ SPREAD[:2, 1:], 0.7, observed=y)


def test_draws_have_the_joint_law():
    """Noise that layers, units or samples share."""
    n = 20_000
    many, _ = built(lambda: without_gates(n))
    few, _ = built(lambda: without_gates(2))
    [found] = chains_of(few)
    law = gaussian_law(few, found, few.initial_point())
    first = np.r_[0:2, 4:6]
    step = nns.Gibbs(model=many, rng=np.random.default_rng(0))
    [draw], _ = chain(step, many.initial_point(), 1)
    drawn = np.hstack([layer.reshape(n, 2) for layer in np.split(draw, 2)])
    assert_chain_moments(drawn, law.mean[first], law.covariance[np.ix_(first, first)])


# --- what is a chain ------------------------------------------------------------------------------


def one_hidden_layer():
    bow_tie(3)


def deep_linear_network():
    """One factorisation serves all samples of a layer, layer by layer."""
    a1 = pm.Normal("a1", X @ pm.Normal("W1", shape=(2, 3)), 0.5)
    a2 = pm.Normal("a2", a1 @ pm.Normal("W2", shape=(3, 2)), 0.5)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(2, 2)), 0.5, observed=Y)


def kinked_network():
    z = pm.Normal("Z", X @ pm.Normal("W1", shape=(2, 3)), 0.5)
    a = pm.Normal("A", pt.maximum(z, 0), 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(3, 2)), SPREAD[:, :2], observed=Y)


def samples_that_are_mixed():
    """A layer that is the sum of two samples of the one before."""
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    mixed = (a1 + a1[::-1]) @ pm.Normal("W2", shape=(2, 2))
    a2 = gated(2, mixed, 0.5)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(2, 2)), 0.5, observed=Y)


def samples_in_another_order():
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    a2 = gated(2, a1[[2, 0, 1]] @ pm.Normal("W2", shape=(2, 2)), 0.5)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(2, 2)), 0.5, observed=Y)


def weights_of_each_sample():
    """No design that all samples share."""
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    W2 = pm.Normal("W2", shape=(N, 2, 2))
    a2 = gated(2, (a1[:, :, None] * W2).sum(1), 0.5)
    pm.Normal("y", a2 @ pm.Normal("W3", shape=(2, 2)), 0.5, observed=Y)


@pytest.mark.parametrize(
    "build",
    [
        one_hidden_layer,
        deep_linear_network,
        kinked_network,
        samples_that_are_mixed,
        samples_in_another_order,
        weights_of_each_sample,
    ],
)
def test_no_chain(build):
    """Layers that are not what the recursion takes them for, or cheaper one by one."""
    model, _ = built(build)
    assert chains_of(model) == []


def test_layers_of_other_sizes_and_steps():
    """A chain over a gap: the layers between two that are not drawn."""
    model = bow_tie(2, 3, 2)
    assert names(chains_of(model)) == ["a1 a2 a3"]
    assert names(chains_of(model, ["a2"])) == []
    assert names(chains_of(model, ["a3"])) == ["a1 a2"]


def skipping():
    """A third layer that also sees the first: drawn by other means than a chain of all three."""
    W = [pm.Normal(f"W{i}", shape=(2, 2)) for i in range(5)]
    a1 = gated(1, X @ W[0], 0.5)
    a2 = gated(2, a1 @ W[1], 0.5)
    a3 = gated(3, a2 @ W[2] + a1 @ W[3], 0.5)
    pm.Normal("y", a3 @ W[4], 0.5, observed=Y)


def two_towers():
    """Layers that meet in one, the first of which is also seen alone."""
    a1 = gated(1, X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    a2 = gated(2, X @ pm.Normal("W2", shape=(2, 2)), 0.5)
    pm.Normal("u", a1, 0.9, observed=Y)
    z = a1 @ pm.Normal("W3", shape=(2, 2)) + a2 @ pm.Normal("W4", shape=(2, 2))
    a3 = gated(3, z, 0.5)
    pm.Normal("y", a3 @ pm.Normal("W5", shape=(2, 2)), 0.5, observed=Y)


@pytest.mark.parametrize("build", [skipping, two_towers])
def test_layers_that_branch_are_drawn_validly(build):
    """Whatever is joined, its claimed law is the model's."""
    model, _ = built(build)
    for found in chains_of(model):
        rng = np.random.default_rng(0)
        point, omegas = random_point(model, rng), held_omegas(model, found, rng)
        law = gaussian_law(model, found, point, held=[o.ravel() for o in omegas.values()])
        log_density = integrand_of(model, omegas)
        assert np.isfinite(law.mean).all()
        root = np.linalg.cholesky(law.covariance)
        noise = rng.normal(size=len(root))
        other = put(point, model, found.draws, law.mean + root @ noise)
        at_mean = log_density(put(point, model, found.draws, law.mean))
        np.testing.assert_allclose(log_density(other) - at_mean, -noise @ noise / 2, rtol=1e-9)


@pytest.mark.parametrize("build", [skipping, two_towers])
@pytest.mark.parametrize("collapse", [False, "auto"])
def test_all_layers_are_drawn(build, collapse):
    """A layer that two chains claim, of which one is then left out."""
    model, _ = built(build)
    sweep = sweep_of(model, collapse=collapse)
    drawn = {rv for conditional in sweep for rv in conditional.draws}
    assert drawn == set(model.free_RVs)

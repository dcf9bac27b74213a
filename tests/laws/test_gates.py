"""Binary gates: the probability of every gate is that of the model's own log density.

A drawn gate is open where its uniform number lies below its probability. So the probability needs
no sampling: the uniform numbers are replaced by inputs, and every gate must flip where the model
says, to a relative 1e-9.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

import pymc_nnsteps as nns
from pymc_nnsteps.laws import match
from pymc_nnsteps.laws.gaussian import BinaryObservation
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.laws.graphs import gate_draw, integrand_of, point_of, shapes_of

RNG = np.random.default_rng(8)
X = RNG.normal(size=(4, 2))
Y = RNG.normal(size=(4, 3))
BITS = (Y > 0).astype(int)
GROUPS = np.array([0, 2, 2, 0])
LOGIT = RNG.normal(size=3)
SLOPE = RNG.normal(size=(4, 3))


def bow_tie(hidden=(3,), y=Y, **options):
    return nns.bow_tie(X, y, hidden=hidden, temperature=0.9, start="prior", **options)


def by_logit():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", 0.4 + 1.3 * g, 0.7, observed=Y[0])


def by_probability():
    g = pm.Bernoulli("g", p=np.array([0.1, 0.5, 0.97]))
    pm.Normal("y", g * pm.Normal("s", shape=3) - 0.3, 0.7, observed=Y[0])


def probability_that_is_a_variable():
    g = pm.Bernoulli("g", p=pm.Beta("share", 1, 1), shape=3)
    pm.Normal("y", g, pm.HalfNormal("sd"), observed=Y)


def one_gate():
    g = pm.Bernoulli("g", logit_p=pm.Normal("prior"))
    pm.Normal("y", g * SLOPE + 0.1, np.exp(SLOPE), observed=Y)


def closed_gates_do_something():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", (1 - g) * pm.Normal("s", shape=3) + g * 0.4, 0.7, observed=Y[0])


def factor_before_an_index():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", (g * pm.Normal("s", shape=3))[GROUPS], 0.6, observed=Y[:, 0])


def factors_of_integers():
    """Whose product is no number of eight bits."""
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", 100 * (3 * g), 150, observed=100 * Y[0])


def several_children():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    u = pm.Normal("u", 0.3 - 2 * g, 1.1)
    pm.Normal("y", SLOPE * g, np.exp(SLOPE / 2), observed=Y)
    pm.Normal("v", u + 0.5 * g, 0.6, observed=Y[1])


def a_row_of_gates():
    g = pm.Bernoulli("g", logit_p=LOGIT[None, :])
    pm.Normal("y", np.array([[-2.2], [0.1], [0.9], [0.4]]) @ g, 1.1, observed=Y)
    pm.Normal("v", 0.3 * g, 0.6, shape=(4, 3), observed=2 * Y)


def a_column_of_gates():
    g = pm.Bernoulli("g", logit_p=LOGIT[:, None])
    pm.Normal("y", (g @ SLOPE[:, :1].T).T, 1.1, observed=Y)
    pm.Normal("v", g[:, 0], 0.6, observed=Y[0])


def groups():
    """One gate with two entries, one with none and one with the rest."""
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", g[GROUPS] * SLOPE[:, 0], np.exp(SLOPE[:, 1]), observed=Y[:, 0])


def a_gate_for_each_row():
    g = pm.Bernoulli("g", p=0.3, shape=4)
    pm.Normal("y", g[:, None] * pm.Normal("s", shape=(4, 3)), 0.8, observed=Y)


def a_gate_for_each_column():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Normal("y", Y[::-1] + g * pm.Normal("s", shape=(4, 3)), np.exp(SLOPE), observed=Y)


def exchanged_axes():
    g = pm.Bernoulli("g", logit_p=SLOPE)
    pm.Normal("y", (g * pm.Normal("s", shape=(4, 3))).T + 0.2, np.exp(SLOPE.T), observed=Y.T)


def spike_and_slab():
    beta = pm.Normal("beta", 0.2, 1.0, shape=3)
    g = pm.Bernoulli("g", p=pm.Beta("share", 2, 1), shape=3)
    pm.Normal("y", beta * g, 0.5, observed=Y)


def no_child():
    pm.Bernoulli("g", logit_p=LOGIT, shape=(4, 3))


def logistic_child():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Bernoulli("y", logit_p=SLOPE * g + 0.3, observed=BITS)


def logistic_and_normal_children():
    g = pm.Bernoulli("g", logit_p=LOGIT)
    pm.Bernoulli("u", logit_p=0.4 - 1.2 * g)
    pm.Normal("y", 0.9 * g, 0.8, observed=Y[0])


MODELS = [by_logit, by_probability, probability_that_is_a_variable, one_gate,
          closed_gates_do_something, factor_before_an_index, factors_of_integers,
          several_children, groups, a_gate_for_each_row, a_gate_for_each_column, exchanged_axes,
          spike_and_slab, no_child, logistic_child, logistic_and_normal_children]  # fmt: skip
CASES = [(build, "g") for build in MODELS] + [
    (bow_tie, "gamma1"),
    (lambda: bow_tie((2, 3)), "gamma1"),
    (lambda: bow_tie((2, 3), Y[:, 0], shrinkage="nig"), "gamma2"),
]


def built(build):
    with pm.Model() as model:
        build()
    return model


@pytest.mark.parametrize(("build", "name"), CASES)
def test_each_gate_flips_at_its_probability(build, name):
    """A lost half, child, offset, square or prior; a precision of another entry; its own value."""
    model = built(build)
    rng = np.random.default_rng(0)
    conditional = match(model, model[name])
    shapes = shapes_of(model)
    bits = {
        rv.name: rng.integers(2, size=shapes[rv]) for rv in model.free_RVs if rv.dtype == "int64"
    }
    point = point_of(model, rng, **bits)
    logistic = [s.child for s in conditional.observations if isinstance(s, BinaryObservation)]
    omegas = {child: rng.gamma(2.0, size=shapes[child]) for child in logistic}
    log_density = integrand_of(model, omegas)
    draw = gate_draw(model, conditional, [omega.ravel() for omega in omegas.values()])
    shape = shapes[model[name]]
    chance = np.empty(shape)
    for entry in np.ndindex(shape):
        closed, opened = point[name].copy(), point[name].copy()
        closed[entry], opened[entry] = 0, 1
        odds = log_density(point | {name: opened}) - log_density(point | {name: closed})
        chance[entry] = special.expit(odds)
    for there in (point, point | {name: 1 - point[name]}):
        assert (draw(there, chance * (1 - 1e-9)) == 1).all()
        assert (draw(there, chance * (1 + 1e-9)) == 0).all()


def test_draws_have_the_probability():
    """Uniform numbers that are shared by gates, or drawn on another interval."""
    with pm.Model():
        pm.Bernoulli("g", p=0.3, shape=200_000)
        step = nns.Gibbs(rng=np.random.default_rng(0))
    point, _ = step.step({"g": np.zeros(200_000, dtype="int64")})
    assert point["g"].mean() == pytest.approx(0.3, abs=0.006)
    pairs = point["g"].reshape(-1, 2)
    assert (pairs[:, 0] & pairs[:, 1]).mean() == pytest.approx(0.09, abs=0.006)


# --- what is declined ---------------------------------------------------------------------------


def summed(g):
    pm.Normal("y", X @ (g * pm.Normal("beta", shape=2)), 0.5, observed=Y[:, 0])


def two_gates_of_one_entry(g):
    pm.Normal("y", g[[0, 1]] + g[[1, 0]], 0.5, observed=Y[0, :2])


def scale(g):
    pm.Normal("y", g, 0.5 + g, observed=Y[0, :2])


def scale_alone(g):
    pm.Normal("y", 0.0, 0.5 + g, observed=Y[0, :2])


def switch(g):
    pm.Normal("y", pt.switch(g, 1.0, pm.Normal("s")), 0.5, observed=Y[0, :2])


def exponential(g):
    pm.Normal("y", pt.exp(g), 0.5, observed=Y[0, :2])


def product_of_gates(g):
    pm.Normal("y", g * g[::-1], 0.5, observed=Y[0, :2])


def index(g):
    pm.Normal("y", pm.Normal("means", shape=2)[g], 0.5, observed=Y[0, :2])


def other_child(g):
    pm.StudentT("y", nu=4, mu=g, sigma=0.5, observed=Y[0, :2])


def a_bernoulli_child_without_logit(g):
    pm.Bernoulli("y", p=0.2 + 0.6 * g, observed=BITS[0, :2])


def potential(g):
    pm.Normal("y", g, 0.5, observed=Y[0, :2])
    pm.Potential("few", -g.sum())


HARD = {
    "threshold": lambda z: pt.gt(z, 0),
    "argmax": lambda z: pt.eq(pt.argmax(z), pt.arange(2)),
    "largest": lambda z: pt.eq(z, z.max()) * 1.0,
    "sign": lambda z: (pt.sign(z) + 1) / 2,
    "floor": lambda z: pt.clip(pt.floor(z), 0, 1),
    "rounded": lambda z: pt.clip(pt.round(z), 0, 1),
    "through others": lambda z: pt.switch(pt.exp(z) > pm.Normal("t"), 1.0, 0.0),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_decisions_are_declined(name):
    """A chain in which neither the gates nor what decides them ever move."""
    with pm.Model() as model:
        g = pm.Bernoulli("g", p=HARD[name](pm.Normal("z", shape=2)))
        pm.Normal("y", g, 0.5, observed=Y[0, :2])
    with pytest.raises(nns.laws.NotConjugate, match="g: its probability is 0 or 1 given z"):
        match(model, g)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (summed, "child y sums over its entries, which makes them dependent"),
        (two_gates_of_one_entry, "child y sums over its entries"),
        (scale, "the scale of child y depends on it"),
        (scale_alone, "the scale of child y depends on it"),
        (switch, "the mean of child y is not affine in it"),
        (exponential, "the mean of child y is not affine in it"),
        (product_of_gates, "the mean of child y is not affine in it"),
        (index, "the mean of child y is not affine in it: .* as an index"),
        (other_child, "child y is StudentT, not Normal"),
        (a_bernoulli_child_without_logit, "child y is Bernoulli, not Normal"),
        (potential, "the potential few depends on it"),
    ],
)
def test_declined(build, reason):
    """Gates that depend on each other, or a child whose density is no ratio of normals."""
    with pm.Model() as model:
        build(pm.Bernoulli("g", p=0.4, shape=2))
    with pytest.raises(nns.laws.NotConjugate, match=rf"^g: .*{reason}"):
        match(model, model["g"])
    with pytest.raises(nns.laws.NotConjugate, match=rf"^g: .*{reason}"), model:
        nns.Gibbs(["g"])


def test_observed_gates_are_no_variables_to_draw():
    with pm.Model() as model:
        g = pm.Bernoulli("g", p=0.4, observed=BITS[0])
        pm.Normal("y", g, 0.5, observed=Y[0])
    with pytest.raises(nns.laws.NotConjugate, match="g is not a free random variable"):
        match(model, g)


# --- what pm.sample gives to Gibbs ----------------------------------------------------------------


def taken(model):
    return {rv.name for rv in model.free_RVs if needs_gibbs(model, rv)}


def selected_coefficients():
    beta = pm.Normal("beta", 0, pm.HalfNormal("slab"), shape=2)
    g = pm.Bernoulli("g", p=pm.Beta("share", 1, 1), shape=2)
    pm.Normal("y", X @ (g * beta), tau=pm.Gamma("tau", 1, 1), observed=Y[:, 0])


def spikes_with_latent_effects():
    """A free normal child of gates that no weights sum over."""
    g = pm.Bernoulli("g", p=0.3, shape=3)
    effect = pm.Normal("effect", g * pm.Normal("shift"), tau=pm.Gamma("tau", 1, 1))
    pm.Normal("y", effect, tau=pm.Gamma("noise", 1, 1), observed=Y)


def two_clusters():
    g = pm.Bernoulli("g", p=0.5, shape=4)
    pm.Normal("y", pm.Normal("means", shape=2)[g], pm.HalfNormal("sd"), observed=Y[:, 0])


def occupancy():
    """Detections where a site is occupied, with covariates of both."""
    g = pm.Bernoulli("g", logit_p=X @ pm.Normal("alpha", shape=2))
    seen = pm.math.sigmoid(pm.Normal("detection"))
    pm.Binomial("y", 3, g * seen, observed=[0, 2, 0, 1])


def gated_regression():
    """Weights before the gates, and none after."""
    z = X @ pm.Normal("W", 0, tau=pm.Gamma("tau", 1, 1), shape=(2, 3))
    g = pm.Bernoulli("g", logit_p=z)
    pm.Normal("y", g * z, tau=pm.Gamma("noise", 1, 1), observed=Y)


ORDINARY = [selected_coefficients, spikes_with_latent_effects, two_clusters, occupancy,
            gated_regression, *MODELS]  # fmt: skip


@pytest.mark.parametrize("build", ORDINARY)
def test_gates_of_an_ordinary_model_stay_with_its_sampler(build):
    assert taken(built(build)) == set()


def units_before_samples():
    """Axes exchanged, biases as a column of the weights, gates by their probability, a vector."""
    inputs = np.vstack([X.T, np.ones(4)])
    tau = pm.Gamma("tau", 1, 1)
    W = pm.Normal("W", 0, tau=tau, shape=(3, 3))
    z = pm.Deterministic("z", W @ inputs)
    g = pm.Bernoulli("g", p=pm.math.sigmoid(2 * z), shape=(3, 4))
    a = pm.Normal("a", z * g, tau=pm.Gamma("inner", 2, 0.1), shape=(3, 4))
    w = pm.Normal("w", 0, pm.InverseGamma("variance", 2, 1) ** 0.5, shape=3)
    pm.Normal("y", w @ a, tau=pm.Gamma("noise", 1, 1), observed=Y[:, 0])


def two_layers_behind_a_logit():
    """Weights that are shared by both layers' scale, no biases, and binary targets."""
    tau = pm.Gamma("tau", 1, 1)
    a = X
    for layer in (1, 2):
        W = pm.Normal(f"W{layer}", 0, tau=tau, shape=(2, 2))
        z = pt.tensordot(a, W, [[1], [1]])
        g = pm.Bernoulli(f"g{layer}", logit_p=z / pt.constant(0.5))
        a = pm.Normal(f"a{layer}", pt.mul(g, z), 0.2)
    pm.Bernoulli("y", logit_p=a @ pm.Normal("w", shape=2), observed=BITS[:, 0])


NETWORKS = [bow_tie, lambda: bow_tie((2, 3)), lambda: bow_tie((2,), Y[:, 0], shrinkage="laplace"),
            lambda: bow_tie((2,), shrinkage="gaussian"), units_before_samples,
            two_layers_behind_a_logit]  # fmt: skip


@pytest.mark.parametrize("build", NETWORKS)
def test_all_of_a_bow_tie_network_is_taken(build):
    """Gates left to a Metropolis step or weights left to NUTS, which would move very slowly."""
    model = built(build)
    assert taken(model) == {rv.name for rv in model.free_RVs}
    with model:
        _, assigned = pm.sampling.mcmc.assign_step_methods(model)
    assert [step.__name__ for step, variables in assigned.items() if variables] == ["Gibbs"]


def test_an_ordinary_models_gates_beside_a_network():
    with bow_tie((2,)) as model:
        g = pm.Bernoulli("g", p=pm.Beta("share", 1, 1), shape=3)
        pm.Normal("other", g * pm.Normal("shift"), 0.4, observed=Y)
    assert {"g", "share", "shift", "gamma1", "a1", "W1", "tau2", "eta_sq2"} <= taken(model)

"""Scales of pre-activations' noise, moved with this noise, against the model's own density."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.gaussian import groups
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.any_scales import Powers
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import noise_scales
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.moves.noise_scales import NoiseScale, find_noise_scale
from tests.moves.densities import built, integrated_density, random_point
from tests.planting import plant
from tests.statistics import Z_LIMIT
from tests.steps.joint import assert_joint, joint_z_scores

RNG = np.random.default_rng(17)
X, Y = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2))
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def learnt(y=Y[:, 0], **options):
    nns.intermediate_noise_mlp(X, y, hidden=(3,), **options)


def deep():
    nns.intermediate_noise_mlp(X, Y[:, 0], hidden=(3, 2))


def by_hand():
    """A scale with a constant for each unit, a prior without a law, another child; classes."""
    s = pm.LogNormal("s", 0.0, 0.5, shape=(1, 1))
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, 3)) + 0.2, s * np.array([0.5, 1.0, 2.0]))
    a = pm.Normal("X2", abs(z) + 0.1, 0.4)
    pm.Normal("u", 0.3, 2 * s, observed=Y)
    pm.Bernoulli("y", logit_p=a @ pm.Normal("v", shape=3), observed=[1, 0, 0, 1, 1])


def two_responses():
    """One of them for some samples."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, 3)), pm.HalfNormal("s"))
    f = pm.Normal("X2", abs(z), 0.4) @ pm.Normal("v", shape=(3, 2))
    pm.Normal("y", f[:, 0], 0.4, observed=Y[:, 0])
    pm.Normal("u", f[1:4, 1], 0.8, observed=Y[1:4, 1])


CASES = {
    "learnt": lambda: built(learnt),
    "two outputs": lambda: built(learnt, y=Y),
    "deep": lambda: built(deep),
    "by hand": lambda: built(by_hand),
    "two responses": lambda: built(two_responses),
}


def move_of(model):
    """The move, and the Polya-Gamma variables that it is given."""
    conditionals = find_conditionals(model, model.free_RVs)
    [block] = [c for c in conditionals if c.draws == (model["X2"],)]
    likelihood = marginal_likelihood(block)
    held = {omega: c for before in likelihood.before for omega, c in before.fixed.items()}
    return find_noise_scale(model, likelihood, conditionals), held


def differ(model):
    """Whether the log density of the move is another one than the model's."""
    move, held = move_of(model)
    [s, z], rng, point = move.draws, np.random.default_rng(3), random_point(model, 2)
    omegas = {omega: rng.gamma(2.0, size=5) for omega in held}
    fixed = {omega: pt.as_tensor(value) for omega, value in omegas.items()}
    graphs = [move.log_density(pt.as_tensor(SHIFTS)), z.owner.op.dist_params(z.owner)[0]]
    inputs = list(model.value_vars)
    graphs = substitute(graphs, fixed | natural_values(model))
    function = pytensor.function(inputs, graphs, mode=ONCE, on_unused_input="ignore")
    without = {**point, "X2": np.full_like(point["X2"], np.nan)}
    found, mean = function(*(without[v.name] for v in inputs))
    density = integrated_density(model, "X2", {c.child: omegas[o] for o, c in held.items()})
    stored, power = model.rvs_to_values[s].name, move.noise.form.exponent
    expected = []
    for t in SHIFTS:
        moved = mean + np.exp(power * t) * (point["Z2"] - mean)
        there = {**point, stored: point[stored] + t, "Z2": moved}
        expected.append(density(there) + power * t * moved.size)
    expected = np.array(expected)
    return not np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    assert not differ(CASES[case]())


PLANTS = {
    "no Jacobian": (NoiseScale, "log_density", lambda right, move, t: right(move, t) - t),
    "noise of a unit with the mean": (
        *(NoiseScale, "_shifted"),
        lambda right, move, t: right(move, t) + 0.1 * pt.exp(t),
    ),
    "further children lost": (noise_scales, "of_scaled", lambda right, *args: Powers(0.0)),
    "responses apart": (groups, "_less", lambda right, said, *others: said),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    plant(monkeypatch, *PLANTS[error])
    assert differ(CASES["two responses" if error == "responses apart" else "by hand"]())


def test_noise_that_is_left():
    """Known, the activations' as well, of each unit, and of a layer that is seen twice."""
    assert move_of(built(learnt, noise=0.1))[0] is None

    def of_both():
        s = pm.HalfNormal("s")
        z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, 3)), s)
        pm.Normal("y", pm.Normal("X2", abs(z), s) @ pm.Normal("v", shape=3), 1, observed=Y[:, 0])

    def of_units():
        s = pm.HalfNormal("s", shape=3)
        z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, 3)), s)
        pm.Normal("y", pm.Normal("X2", abs(z), 1) @ pm.Normal("v", shape=3), 1, observed=Y[:, 0])

    for function in (of_both, of_units):
        assert move_of(built(function))[0] is None


def network():
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.7)
        z = pm.Normal("Z", X[:4] @ pm.Normal("W", shape=(2, 2)), s)
        a = pm.Normal("A", pt.maximum(z, 0), 0.3)
        pm.Normal("y", a @ pm.Normal("v", shape=2), 0.4, observed=pm.Data("targets", np.zeros(4)))
    return model


@pytest.mark.slow
def test_joint():
    model = network()
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=6_000)


@pytest.mark.slow
def test_a_lost_jacobian_is_seen(monkeypatch):
    plant(monkeypatch, *PLANTS["no Jacobian"])
    model = network()
    scores = joint_z_scores(nns.Gibbs(model=model), model, "targets", transitions=6_000)
    assert max(map(abs, scores.values())) > Z_LIMIT + 1

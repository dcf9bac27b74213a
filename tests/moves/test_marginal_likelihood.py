"""Layers with their activations integrated out: which, in which order, and what is drawn afresh.

:mod:`tests.moves.test_interwoven_gates` compares the moves with the model's own density.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.moves.marginal_likelihood import Augmentation
from pymc_nnsteps.steps.sweep import chain_draws
from tests.laws import graphs
from tests.laws.graphs import gaussian_law, integrand_of, put, shapes_of
from tests.moves.gated_layers import (
    LAYERS,
    SPREAD,
    Layer,
    N,
    X,
    Y,
    bow_tie,
    built,
    gated,
    names,
    no_biases,
)


@pytest.mark.parametrize("name", ["bow_tie_3_2-layer1", "seen_twice-layer1"])
def test_fresh_activations_are_given_the_same_precisions(name):
    """Activations given precisions of their own, which gates and weights were not given."""
    layer = Layer(*LAYERS[name])
    fresh = layer.fresh()
    law = gaussian_law(layer.model, fresh, layer.point)
    log_density = integrand_of(layer.model, layer.children_above)
    rng = np.random.default_rng(3)
    reference = log_density(put(layer.point, layer.model, fresh.draws, law.mean))
    assert np.isfinite(reference)
    for scale in (0.3, 1.0, 2.0):
        other = law.mean + law.factor @ (scale * rng.normal(size=law.factor.shape[1]))
        theirs = log_density(put(layer.point, layer.model, fresh.draws, other)) - reference
        np.testing.assert_allclose(law.log_density(other), theirs, rtol=1e-9, atol=1e-9)


# --- the order of a sweep -------------------------------------------------------------------------


def sweep_of(model, without=(), **options):
    rvs = [rv for rv in model.free_RVs if rv.name not in without]
    return graphs.sweep_of(model, rvs, rays=False, trajectories=False, **options)


def compile_check(model, conditionals):
    return chain_draws(model, conditionals, pt.random.rng("rng"), shapes_of(model))


def binary_outputs():
    a1 = gated(X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    a2 = gated(a1 @ pm.Normal("W2", shape=(2, 2)), 0.5, index=2)
    pm.Bernoulli("y", logit_p=a2 @ pm.Normal("w3", shape=2), observed=[1, 0, 1])


def test_last_layer_that_is_given_precisions():
    """Is drawn given these before all layers are drawn, given others, together."""
    model = built(binary_outputs)
    combined = sweep_of(model)
    assert names(combined) == ["Polya-Gamma", "W1 gamma1", "a1",
                               "Polya-Gamma", "W2 gamma2", "a2", "a1 a2", "w3"]  # fmt: skip
    compile_check(model, combined)


def test_without_moves():
    model = bow_tie(2, 3)
    combined = sweep_of(model, collapse=False, interweave=False)
    assert not any(c.integrates_out or isinstance(c, Augmentation) for c in combined)
    drawn = [rv for c in combined for rv in c.draws]
    assert sorted(rv.name for rv in drawn) == sorted(rv.name for rv in model.free_RVs)


@pytest.mark.parametrize(
    ("hidden", "late", "after"),
    [
        ((2,), "eta_sq1", "W1 b1 gamma1"),
        ((2,), "W2 b2", "W1 b1 gamma1"),
        ((2, 3), "eta_sq1", "W1 b1 gamma1"),
        ((2, 3), "W3 b3", "W2 b2 gamma2"),
        ((2, 3), "eta_sq2", "W2 b2 gamma2"),
    ],
)
def test_what_is_given_stale_activations_is_refused(hidden, late, after):
    """Noise, or weights of the next layer, between a move without activations and these."""
    model = bow_tie(*hidden)
    combined = sweep_of(model)
    moved = combined.pop(names(combined).index(late))
    combined.insert(names(combined).index(after) + 1, moved)
    stale = f"given a{after[1]}"
    with pytest.raises(ValueError, match=rf"{stale}, which was integrated out of the draw of"):
        compile_check(model, combined)


def test_precisions_drawn_anew_in_between_are_refused():
    """They would be given the activations that gates and weights were moved without."""
    model = bow_tie(2, 3)
    valid = sweep_of(model)
    [augmentation] = [c for c in valid if isinstance(c, Augmentation)]
    combined = list(valid)
    combined.insert(names(combined).index("a1"), augmentation)
    with pytest.raises(ValueError, match=r"given a1, which was integrated out of the draw of"):
        compile_check(model, combined)


# --- which layers can be moved --------------------------------------------------------------------


def no_gates():
    a = pm.Normal("a1", X @ pm.Normal("W1", shape=(2, 2)), 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def gates_of_two_layers():
    """One gate for two children."""
    z = X @ pm.Normal("W1", shape=(2, 2))
    gamma = pm.Bernoulli("gamma1", logit_p=z)
    a = pm.Normal("a1", gamma * z, 0.5)
    pm.Normal("u", gamma * z, 0.5, observed=Y[:, :2])
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def noise_of_each_sample():
    a = gated(X @ pm.Normal("W1", shape=(2, 2)), SPREAD[:, :2])
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def a_gate_for_each_unit():
    z = X @ pm.Normal("W1", shape=(2, 2))
    a = pm.Normal("a1", pm.Bernoulli("gamma1", p=0.4, shape=2) * z, 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def other_inputs_of_the_gates():
    W = pm.Normal("W1", shape=(2, 2))
    gamma = pm.Bernoulli("gamma1", logit_p=X[::-1] @ W)
    a = pm.Normal("a1", gamma * (X @ W), 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def units_before_samples():
    z = pm.Normal("W1", shape=(2, 2)) @ X.T
    a = gated(z, 0.5)
    pm.Normal("y", pm.Normal("W2", shape=(3, 2)) @ a, 0.5, observed=Y.T)


def a_child_of_weights_and_activations():
    """What it says of the activations depends on the weights."""
    z = X @ pm.Normal("W1", shape=(2, 2))
    a = gated(z, 0.5)
    pm.Normal("u", z + a, 1.0, observed=Y[:, :2])
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def biases_behind_the_gates():
    W, b = pm.Normal("W1", shape=(2, 2)), pm.Normal("b1", shape=2)
    gamma = pm.Bernoulli("gamma1", logit_p=X @ W + b)
    a = pm.Normal("a1", gamma * (X @ W) + b, 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def two_gates_in_one_mean():
    z = X @ pm.Normal("W1", shape=(2, 2))
    gates = [pm.Bernoulli(name, logit_p=z) for name in ("gamma1", "gamma2")]
    a = pm.Normal("a1", gates[0] * z + gates[1] * 0.4, 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


def linear_gates():
    """No weights of their own: the gated part is given."""
    gamma = pm.Bernoulli("gamma1", p=0.4, shape=(N, 2))
    a = pm.Normal("a1", gamma * X, 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 3)), 0.5, observed=Y)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (no_gates, "no pre-activations behind"),
        (gates_of_two_layers, "no pre-activations behind"),
        (noise_of_each_sample, "the noise of a1 differs between samples"),
        (a_gate_for_each_unit, "a1 has gates or weights with different axes"),
        (other_inputs_of_the_gates, "a1 has gates or weights with different axes"),
        (units_before_samples, "a1 is not a layer with rows of samples and columns of units"),
        (a_child_of_weights_and_activations, "a child of a1 also depends on its gates or weights"),
        (biases_behind_the_gates, "a1 has gates or weights with different axes"),
        (two_gates_in_one_mean, "a1 has no gates and weights of its own"),
        (linear_gates, "a1 has no gates and weights of its own"),
    ],
)
def test_layers_that_cannot_be_moved(build, reason):
    """Are left as they are, or refused with the reason if the user insists."""
    model = built(build)
    assert not any(c.integrates_out for c in sweep_of(model))
    with pytest.raises(
        ValueError,
        match=rf'^interweave is True, but (gamma. cannot be interwoven: )?{reason}.*use "auto"\.$',
    ):
        sweep_of(model, interweave=True)
    with pytest.raises(ValueError, match=reason), model:
        nns.Gibbs(interweave=True)
    compile_check(model, sweep_of(model))


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        ("a1", "no pre-activations"),
        ("gamma1", "no pre-activations"),
        ("W1", "a1 has no gates and weights of its own"),
    ],
)
def test_variables_that_are_not_the_steps(left_out, reason):
    model = built(no_biases)
    assert not any(c.integrates_out for c in sweep_of(model, without=[left_out]))
    with pytest.raises(ValueError, match=reason):
        sweep_of(model, interweave=True, without=[left_out])


@pytest.mark.parametrize("value", [None, "yes", 1, "AUTO"])
def test_collapse_argument(value):
    with bow_tie(2), pytest.raises(ValueError, match='collapse must be True, False or "auto"'):
        nns.Gibbs(collapse=value)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(2,), (2, 2)])
def test_other_data(hidden):
    """What was computed beforehand from old inputs or targets, or for their number.

    No layer has more entries than rows before: it would be drawn in another form, by other normals.
    """
    rng = np.random.default_rng(4)
    many, targets = rng.normal(size=(N + 2, 2)), rng.normal(size=(N + 2, 3))
    old, new = bow_tie(*hidden), bow_tie(*hidden, X=many, y=targets)
    fresh, step = (nns.Gibbs(model=m, compile_kwargs={"mode": ONCE}) for m in (new, old))
    step.step(old.initial_point())
    with old:
        pm.set_data({"inputs": many, "targets": targets}, coords={"obs": range(N + 2)})
    point = new.initial_point()
    ours, theirs = point, point
    step.setup_chain(np.random.default_rng(5), 3, 0)
    fresh.setup_chain(np.random.default_rng(5), 3, 0)
    for _ in range(3):
        ours, _ = step.step(ours)
        theirs, _ = fresh.step(theirs)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-6, err_msg=name)

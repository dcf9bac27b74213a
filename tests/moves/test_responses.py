"""Effects drawn without the activations beside them, against the model's own density.

The oracle is the model's log density with the activations integrated out by completing squares.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
import pymc_nnsteps.gaussian.groups as of_groups
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import responses
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.steps.sweep import chain_draws
from tests.laws.graphs import gaussian_law, put, shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.planting import plant

RNG = np.random.default_rng(23)
N, UNITS = 7, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
GROUPS, OTHERS = np.array([0, 1, 1, 0, 2, 2, 1]), np.array([0, 0, 1, 1, 0, 1, 0])
SPREAD, COLUMNS = np.exp(RNG.normal(size=N)), RNG.normal(size=(N, 3))


def layer():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    return pm.Normal("X2", pt.maximum(z, 0) + 0.3, [0.5, 0.9, 0.4])


def groups():
    """Effects with a slope and an intercept beside a layer that is subtracted."""
    a, b = pm.Normal("a", 0.4, 0.8, shape=3), pm.Normal("b", 0.2, shape=3)
    c, v = pm.Normal("c"), pm.Normal("v", shape=UNITS)
    mean = a[GROUPS] + b[GROUPS] * X[:, 0] + c - 2 * (layer() @ v)
    pm.Normal("y", mean, SPREAD, observed=Y)


def gaps():
    """Some of the rows are seen by one child, and some by another."""
    a, d = pm.Normal("a", shape=3), pm.ZeroSumNormal("d", 1.3, shape=2)
    v = pm.Normal("v", shape=(UNITS, 1))
    mean = (layer() @ v)[:, 0] + a[GROUPS] + d[OTHERS]
    pm.Normal("y", mean[[0, 4, 2]], 0.7, observed=Y[:3])
    pm.Normal("u", mean[[1, 6, 3]], 1.7, observed=Y[:3])


def logistic():
    a, c, v = pm.Normal("a", shape=3), pm.Normal("c"), pm.Normal("v", shape=UNITS)
    pm.Bernoulli("y", logit_p=layer() @ v + a[GROUPS] + c, observed=Y > 0)


def outputs():
    """Three outputs, of which some groups' effects enter two, in rows of unlike factors."""
    a, s = pm.Normal("a", 0.3, 0.8, shape=(3, 3)), pm.Normal("s", 0, 0.7, shape=3)
    v, b = pm.Normal("v", shape=(UNITS, 3)), pm.Normal("b", [0.1, 0.5, 2.0], shape=3)
    slope = s[GROUPS][:, None] * X[:, :1] * np.array([1.0, 0, -2])
    mean = a[GROUPS] + slope + (layer() @ v) * np.array([1.0, -2, 0.3]) * SPREAD[:, None] + b
    pm.Normal("y", mean, [0.5, 0.9, 0.2], observed=COLUMNS)


def children_of_one_mean():
    """A response, one of rows of their own precision, and one by Polya-Gamma variables."""
    a, d, v = pm.Normal("a", shape=3), pm.Normal("d", shape=2), pm.Normal("v", shape=UNITS)
    mean = layer() @ v + a[GROUPS] + d[OTHERS]
    pm.Normal("y", mean, 0.7, observed=Y)
    pm.Normal("u", 0.2 - 3 * mean, SPREAD, observed=Y[::-1])
    pm.Bernoulli("k", logit_p=mean, observed=Y > 0)


def picked_outputs():
    """Two outputs of some rows, and one of others."""
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=(UNITS, 2))
    mean = layer() @ v + a[GROUPS][:, None]
    pm.Normal("y", mean[[0, 4, 2, 5]], [0.4, 0.8], observed=COLUMNS[:4, :2])
    pm.Normal("u", mean[[1, 6, 3], 1], 1.7, observed=Y[:3])


def drawn_with_the_weights():
    """All rows see all entries, of effects about their mean and of coefficients."""
    a, beta = pm.Normal("a", 0.3, 0.8, shape=3), pm.Normal("beta", shape=2)
    v = pm.Normal("v", shape=UNITS)
    mean = layer() @ v + (a - a.mean())[GROUPS] + X @ beta
    pm.Normal("y", mean, 0.7, observed=Y)


def one_row_in_a_child():
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    mean = layer() @ v + a[GROUPS]
    pm.Normal("y", mean[[0, 4, 2, 5]], 0.7, observed=Y[:4])
    pm.Normal("u", mean[[1]], 1.7, observed=Y[:1])


def two_responses():
    """Coefficients of one of them and of both; one has an entry for some rows."""
    pm.Normal("seen by none")
    beta, gamma, b = (pm.Normal(name, shape=n) for name, n in (("beta", 2), ("gamma", 2), ("b", 1)))
    v, a = pm.Normal("v", shape=(UNITS, 2)), layer()
    mean = X @ beta + b
    pm.Normal("y", mean + a @ v[:, 0], SPREAD, observed=Y)
    pm.Normal("u", (X @ gamma - 2 * mean + a @ v[:, 1])[[4, 1, 2]], 0.6, observed=Y[:3])


def mediated():
    """What one child is observed to be is a part of the mean of another."""
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    mean = layer() @ v + a[GROUPS]
    y = pm.Normal("y", mean, 0.7, observed=Y)
    pm.Normal("u", 2 * y - mean, 1.1, observed=Y[::-1])


CASES = {
    groups: ("a", "b", "c"),
    gaps: ("a", "d"),
    logistic: ("a", "c"),
    outputs: ("a", "s", "b"),
    children_of_one_mean: ("a", "d"),
    picked_outputs: ("a",),
    drawn_with_the_weights: ("a", "beta"),
    one_row_in_a_child: ("a",),
    two_responses: ("beta", "b", "gamma"),
    mediated: ("a",),
}


class Case:
    """A model at a random point, the draw, and the Polya-Gamma variables it is given."""

    def __init__(self, function):
        self.model = built(function)
        conditionals = find_conditionals(self.model, self.model.free_RVs)
        [block] = [c for c in conditionals if c.draws == (self.model["X2"],)]
        likelihood = marginal_likelihood(block)
        shapes = shapes_of(self.model)
        self.effects = responses.find_effects(self.model, likelihood, conditionals, shapes)
        held = {omega: c for before in likelihood.before for omega, c in before.fixed.items()}
        self.omegas = {o: RNG.gamma(2.0, size=shapes[c.child]) for o, c in held.items()}
        children = {c.child: self.omegas[omega] for omega, c in held.items()}
        self.density = integrated_density(self.model, "X2", children)
        self.point = random_point(self.model, 5)

    def differences(self):
        """Log densities beside that at the mean: the draw's law, and as they should be."""
        without = {**self.point, "X2": np.full_like(self.point["X2"], np.nan)}
        law = gaussian_law(self.model, self.effects, without, auxiliary=self.omegas)

        def density(vector):
            return self.density(put(self.point, self.model, self.effects.draws, vector))

        start = density(law.mean)
        others = law.mean + RNG.normal(size=(6, law.factor.shape[1])) @ law.factor.T
        return np.array([[law.log_density(v), density(v) - start] for v in others]).T


@pytest.mark.parametrize("function", CASES)
def test_law_is_the_models_without_activations(function):
    case = Case(function)
    assert tuple(rv.name for rv in case.effects.draws) == CASES[function]
    np.testing.assert_allclose(*case.differences(), rtol=1e-8)


def activations_at_zero(right, likelihood, child):
    layer = replace(likelihood.layer, mean=0 * likelihood.layer.mean)
    return right(replace(likelihood, layer=layer), child)


def factor_lost(right, likelihood, seen):
    return likelihood.evidence_by(seen.child.child).design[:, seen.output]


PLANTS = {
    "activations at zero": (responses, "_at_mean", activations_at_zero),
    "factor lost": (responses, "_loadings", factor_lost),
    "noise lost": (
        *(responses, "CommonNoise"),
        lambda right, outputs, loadings, variance, rows: right(
            outputs, loadings, 0 * variance, rows
        ),
    ),
    "noise not in common": (of_groups, "_less", lambda right, said, *others: said),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    plant(monkeypatch, *PLANTS[error])
    assert not np.allclose(*Case(outputs).differences(), rtol=1e-3)


def seen_twice():
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    pm.Normal("y", (layer() @ v)[[0, 0, 1]] + a[[0, 1, 2]], 0.7, observed=Y[:3])


def multiplied_with_activations():
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    pm.Normal("y", (layer() @ v) * (1 + a[GROUPS]), 0.7, observed=Y)


def other_groups_in_another_child():
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    mean = layer() @ v
    pm.Normal("y", mean + a[GROUPS], 0.7, observed=Y)
    pm.Normal("u", mean + a[OTHERS], 0.7, observed=Y)


def bias():
    c, v = pm.Normal("c"), pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer() @ v + c, 0.7, observed=Y)


def repeated():
    a, v = pm.Normal("a", shape=3), pm.Normal("v", shape=UNITS)
    pm.Normal("y", (layer() @ v + a[GROUPS])[:, None], 0.7, observed=COLUMNS)


@pytest.mark.parametrize(
    "function",
    [seen_twice, multiplied_with_activations, other_groups_in_another_child, bias, repeated],
)
def test_others_are_drawn_given_the_activations(function):
    assert Case(function).effects is None


def test_order_of_a_sweep():
    """Effects last of what is drawn without activations, and all of them before these."""
    drawn = [tuple(rv.name for rv in draw.draws) for draw in sweep_of(built(groups))]
    assert drawn[drawn.index(("X2",)) - 1] == ("a", "b", "c")
    assert ("a", "b", "c", "v") in [tuple(sorted(names)) for names in drawn]


def test_an_observed_child_in_the_mean_of_another_is_its_data():
    """A sweep was refused, as if the activations behind the child were given."""
    model = built(mediated)
    chain_draws(model, sweep_of(model), pt.random.rng("rng"), shapes_of(model))


X_OF_TWO = np.random.default_rng(5).normal(size=(20, 2))
Y_OF_TWO = np.abs(X_OF_TWO)


def plain(h, v, s):
    pm.Normal("y", h @ v, s, observed=Y_OF_TWO)


def two(h, v, s):
    for k in range(2):
        pm.Normal(f"y{k}", h @ v[:, k], s, observed=Y_OF_TWO[:, k])


def times_data(h, v, s):
    pm.Normal("y", pm.Data("times", np.arange(20.0))[:, None] * (h @ v), s, observed=Y_OF_TWO)


def times_a_variable(h, v, s):
    pm.Normal("y", pm.Normal("gain") * (h @ v), s, observed=Y_OF_TWO)


def repeated_rows(h, v, s):
    pm.Normal("y", h[np.r_[:20, :5]] @ v, s, observed=Y_OF_TWO[np.r_[:20, :5]])


def squared(h, v, s):
    pm.Normal("y", h @ v[:, 0], s, observed=Y_OF_TWO[:, 0])
    pm.Normal("z", h @ v[:, 1], s**2, observed=Y_OF_TWO[:, 1])


def beside_another_law(h, v, s):
    pm.Normal("y", h @ v, s, observed=Y_OF_TWO)
    pm.StudentT("z", 4, mu=0, sigma=s, observed=Y_OF_TWO[:, 1])


def of_seven(h, v, s):
    u = pm.Normal("u", shape=(3, 5))
    pm.Normal("y", h @ v, s, observed=Y_OF_TWO)
    pm.Normal("z", h @ u, pm.HalfNormal("r"), observed=np.tile(Y_OF_TWO, 3)[:, :5])


@pytest.mark.parametrize(
    ("observe", "reason"),
    [
        (plain, None),
        (two, None),
        (times_data, "the factor of H in y may be zero"),
        (times_a_variable, "the factor of H in y may be zero"),
        (repeated_rows, "y may depend on an entry of H twice"),
        (squared, "the scales of y, z are different powers of it"),
        (beside_another_law, "z has the same scale in another way"),
        (of_seven, "more than 6 outputs depend on H"),
    ],
)
def test_explain_says_what_a_way_of_writing_loses(observe, reason):
    with pm.Model() as model:
        W = pm.Normal("W", shape=(2, 3))
        Z = pm.Normal("Z", X_OF_TWO @ W, 0.3)
        H = pm.Normal("H", pt.maximum(Z, 0), 0.3)
        observe(H, pm.Normal("v", shape=(3, 2)), pm.HalfNormal("s"))
    [said] = [how for rv, _, how in nns.explain(model).rows if rv == "s"]
    if reason is None:
        assert "H integrated out" in said
        assert "not drawn" not in said
    else:
        assert f"not drawn without H: {reason}" in said
        assert "integrated out" not in said

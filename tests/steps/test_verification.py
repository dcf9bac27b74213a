"""``verify(model, sweeps=...)``: right chains pass, and errors that a law by itself does not show.

Each plant is an error outside of the laws, in what is drawn, moved, ordered, compiled or stored.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.replace import graph_replace

import pymc_nnsteps as nns
from pymc_nnsteps.moves import interweaving, plan, rays
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood
from pymc_nnsteps.random.generalized_inverse_gaussian import (
    GeneralizedInverseGaussianRV,
    TruncatedGeneralizedInverseGaussianRV,
)
from pymc_nnsteps.random.op import DirectRV
from pymc_nnsteps.steps import compiled, crank_nicolson, sweep
from tests.cases import in_suite, slow
from tests.zoo import ZOO, smooth_network

X = np.random.default_rng(0).normal(size=(8, 2))


def bounded():
    """A scale that may be anywhere between its bounds."""
    with pm.Model() as model:
        s = pm.Uniform("s", 0, 5)
        pm.Normal("y", pm.Normal("mu"), s, observed=[2.0, -4.0, 1.0])
    return model


def positive():
    """A precision from a generalised inverse Gaussian."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        pm.Normal("y", pm.Normal("mu"), tau=tau, observed=[0.1, 0.9, 2.1])
    return model


def rows():
    """Rows of weights that are moved with pre-activations, activations integrated out."""
    return nns.intermediate_noise_mlp(X, np.abs(X[:, 0]), hidden=(2,), noise=0.1)


def draws_by(patch, kind, rng_fn):
    """Let a random variable be drawn by another function, in Python."""
    patch.setattr(kind, "rng_fn", rng_fn)
    patch.setattr(kind, "function_of", DirectRV.function_of)


def with_upper_bound(share):
    def plant(patch):
        kernel = TruncatedGeneralizedInverseGaussianRV.rng_fn

        def rng_fn(self, rng, nu, delta2, lambda2, lower, upper, size):
            return kernel(self, rng, nu, delta2, lambda2, lower, share * upper, size)

        draws_by(patch, TruncatedGeneralizedInverseGaussianRV, rng_fn)

    return plant


def twice_the_draw(patch):
    kernel = GeneralizedInverseGaussianRV.rng_fn
    draws_by(patch, GeneralizedInverseGaussianRV, lambda *given: 2 * kernel(*given))


def four_times_the_variance(patch):
    [variance] = [MarginalLikelihood.variance.fget]
    patch.setattr(MarginalLikelihood, "variance", property(lambda self: 4 * variance(self)))


def the_other_way_round(patch):
    """The move that integrates activations out comes last."""
    patch.setattr(plan, "order_scan", lambda conditionals, *given: conditionals[::-1])
    patch.setattr(sweep, "check_scan", lambda *given: None)


def always_accepted(patch):
    level = interweaving.uniform

    def zero(*given):
        rng, drawn = level(*given)
        return rng, 0 * drawn

    patch.setattr(interweaving, "uniform", zero)


def without_correction(patch):
    """A proposal that follows the gradient is accepted as if it did not."""
    patch.setattr(crank_nicolson, "log_ratio", lambda u, v, beta: v.log_density - u.log_density)


def computed_once(patch):
    """What depends on the mean, as if that were data."""
    take_out = compiled.take_out_invariants

    def frozen(outputs, roots):
        [mu] = [root for root in roots if root.name == "mu"]
        return take_out(graph_replace(outputs, {mu: mu.type.make_constant(np.array(0.0))}), roots)

    patch.setattr(compiled, "take_out_invariants", frozen)


def not_transformed(patch):
    def stored(self, model):
        return {model.rvs_to_values[rv]: value for rv, value in self.drawn.items()}

    patch.setattr(sweep.Chained, "stored", stored)


def intercepts():
    """Effects of groups, and the scale that is moved along a ray with them."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3, 2)
        a = pm.Normal("a", 0, tau=tau, shape=3)
        pm.Normal("y", a[np.arange(8) % 3], 0.5, observed=X[:, 0])
    return model


def without_jacobian(patch):
    right = rays.Ray._prior
    patch.setattr(rays.Ray, "_prior", lambda self, rv, u: right(self, rv, u) - self.degrees[rv] * u)


ROWS_ALONE = partial(nns.Gibbs, trajectories=False)
"""Without the moves of all rows that come after them, and make up for a small error."""

PLANTED = {
    "no Jacobian": (intercepts, without_jacobian, "tau", {}),
    "cut off at half the bound": (bounded, with_upper_bound(0.5), "s", {}),
    "beyond the bound": (bounded, with_upper_bound(1.05), "s", {}),
    "twice the draw": (positive, twice_the_draw, "tau", {}),
    "not transformed": (positive, not_transformed, "tau", {}),
    "computed once": (positive, computed_once, "mu|tau", {}),
    "noise of activations": (rows, four_times_the_variance, "W1|Z2|X2|W2|b", {}),
    "the other way round": (rows, the_other_way_round, "W1|Z2|X2|W2|b", {}),
    "always accepted": (rows, always_accepted, "W1|Z2|X2|W2|b", {"step": ROWS_ALONE}),
    "no correction": (smooth_network, without_correction, "W1|w2|b2", {"step": nns.PCNL}),
}
QUICK = ("cut off at half the bound", "twice the draw")


def checked(build, variables=None, step=nns.Gibbs):
    model = build()
    with model:
        if step is nns.PCNL:
            steps = [step([model[name] for name in ("W1", "w2", "b2")], delta=0.5)]
        else:
            steps = [step()]
    return nns.verify(model, sweeps=1000, step=steps, random_seed=2)


@pytest.mark.parametrize("error", [e if e in QUICK else slow(e) for e in PLANTED])
def test_an_error_is_seen(error, monkeypatch):
    build, plant, variables, options = PLANTED[error]
    plant(monkeypatch)
    with pytest.raises(
        AssertionError, match=rf"(?s)(how these are drawn:|because of) ({variables})"
    ):
        checked(build, **options)


SHORTER = ("relu_network", "hierarchical_network", "bow_tie_network", "effects_beside_a_network")
SAMPLED = (
    "relu_network",
    "by_hand",
    "probit_network",
    "multinomial_network",
    "regression",
    "hierarchical_network",
    "bow_tie_network",
    "gates_and_pieces",
    "effects_beside_a_network",
    "closed_gates_above",
    "gates_by_chance",
)
"""Models: rows with pre-activations, NUTS beside Gibbs, decisions, HMC beside scales, gates,
both kinks and gates, effects of groups, layers of gates.
"""


@pytest.mark.parametrize("name", in_suite(SAMPLED, SHORTER))
def test_models_of_the_zoo(name):
    """Right chains, by the steps that ``pm.sample`` assigns."""
    table = nns.verify(ZOO[name](), sweeps=500, random_seed=1)
    assert {rv.name for rv in ZOO[name]().free_RVs} <= {row[0] for row in table.rows}
    assert "right ones stay below" in str(table)


def test_integers_and_bounds():
    """Moves balance where there are no slopes: of a coin, a count, and a flat bounded law."""
    with pm.Model() as model:
        coin = pm.Bernoulli("coin", 0.3)
        count = pm.Poisson("count", 3.0)
        flat = pm.Uniform("flat", 0, 2, default_transform=None)
        pm.Normal("y", coin + count + flat, 1.0, observed=[4.0, 5.0])
        steps = [pm.BinaryGibbsMetropolis([coin]), pm.Metropolis([count]), pm.Slice([flat])]
    table = nns.verify(model, sweeps=1000, step=steps, random_seed=1)
    assert not [row for row in table.rows if row[1].startswith("E d log p") and row[0] == "flat"]
    assert all(abs(z) < 4 for _, _, z in table.rows)


def test_arguments():
    with pytest.raises(ValueError, match="sweeps must be a positive integer; got 0"):
        nns.verify(positive(), sweeps=0)
    with pytest.raises(ValueError, match='sweeps must be "auto" or a positive integer'):
        nns.verify(positive(), sweeps="all")
    with pytest.raises(ValueError, match='pass sweeps="auto" as well'):
        nns.verify(positive(), initvals={"mu": 1.0})

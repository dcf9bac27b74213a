"""Noise exchanged between a response and the activations below, against the model's density."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import digamma, polygamma

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE, c_by_default
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.moves.noise_scales import NoiseExchange, find_noise_exchange
from tests.moves.densities import built, integrated_density, random_point
from tests.planting import plant
from tests.statistics import Z_LIMIT

RNG = np.random.default_rng(17)
X, Y = RNG.normal(size=(5, 2)), RNG.normal(size=5)
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def by_hand(y=Y, of_y=None, own=None, seen=slice(None)):
    """A precision of units and a standard deviation of the response, priors without a law."""
    own = pm.Gamma("own", 2.0, 1.0, shape=3) if own is None else own
    of_y = pm.Gamma("of_y", 2.0, 1.0) if of_y is None else of_y
    z = X @ pm.Normal("W1", shape=(2, 3))
    a = pm.Normal("a", z, own**-0.5)
    pm.Normal("y", (a @ pm.Normal("v", shape=3) + 0.3)[seen], 2 * of_y, observed=y[seen])


CASES = {
    "noise": lambda: nns.intermediate_noise_mlp(X, Y, hidden=(3,)),
    "by hand": lambda: built(by_hand),
}


def moves_of(model):
    conditionals = find_conditionals(model, model.free_RVs)
    name = next(name for name in ("a", "a1", "X2") if name in model.named_vars)
    [block] = [c for c in conditionals if c.draws == (model[name],)]
    return name, find_noise_exchange(marginal_likelihood(block), conditionals)


def differ(model):
    """Whether the move has another log density than the model, or another sum of variances."""
    name, [move, *_] = moves_of(model)
    point, picked = random_point(model, 2), 1 if move.draws[1].ndim else 0
    (s, v), total = move.draws, 1 / move.likelihood.weight[0, 0]
    total += (pt.sqr(move.likelihood.rows.design[0]) * move.likelihood.variance).sum()
    graphs = [move.log_density(pt.as_tensor(SHIFTS), pt.as_tensor(picked)), total]
    graphs += move.shifts(pt.as_tensor(SHIFTS), pt.as_tensor(picked))
    inputs = list(model.value_vars)
    outputs = substitute(graphs, natural_values(model))
    function = pytensor.function(inputs, outputs, mode=ONCE, on_unused_input="ignore")
    density = integrated_density(model, name, {})
    found, now, of_s, of_v = function(*(point[x.name] for x in inputs))
    entry = np.zeros(point[model.rvs_to_values[v].name].shape)
    entry.flat[picked] = 1
    expected, sums = [], []
    for shift_of_s, shift_of_v in zip(of_s, of_v, strict=True):
        by = {s: shift_of_s, v: shift_of_v * entry}
        names = {model.rvs_to_values[rv].name: shift for rv, shift in by.items()}
        there = point | {stored: point[stored] + shift for stored, shift in names.items()}
        expected.append(density(there))
        sums.append(function(*(there[x.name] for x in inputs))[1])
    expected = np.array(expected)
    assert abs(of_s[0]) > 0.01
    return not (
        np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-9)
        and np.allclose(sums, now, rtol=1e-10)
    )


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    assert not differ(CASES[case]())


PLANTS = {
    "no Jacobian": ("log_density", lambda right, move, t, k: right(move, t, k) - t / 9),
    "sum not held": ("shifts", lambda right, move, t, k: (-t / 9, right(move, t, k)[1])),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    plant(monkeypatch, NoiseExchange, *PLANTS[error])
    assert differ(CASES["by hand"]())


def test_shifts_lead_along_t():
    """The logit of the response's share of the sum moves by the shift, whatever the exponents."""
    model = built(by_hand)
    _, [move, *_] = moves_of(model)
    point, k = random_point(model, 4), pt.as_tensor(2)
    e = pt.sqr(move.likelihood.rows.design[0, 2]) * move.likelihood.variance[2]
    d = 1 / move.likelihood.weight[0, 0]
    graphs = substitute([*move.shifts(pt.as_tensor(SHIFTS), k), d, e], natural_values(model))
    inputs = list(model.value_vars)
    function = pytensor.function(inputs, graphs, mode=ONCE, on_unused_input="ignore")
    of_s, of_v, d, e = function(*(point[x.name] for x in inputs))
    moved = np.log(d * np.exp(2 * of_s)) - np.log(e * np.exp(-of_v))
    np.testing.assert_allclose(moved, np.log(d / e) + SHIFTS)


def test_what_is_left():
    """Several outputs, noise of samples, missing entries, a scale of both, a scale by another."""

    def of_samples():
        by_hand(of_y=pm.HalfNormal("of_y") * np.arange(1.0, 6.0))

    def of_both():
        s = pm.LogNormal("own", 0.0, 1.0)
        by_hand(of_y=s, own=s)

    def by_another():
        s = pm.LogNormal("of_y", 0.0, 1.0)
        by_hand(of_y=s, own=pm.Gamma("own", 2.0, s, shape=3))

    left = [built(of_samples), built(of_both), built(by_another)]
    left += [nns.bow_tie(X, np.stack([Y, -Y], 1), hidden=(3,)), built(by_hand, own=2.0)]
    left += [built(by_hand, seen=[0, 0, 1])]
    for model in left:
        assert moves_of(model)[1] == []


def z_scores():
    """Of moments of both scales after a draw from points of their priors, under which it stays."""
    model = built(by_hand)
    _, [move, *_] = moves_of(model)
    s, v = move.draws
    rng = pytensor.shared(np.random.default_rng(5))
    draw = move.draw(rng, {})
    outputs = substitute([draw.values[s], draw.values[v]], natural_values(model))
    inputs = [model.rvs_to_values[rv] for rv in (s, v, model["v"])]
    options = c_by_default() | {"on_unused_input": "ignore", "trust_input": True}
    function = pytensor.function(inputs, outputs, updates={rng: draw.rng}, **options)
    prior, n = np.random.default_rng(6), 5_000
    logs = np.log(prior.gamma(2.0, size=(n, 4)))
    drawn = [function(each[:1].reshape(()), each[1:], prior.normal(size=3)) for each in logs]
    moved = np.log([[of_s, *of_v] for of_s, of_v in drawn])
    assert np.all(np.count_nonzero(moved[:, 1:] != logs[:, 1:], axis=1) <= 1)
    moved -= digamma(2.0)
    powers = np.column_stack([moved, moved**2 - polygamma(1, 2.0), moved[:, :1] * moved[:, 1:]])
    return powers.mean(0) / powers.std(0) * np.sqrt(n)


def test_draws_leave_the_prior_of_both_scales():
    """Given all else but the activations the density of the data is held."""
    assert np.abs(z_scores()).max() < Z_LIMIT


DRAWN = {
    "no Jacobian": ("log_density", lambda right, move, t, k: right(move, t, k) - t / 2),
    "another unit": ("log_density", lambda right, move, t, k: right(move, t, (k + 1) % 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("error", DRAWN)
def test_planted_errors_of_draws_are_seen(error, monkeypatch):
    plant(monkeypatch, NoiseExchange, *DRAWN[error])
    assert np.abs(z_scores()).max() > Z_LIMIT

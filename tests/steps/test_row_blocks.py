"""A log density that is evaluated in blocks of rows, and what is not."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.steps import flat
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.row_blocks import by_row
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(25, 2)), RNG.normal(size=25)


def varying_noise():
    """A network in the mean and the scale; weights of both are moved, precisions are not."""
    model = nns.hierarchical_mlp(X, Y, hidden=(2,), sigma="network", likelihood="student_t")
    return model, [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def classes():
    """Integers and a matrix of probabilities; what is computed of the inputs has rows too."""
    with pm.Model() as model:
        x, labels = pm.Data("x", X), pm.Data("labels", (3 * Y).astype(int) % 3)
        w = pm.Normal("w", shape=(2, 3))
        pm.Categorical("y", logit_p=pm.math.exp(x) @ w, observed=labels)
    return model, [w]


def one_column():
    """The length of the only column is stated in the graph, that of the rows is None."""
    model = nns.hierarchical_mlp(X[:, :1], Y > 0, hidden=(2,), likelihood="bernoulli")
    return model, [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def density_in_blocks(monkeypatch, build, rows):
    model, rvs = build()
    density = FlatDensity(model, rvs, {"mode": AS_WRITTEN})
    point = {k: RNG.normal(size=np.shape(v)) for k, v in model.initial_point().items()}
    monkeypatch.setattr(flat, "ROWS", rows)
    located = density.read(point)
    return model, rvs, point, located.layouts.shape[0], density(located)


@pytest.mark.parametrize("build", [varying_noise, classes, one_column])
@pytest.mark.parametrize("rows", [4, 100])
def test_density(monkeypatch, build, rows):
    """Priors counted in each block; rows left out, counted twice, or of other targets."""
    model, rvs, point, n_blocks, found = density_in_blocks(monkeypatch, build, rows)
    factors = [*rvs, model["y"]]
    value = model.compile_logp(vars=factors, mode=AS_WRITTEN)(point)
    slopes = model.compile_dlogp(vars=rvs, mode=AS_WRITTEN)(point)
    assert n_blocks == (7 if rows == 4 else 1)
    np.testing.assert_allclose(found[0], value, rtol=1e-10)
    np.testing.assert_allclose(found[1:], slopes, rtol=1e-9, atol=1e-10)


def test_other_data(monkeypatch):
    """Lengths of blocks that were kept."""
    model, rvs = classes()
    density = FlatDensity(model, rvs, {"mode": AS_WRITTEN})
    monkeypatch.setattr(flat, "ROWS", 4)
    point = {"w": RNG.normal(size=(2, 3))}
    whole = density(density.read(point))
    with model:
        pm.set_data({"x": X[:9], "labels": (3 * Y[:9]).astype(int) % 3})
    part = density.read(point)
    assert len(part.layouts) == 3
    with model:
        pm.set_data({"x": X[9:], "labels": (3 * Y[9:]).astype(int) % 3})
    prior = model.compile_logp(vars=rvs, mode=AS_WRITTEN)(point)
    rest = density(density.read(point))[0] + density(part)[0]
    np.testing.assert_allclose(rest - prior, whole[0], rtol=1e-10)


def random_walk(x, seen, w):
    pm.Normal("y", (x @ w).cumsum(), observed=seen)


def centred(x, seen, w):
    pm.Normal("y", x @ w - (x @ w).mean(), observed=seen)


def own_rows(x, seen, w):
    pm.Normal("y", x @ w + Y, observed=seen)


def latent_rows(x, seen, w):
    pm.Normal("y", x @ w + pm.Normal("latent", shape=25), observed=seen)


def vector(x, seen, w):
    pm.MvNormal("y", x @ w, np.eye(25), observed=seen)


def potential(x, seen, w):
    pm.Normal("y", x @ w, observed=seen)
    pm.Potential("more", (x @ w).sum())


def known_targets(x, seen, w):
    pm.Normal("y", x @ w, observed=Y)


def density_of_the_sum(x, seen, w):
    pm.CustomDist("y", x @ w, logp=lambda value, mean: -pt.sqr((value - mean).sum()), observed=seen)


@pytest.mark.parametrize(
    "observe",
    [
        *(random_walk, centred, own_rows, latent_rows, vector, potential, known_targets),
        density_of_the_sum,
    ],
)
def test_rows_that_depend_on_others_stay_together(observe):
    """Also those that meet numbers which no container holds, or that another term sees."""
    with pm.Model() as model:
        x, seen, w = pm.Data("x", X), pm.Data("seen", Y), pm.Normal("w", shape=2)
        observe(x, seen, w)
    assert by_row(model, [*model.basic_RVs, *model.potentials]).factors == ()

"""Random walks and autoregressions against the model's own density, and their kernel."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.bands import draw_tridiagonal
from pymc_nnsteps.laws import match, multivariate

RNG = np.random.default_rng(8)


def several_series():
    """Walks and autoregressions, alone and in batches, seen in all ways that are known."""
    first = pm.Normal.dist
    s, mu = pm.HalfNormal("s"), pm.Normal("mu")
    walk = pm.GaussianRandomWalk("walk", mu=mu, sigma=s, init_dist=first(0.3, 2), shape=6)
    pm.Normal("y", 2 * walk[[0, 1, 1, 5]] + 1, 0.5, observed=RNG.normal(size=4))
    pm.Binomial("n", 3, logit_p=0.7 * walk, observed=[0, 1, 2, 3, 1, 1])
    drift, sd = [0.1, 0.2, -0.5], [1, 2, 0.3]
    starts = first([1.0, 2.0, 3.0], [2.0, 1.0, 1.0])
    walks = pm.GaussianRandomWalk("walks", mu=drift, sigma=sd, init_dist=starts, shape=(3, 5))
    slopes = RNG.normal(size=(5, 3))
    pm.Normal("of walks", walks.T * slopes + mu, 0.5, observed=slopes)
    ar = pm.AR("ar", rho=pm.Normal("rho", shape=1), sigma=s, init_dist=first(1, 0.5), shape=6)
    pm.LogNormal("of ar", ar - 1, 0.5, observed=np.exp(RNG.normal(size=6)))
    ars = pm.AR(
        "ars", rho=[0.4, -0.9], sigma=0.7, constant=True, init_dist=first(1, 0.5), shape=(2, 4)
    )
    pm.Bernoulli("of ars", logit_p=ars[..., None], observed=RNG.integers(2, size=(2, 4, 2)))


def test_laws_are_those_of_the_model(monkeypatch):
    """A lost drift, a slope that is not squared, an innovation at the wrong time."""
    with pm.Model() as model:
        several_series()
    rows = nns.verify(model, random_seed=0).rows
    assert [row[:2] for row in rows] == [
        (name, "Gaussian series") for name in ("walk", "walks", "ar", "ars")
    ]
    exact = as_op(draw_tridiagonal, 2)

    def wrong(diagonal, above, *rest):
        return exact(diagonal, -above, *rest)

    monkeypatch.setattr(multivariate, "as_op", lambda *kernel: wrong)
    with pytest.raises(AssertionError, match="walk: the log density of its conditional differs"):
        nns.verify(model, random_seed=0)


def test_kernel():
    """A neighbour lost, a transposed factor."""
    n_times = 7
    diagonal, above = 3 + RNG.random((2, n_times)), RNG.normal(size=(2, n_times))
    linear, noise = RNG.normal(size=(2, 2, n_times))
    drawn = draw_tridiagonal(diagonal, above, linear, noise)
    for k in range(2):
        precision = np.diag(diagonal[k]) + np.diag(above[k, :-1], 1) + np.diag(above[k, :-1], -1)
        factor = np.linalg.cholesky(precision)
        expected = np.linalg.solve(precision, linear[k]) + np.linalg.solve(factor.T, noise[k])
        np.testing.assert_allclose(drawn[k], expected, rtol=1e-10)
    with pytest.raises(ValueError, match="not positive definite"):
        draw_tridiagonal(-diagonal, above, linear, noise)


DECLINED = {
    "order two": (
        lambda: pm.AR("v", rho=[0.4, 0.2], sigma=1, init_dist=pm.Normal.dist(), shape=4),
        None,
        "order 2, not 1",
    ),
    "sums of times": (
        lambda: pm.GaussianRandomWalk("v", init_dist=pm.Normal.dist(), shape=4),
        lambda v: v.cumsum(),
        "child y depends on it at several times at once",
    ),
    "other innovations": (
        lambda: pm.RandomWalk(
            "v", init_dist=pm.Normal.dist(), innovation_dist=pm.Laplace.dist(0, 1), shape=4
        ),
        None,
        "an innovation is Laplace, not Normal",
    ),
    "vectors": (
        lambda: pm.MvGaussianRandomWalk(
            "v", mu=np.zeros(2), chol=np.eye(2), init_dist=pm.MvNormal.dist(np.zeros(2), np.eye(2)),
            shape=(4, 2),
        ),
        None,
        "its value at each time is a vector",
    ),
    "kinks": (
        lambda: pm.GaussianRandomWalk("v", init_dist=pm.Normal.dist(), shape=4),
        abs,
        "the mean of child y is not affine in it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_a_reason(name):
    build, seen, reason = DECLINED[name]
    with pm.Model() as model:
        v = build()
        if seen is not None:
            pm.Normal("y", seen(v), 1.0, observed=np.zeros(4))
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        match(model, v)

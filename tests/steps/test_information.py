"""Information of responses in what their parameters are computed from, against sums over values."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.steps import information as module
from pymc_nnsteps.steps.information import Unaligned, information

COUNTS = np.arange(400)
LINE = np.linspace(-60, 60, 20_001)
TAILS = np.sinh(np.linspace(-14, 14, 20_001))
POSITIVE = np.exp(np.linspace(-25, 9, 20_001))
UNIT = 1 / (1 + np.exp(-np.linspace(-30, 30, 20_001)))
AT = (0.3, -0.6)
"""Place of two outputs."""


def softmax(u, v):
    return pm.Categorical.dist(logit_p=pt.stack([u, v, 0 * u], axis=1))


def ordered(u, v):
    cutpoints = np.array([-1.0, -0.4, 0.9])
    return pm.Categorical.dist(p=pm.OrderedLogistic.compute_p(u, cutpoints))


FAMILIES = {
    "normal": (LINE, lambda u, v: pm.Normal.dist(u, pt.exp(v))),
    "student_t": (TAILS, lambda u, v: pm.StudentT.dist(4.0, u, sigma=pt.exp(v))),
    "laplace": (LINE, lambda u, v: pm.Laplace.dist(u, pt.softplus(v))),
    "logistic": (LINE, lambda u, v: pm.Logistic.dist(u, pt.exp(v))),
    "cauchy": (TAILS, lambda u, v: pm.Cauchy.dist(u, pt.exp(v))),
    "gumbel": (LINE, lambda u, v: pm.Gumbel.dist(u, pt.exp(v))),
    "log_normal": (POSITIVE, lambda u, v: pm.LogNormal.dist(u, pt.exp(v))),
    "exponential": (POSITIVE, lambda u, v: pm.Exponential.dist(pt.exp(u))),
    "weibull": (POSITIVE, lambda u, v: pm.Weibull.dist(pt.exp(v), pt.exp(u))),
    "whole_scale": (LINE, lambda u, v: pm.Normal.dist(u, 2)),
    "gamma": (POSITIVE, lambda u, v: pm.Gamma.dist(mu=pt.exp(u), sigma=pt.exp(v))),
    "inverse_gamma": (POSITIVE, lambda u, v: pm.InverseGamma.dist(4 + pt.exp(v), pt.exp(u))),
    "beta": (UNIT, lambda u, v: pm.Beta.dist(mu=pt.sigmoid(u), nu=9 * pt.exp(v))),
    "poisson": (COUNTS, lambda u, v: pm.Poisson.dist(2 * pt.exp(u))),
    "negative_binomial": (COUNTS, lambda u, v: pm.NegativeBinomial.dist(pt.exp(u), 1.7)),
    "geometric": (COUNTS[1:], lambda u, v: pm.Geometric.dist(pt.sigmoid(u))),
    "bernoulli": (COUNTS[:2], lambda u, v: pm.Bernoulli.dist(logit_p=u)),
    "probit": (COUNTS[:2], lambda u, v: pm.Bernoulli.dist(p=pm.math.invprobit(u))),
    "binomial": (COUNTS[:8], lambda u, v: pm.Binomial.dist(7, logit_p=u)),
    "softmax": (COUNTS[:3], softmax),
    "ordered": (COUNTS[:4], ordered),
}


def found_and_summed(family):
    """Information in both outputs: as found, and the sum of squared scores over all values."""
    values, response = FAMILIES[family]
    u, v = (pt.TensorType("float64", (len(values),))(name) for name in "uv")
    y = response(u, v)
    found = [each[0] for each in information(y, pt.as_tensor(values), [u, v])]
    density = pm.logp(y, values)
    scores = pt.grad(density.sum(), [u, v], disconnected_inputs="ignore")
    step = np.ones(len(values)) if values.dtype.kind == "i" else np.gradient(values)
    summed = [(pt.exp(density) * step * score**2).sum() for score in scores]
    compute = pytensor.function([u, v], [*found, *summed], mode="FAST_COMPILE")
    found_u, found_v, *sums = compute(*(np.full(len(values), place) for place in AT))
    return np.array([found_u, found_v]), np.array(sums)


@pytest.mark.parametrize("family", FAMILIES)
def test_information(family):
    np.testing.assert_allclose(*found_and_summed(family), rtol=2e-4, atol=1e-9)


def test_a_wrong_weight_is_seen(monkeypatch):
    wrong = {pm.Poisson.rv_type: lambda mu: [(2 / mu, mu)]}
    monkeypatch.setattr(module, "DIRECTIONS", module.DIRECTIONS | wrong)
    with pytest.raises(AssertionError):
        test_information("poisson")


def test_scale_of_all_rows():
    """A parameter that all rows share has the information of all."""
    v = pt.dscalar("v")
    y = pm.Normal.dist(np.zeros(7), pt.exp(v))
    [found] = information(y, pt.zeros(7), [v])
    assert found.eval({v: 0.4}) == pytest.approx(14)


def test_what_rows_share_otherwise():
    v = pt.dscalar("v")
    y = pm.Normal.dist(np.arange(7.0) * v, 1)
    with pytest.raises(Unaligned, match="rows share"):
        information(y, pt.zeros(7), [v])


@pytest.mark.parametrize("bound", [0.8, 50.0])
def test_observed_information(bound):
    """Censored responses have squared scores, averaged over rows."""
    rng = np.random.default_rng(0)
    y = np.minimum(rng.normal(0.5, 2.0, size=4000), bound)
    u = pt.TensorType("float64", (4000,))("u")
    response = pm.Censored.dist(pm.Normal.dist(u, 2.0), lower=None, upper=bound)
    [found] = information(response, pt.as_tensor(y), [u])
    found = found.eval({u: np.full(4000, 0.5)})
    assert np.ptp(found) == 0
    assert (found[0] == pytest.approx(0.25, rel=0.1)) == (bound > 10)
    assert found[0] > 0.1

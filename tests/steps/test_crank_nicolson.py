"""What is particular to PCN and PCNL: their formulas, their sizes, and what they decline."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import CompoundStep
from scipy import linalg, stats

import pymc_nnsteps as nns
from pymc_nnsteps.steps.crank_nicolson import log_ratio, move
from pymc_nnsteps.steps.metropolis import ChainState
from tests.steps.gaussian import COV, PRIORS, WithoutGradient, design, regression

FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
PCN_AND_PCNL = [nns.PCN, nns.PCNL]


def beta_of(delta):
    return np.sqrt(8 * delta) / (2 + delta)


# --- formulas ------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-4, 0.1, 1.0, 1.9, 2.0])
def test_pcnl_in_general_coordinates(delta):
    """A factor in the drift or in rho, C g for L^T g, the misprinted bracket of eq. 9.

    Whatever ``l`` and its gradient are at two places, the ratio is that of the densities.
    """
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(COV)
    (u, v, g_u, g_v), (l_u, l_v) = rng.normal(size=(4, 3)), rng.normal(size=2)

    def proposal(x, g):
        mean = ((2 - delta) * x + 2 * delta * COV @ g) / (2 + delta)
        return stats.multivariate_normal(mean, 8 * delta / (2 + delta) ** 2 * COV)

    def place(x, g, log_density):
        xi = np.linalg.solve(root, x)
        parts = [log_density], [xi[:1], xi[1:]], [(root.T @ g)[:1], (root.T @ g)[1:]]
        (density,), coordinates, gradient = ([pt.constant(a) for a in part] for part in parts)
        return ChainState(density, coordinates, gradient)

    beta = pt.constant(beta_of(delta))
    prior = stats.multivariate_normal(np.zeros(3), COV)
    terms = np.array(
        [
            l_v + prior.logpdf(v),
            -l_u - prior.logpdf(u),
            proposal(v, g_v).logpdf(u),
            -proposal(u, g_u).logpdf(v),
        ]
    )
    ratio = log_ratio(place(u, g_u, l_u), place(v, g_v, l_v), beta).eval()
    assert abs(ratio - terms.sum()) < 1e-10 * np.abs(terms).max()
    w = rng.normal(size=3)
    moved = move(*map(pt.constant, (np.linalg.solve(root, u), root.T @ g_u, w)), beta).eval()
    expected = proposal(u, g_u).mean + np.sqrt(8 * delta) / (2 + delta) * root @ w
    np.testing.assert_allclose(root @ moved, expected, rtol=1e-10)


@pytest.mark.parametrize("beta", [0.01, 0.6, 1.0])
def test_pcn_in_general_coordinates(beta):
    """sqrt(1 - beta) for sqrt(1 - beta^2), or a ratio that has the prior in it."""
    root = np.linalg.cholesky(COV)
    u, v, w = np.random.default_rng(1).normal(size=(3, 3))

    def proposal(x):
        return stats.multivariate_normal(np.sqrt(1 - beta**2) * x, beta**2 * COV)

    prior = stats.multivariate_normal(np.zeros(3), COV)
    terms = np.array(
        [
            0.3 + prior.logpdf(v),
            -0.7 - prior.logpdf(u),
            proposal(v).logpdf(u),
            -proposal(u).logpdf(v),
        ]
    )
    here, there = (ChainState(pt.constant(value), [], []) for value in (0.7, 0.3))
    ratio = log_ratio(here, there, pt.constant(beta)).eval()
    assert abs(ratio - terms.sum()) < 1e-10 * np.abs(terms).max()
    xi, noise = pt.constant(np.linalg.solve(root, u)), pt.constant(w)
    moved = root @ move(xi, None, noise, pt.constant(beta)).eval()
    np.testing.assert_allclose(moved, proposal(u).mean + beta * root @ w, rtol=1e-10)


class ByHand:
    """The posterior of ``regression(PRIORS["several"], link=tanh)``, in NumPy."""

    noise = 0.5

    def __init__(self):
        self.prior = PRIORS["several"]
        self.A, self.y = design(len(self.prior.mean))
        root = np.linalg.cholesky(COV)
        self.root = linalg.block_diag(2.0, root, np.diag([0.5, 0.5, 1.5, 1.5]))

    def log_likelihood(self, theta):
        residual = self.y - np.tanh(self.A @ theta)
        constant = np.log(self.noise * np.sqrt(2 * np.pi)) * len(self.y)
        return -residual @ residual / (2 * self.noise**2) - constant

    def gradient(self, theta):
        fitted = np.tanh(self.A @ theta)
        return self.A.T @ ((self.y - fitted) / self.noise**2 * (1 - fitted**2))

    def pcn(self, theta, z, beta):
        m = self.prior.mean
        proposed = m + np.sqrt(1 - beta**2) * (theta - m) + beta * self.root @ z
        return proposed, self.log_likelihood(proposed) - self.log_likelihood(theta)

    def pcnl(self, theta, z, delta):
        m, C = self.prior.mean, self.prior.covariance
        drift = 2 * delta * C @ self.gradient(theta) + np.sqrt(8 * delta) * self.root @ z
        proposed = m + ((2 - delta) * (theta - m) + drift) / (2 + delta)

        def rho(a, b):
            u, v, g = a - m, b - m, self.gradient(a)
            squares = delta / 4 * g @ C @ g
            return -self.log_likelihood(a) - (v - u) @ g / 2 - delta / 4 * (u + v) @ g + squares

        return proposed, rho(theta, proposed) - rho(proposed, theta)


@pytest.mark.parametrize(
    ("kind", "size", "propose"),
    [(nns.PCN, {"beta": 0.3}, ByHand.pcn), (nns.PCNL, {"delta": 0.2}, ByHand.pcnl)],
)
def test_chain_is_that_of_numpy(kind, size, propose):
    """A stale place after a rejection, an accept for a reject, another l, another stream."""
    target = ByHand()
    model, variables = regression(target.prior, link=pm.math.tanh, noise=target.noise)
    step = kind(variables, model=model, **size)
    step.setup_chain(np.random.default_rng(7), 0, 200)
    rng = np.random.default_rng(7)
    point = model.initial_point()
    theta = target.prior.mean
    accepted = 0
    for _ in range(200):
        proposed, log_ratio = propose(target, theta, rng.standard_normal(8), *size.values())
        if rng.uniform() < np.exp(min(0.0, log_ratio)):
            theta = proposed
            accepted += 1
        point, [stats_] = step.step(point)
        sampled = np.concatenate([np.ravel(point[value.name]) for value in step.vars])
        np.testing.assert_allclose(sampled, theta, rtol=1e-9, atol=1e-9)
        expected = np.exp(min(0.0, log_ratio))
        np.testing.assert_allclose(stats_["acceptance_probability"], expected, rtol=1e-8)
        np.testing.assert_allclose(stats_["log_likelihood"], target.log_likelihood(theta))
    assert 50 < accepted < 200


# --- sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-6, 0.1, 1.0, 2.0, 1, np.float32(0.5)])
def test_delta_is_stated_as_beta(delta):
    model, variables = regression(PRIORS["normal"])
    first = nns.PCNL(variables, delta=delta, model=model, **FAST)
    second = nns.PCNL(variables, beta=beta_of(float(delta)), model=model, **FAST)
    assert first.size == pytest.approx(second.size, rel=1e-15)
    _, [statistics] = first.step(model.initial_point())
    assert statistics["proposal_size"] == first.size


@pytest.mark.slow
def test_no_delta_exceeds_beta_of_one():
    """Rounding near delta = 2: the root of a negative number, and nothing is accepted."""
    model, variables = regression(PRIORS["normal"])
    for delta in 2 - np.logspace(-16, -1, 16):
        step = nns.PCNL(variables, delta=delta, model=model, **FAST)
        assert 0 < step.size <= 1
    _, [statistics] = step.step(model.initial_point())
    assert statistics["acceptance_probability"] > 0


def test_defaults():
    """All Gaussian variables, and no others."""
    with pm.Model() as model:
        pm.Normal("a")
        pm.HalfNormal("b")
        pm.Normal("c", default_transform=pm.distributions.transforms.log)
        pm.MvNormal("d", np.zeros(2), cov=np.eye(2))
        pm.StudentT("e", 3)
    for kind in PCN_AND_PCNL:
        assert [value.name for value in kind(model=model, **FAST).vars] == ["a", "d"]


@pytest.mark.parametrize("given", ["d", ("d",), ["d", "d"]])
def test_ways_to_name_a_variable(given):
    with pm.Model() as model:
        d = pm.Normal("d")
        pm.Normal("other")
    assert [value.name for value in nns.PCN(given, model=model, **FAST).vars] == ["d"]
    assert [value.name for value in nns.PCN(d, model=model, **FAST).vars] == ["d"]
    value = model.rvs_to_values[d]
    assert nns.PCN(value, model=model, **FAST).vars == [value]


def test_a_step_for_each_variable():
    """PyMC's ``blocked=False``: priors that depend on each other are then no obstacle."""
    with pm.Model():
        mu = pm.Normal("mu")
        theta = pm.Normal("theta", mu, shape=2)
        step = nns.PCN([mu, theta], beta=0.5, blocked=False, **FAST)
    assert isinstance(step, CompoundStep)
    assert [[v.name for v in method.vars] for method in step.methods] == [["mu"], ["theta"]]


# --- what is declined ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        g = pm.Normal("g", f, 1)
        pm.LogNormal("rate")
        pm.Poisson("count", 2)
        pm.Normal("size", 0, 1, default_transform=pm.distributions.transforms.log)
        pm.ZeroSumNormal("contrast", 1, shape=3)
        pm.Normal("y", g, 1, observed=[1.0, 2.0])
    return model


BAD = {
    "lognormal": ({"vars": ["rate"]}, "^rate has the prior LogNormal .*, but this step needs"),
    "discrete": ({"vars": ["f", "count"]}, "^count has the prior Poisson"),
    "zero sum": ({"vars": ["contrast"]}, "^contrast has the prior ZeroSumNormal"),
    "transformed": ({"vars": ["size"]}, "^size has the prior .* with the transform LogTransform"),
    "block": ({"vars": ["f", "g"]}, "^g has a prior that depends on f, a variable of the same"),
    "unknown": ({"vars": ["h"]}, "^vars must be free variables of the model .*; got 'h'"),
    "no variable": ({"vars": [3]}, "^vars must be free variables of the model .*; got 3"),
    "beta = 0": ({"beta": 0}, "^beta must be a positive number up to 1; got 0"),
    "beta > 1": ({"beta": 1.01}, "^beta must be a positive number up to 1; got 1.01"),
    "beta text": ({"beta": "a"}, "^beta must be a positive number up to 1; got 'a'"),
    "beta nan": ({"beta": np.nan}, "^beta must be .*; got nan"),
    "beta bool": ({"beta": True}, "^beta must be .*; got True"),
    "target 1": ({"target_accept": 1}, "^target_accept must be a positive number below 1; got 1"),
    "target 0": ({"target_accept": 0.0}, "^target_accept must be .*; got 0.0"),
    "steps 0": ({"steps": 0}, "^steps must be a positive integer; got 0"),
    "steps 1.5": ({"steps": 1.5}, "^steps must be a positive integer; got 1.5"),
}
BAD_DELTA = {
    "both": ({"delta": 0.1, "beta": 0.1}, "^delta and beta are two names for one step size"),
    "delta = 0": ({"delta": 0.0}, "^delta must be a positive number up to 2; got 0.0"),
    "delta > 2": ({"delta": 2.1}, "^delta must be a positive number up to 2; got 2.1"),
    "delta inf": ({"delta": np.inf}, "^delta must be .*; got inf"),
}


@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for kind in PCN_AND_PCNL for case in BAD.values()]
    + [(nns.PCNL, case) for case in BAD_DELTA.values()],
    ids=[f"{kind.__name__}-{name}" for kind in PCN_AND_PCNL for name in BAD]
    + [f"PCNL-{name}" for name in BAD_DELTA],
)
def test_wrong_arguments(kind, case, model):
    arguments, message = case
    with pytest.raises(ValueError, match=message):
        kind(**{"vars": ["f"], "model": model} | arguments)


@pytest.mark.parametrize("kind", PCN_AND_PCNL)
def test_default_variables_that_depend_on_each_other(kind, model):
    with pytest.raises(ValueError, match="g has a prior that depends on f"):
        kind(model=model)


@pytest.mark.parametrize("kind", PCN_AND_PCNL)
def test_no_gaussian_variable(kind):
    with pm.Model():
        pm.LogNormal("rate")
        with pytest.raises(ValueError, match="No free variable of the model has a Normal or MvN"):
            kind()


def test_likelihood_without_gradient():
    """PCN needs none; PCNL says so, and names what it cannot differentiate for."""
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        pm.Potential("p", WithoutGradient()(f))
    with pytest.raises(ValueError, match=r"no gradient with respect to f \(.*; use PCN"):
        nns.PCNL([f], model=model)
    step = nns.PCN([f], beta=0.5, model=model)
    point, [statistics] = step.step(model.initial_point())
    np.testing.assert_allclose(statistics["log_likelihood"], -np.sum(point["f"] ** 2))


def test_no_gradient_is_needed_of_what_does_not_depend_on_the_block():
    """A likelihood that has no gradient, but with respect to another step's variable."""
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        g = pm.Normal("g", 0, 1, shape=2)
        pm.Potential("p", WithoutGradient()(g) - pt.sqr(f).sum())
    _, [statistics] = nns.PCNL([f], delta=0.1, model=model).step(model.initial_point())
    assert statistics["acceptance_probability"] > 0.5

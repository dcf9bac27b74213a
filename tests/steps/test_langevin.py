"""What is particular to MALA: its formula, transforms, the preconditioner, what it declines."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_nnsteps as nns
from pymc_nnsteps.steps.langevin import mala_log_ratio, mala_move
from pymc_nnsteps.steps.metropolis import ChainState
from tests.cases import quick, slow
from tests.statistics import assert_chain_moments
from tests.steps.balance import assert_balance
from tests.steps.chains import chain
from tests.steps.gaussian import WithoutGradient

# --- formulas ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
def test_in_general_coordinates(epsilon):
    """A factor in the drift or in the squares, M g for M^{1/2} g."""
    rng = np.random.default_rng(0)
    scale = np.array([0.5, 2.0, 1.0])
    (u, v, g_u, g_v, w), (p_u, p_v) = rng.normal(size=(5, 3)), rng.normal(size=2)

    def proposal(x, g):
        mean = x + epsilon**2 / 2 * scale**2 * g
        return stats.multivariate_normal(mean, epsilon**2 * np.diag(scale**2))

    def place(x, g, log_density):
        xi, slope = x / scale, scale * g
        parts = [log_density], [xi[:1], xi[1:]], [slope[:1], slope[1:]]
        (density,), coordinates, gradient = ([pt.constant(a) for a in part] for part in parts)
        return ChainState(density, coordinates, gradient)

    terms = np.array(
        [p_v, -p_u, proposal(v, g_v).logpdf(u), -proposal(u, g_u).logpdf(v)],
    )
    ratio = mala_log_ratio(place(u, g_u, p_u), place(v, g_v, p_v), pt.constant(epsilon)).eval()
    assert abs(ratio - terms.sum()) < 1e-10 * np.abs(terms).max()
    moved = mala_move(*map(pt.constant, (u / scale, scale * g_u, w, np.array(epsilon)))).eval()
    np.testing.assert_allclose(
        scale * moved, proposal(u, g_u).mean + epsilon * scale * w, rtol=1e-12
    )


PRECONDITIONERS = {
    "none": (None, [1, 1, 1, 1, 1]),
    "by name": ({"b": 4.0}, [1, 1, 4, 4, 1]),
    "by variable": ("variable", [1, 1, 1, 1, 0.25]),
    "all": ({"a": [0.5, 2.0], "b": np.array([[1.5, 0.1]]), "c": 9.0}, [0.5, 2, 1.5, 0.1, 9]),
}


@pytest.mark.parametrize("name", quick(PRECONDITIONERS, {"none", "by variable"}))
def test_balance_with_a_preconditioner(name):
    """A variance for a scale; the preconditioner of one variable applied to another."""
    given, diagonal = PRECONDITIONERS[name]
    with pm.Model() as model:
        a = pm.Normal("a", 1.0, 2.0, shape=2)
        b = pm.Normal("b", a, 0.5, shape=(1, 2))
        c = pm.Gamma("c", 2, 1)
        pm.Normal("y", pm.math.tanh(b), c, observed=[[1.0, 2.0]])
    given = {c: 0.25} if given == "variable" else given
    step = nns.MALA([a, b, c], step_size=0.3, preconditioner=given, model=model)
    point = {
        "a": np.array([0.3, -1.0]),
        "b": np.array([[0.7, -0.2]]),
        "c_log__": np.array(0.4),
    }
    assert_balance(step, model, point, None, np.diag(diagonal).astype(float), 0.3)


# --- transformed variables, in closed form -------------------------------------------------


def gamma():
    """Precision of normal data."""
    y = np.array([0.3, -1.2, 0.5, 2.0])
    tau = pm.Gamma("tau", 2, 1.5)
    pm.Normal("y", 0, tau=tau, observed=y)
    return [stats.gamma(2 + 2, scale=1 / (1.5 + y @ y / 2))]


def beta():
    p = pm.Beta("p", 1.5, 2.5)
    pm.Binomial("y", 7, p, observed=5)
    return [stats.beta(6.5, 4.5)]


def uniform():
    """Bounds on both sides, one of which is data."""
    x = pm.Uniform("x", -1.0, pm.Data("upper", 2.0))
    pm.Normal("y", x, 1.5, observed=0.5)
    return [stats.truncnorm(-1.0, 1.0, loc=0.5, scale=1.5)]


def several():
    """Three variables in one block, of different laws and shapes."""
    tau = pm.Gamma("tau", 3, 2, shape=2)
    p = pm.Beta("p", 2, 2)
    x = pm.Normal("x", 1.0, 2.0)
    y = np.array([1.0, -0.4])
    pm.Normal("y", 0, tau=tau, observed=y)
    pm.Binomial("z", 3, p, observed=2)
    pm.Normal("w", x, 2.0, observed=0.0)
    return [
        *(stats.gamma(3.5, scale=1 / (2 + 0.5 * each**2)) for each in y),
        stats.beta(4, 3),
        stats.norm(0.5, np.sqrt(2)),
    ]


NATURAL = {
    "tau_log__": np.exp,
    "p_logodds__": special.expit,
    "x_interval__": lambda x: -1 + 3 * special.expit(x),
    "x": lambda x: x,
}


@pytest.mark.parametrize(
    ("build", "step_size", "preconditioner"),
    [
        (gamma, 0.7, {"tau": 0.5}),
        slow(gamma, 0.5, None),
        (beta, 1.0, None),
        slow(uniform, 1.5, None),
        slow(several, 0.8, {"x": 2.0, "tau": [0.3, 0.3], "p": 0.7}),
    ],
)
def test_law_of_transformed_variables(build, step_size, preconditioner):
    """A Jacobian left out or counted twice: the normal scores of the draws tell."""
    with pm.Model() as model:
        laws = build()
    step = nns.MALA(step_size=step_size, preconditioner=preconditioner, model=model, steps=3)
    draws = chain(step, model.initial_point(), 10_000, burn=100)[0]
    names = [v.name for v in step.vars for _ in range(np.size(model.initial_point()[v.name]))]
    scores = [
        special.ndtri(law.cdf(NATURAL[name](column)))
        for name, law, column in zip(names, laws, draws.T, strict=True)
    ]
    assert_chain_moments(np.stack(scores, axis=1), np.zeros(len(laws)), np.eye(len(laws)))


def test_law_of_a_bound_that_moves():
    """A transform whose bound is a variable of the same block: both Jacobians count.

    ``v = u r`` with ``u`` lognormal and ``r`` uniform, which are independent a priori.
    """
    with pm.Model() as model:
        u = pm.LogNormal("u", 0.3, 0.6)
        pm.Uniform("v", 0, u)
    step = nns.MALA(step_size=1.0, preconditioner={"v": 3.0, "u": 0.36}, model=model, steps=3)
    log_u, logit_r = chain(step, model.initial_point(), 10_000, burn=100)[0].T
    scores = np.stack([(log_u - 0.3) / 0.6, special.ndtri(special.expit(logit_r))], axis=1)
    assert_chain_moments(scores, np.zeros(2), np.eye(2))


# --- what is declined ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        pm.HalfNormal("scale")
        pm.Poisson("count", 2)
        pm.Bernoulli("sign", 0.5)
        pm.Normal("y", f, 1, observed=[1.0, 2.0])
    return model


BAD = {
    "discrete": ({"vars": ["f", "count", "sign"]}, "^count, sign is discrete, but MALA"),
    "all": ({"vars": None}, "^count, sign is discrete, but MALA"),
    "unknown": ({"vars": ["h"]}, "^vars must be free variables of the model .*; got 'h'"),
    "step size 0": ({"step_size": 0}, "^step_size must be a positive number; got 0"),
    "step size inf": ({"step_size": np.inf}, "^step_size must be a positive number; got inf"),
    "step size bool": ({"step_size": True}, "^step_size must be a positive number; got True"),
    "target 1": ({"target_accept": 1}, "^target_accept must be a positive number below 1; got 1"),
    "steps 0": ({"steps": 0}, "^steps must be a positive integer; got 0"),
    "preconditioner of another": (
        {"preconditioner": {"scale": 1.0, "f": 1.0}},
        "^preconditioner has scale, which this step does not sample",
    ),
    "preconditioner of none": (
        {"preconditioner": {"h": 1.0}},
        "^preconditioner has h, which this step does not sample",
    ),
    "preconditioner shape": (
        {"preconditioner": {"f": [1.0, 2.0, 3.0]}},
        r"^preconditioner of f has shape \(3,\), but the unconstrained values have \(2,\)",
    ),
    "preconditioner matrix": (
        {"preconditioner": {"f": np.ones((2, 2))}},
        r"^preconditioner of f has shape \(2, 2\), but the unconstrained values have \(2,\)",
    ),
    "preconditioner 0": (
        {"preconditioner": {"f": [1.0, 0.0]}},
        "^preconditioner of f must be positive and finite",
    ),
    "preconditioner inf": (
        {"preconditioner": {"f": np.inf}},
        "^preconditioner of f must be positive and finite",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments(name, model):
    arguments, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        nns.MALA(**{"vars": ["f"], "model": model} | arguments)


def test_density_without_gradient():
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        pm.Potential("p", WithoutGradient()(f))
    with pytest.raises(ValueError, match="no gradient with respect to f"):
        nns.MALA([f], model=model)

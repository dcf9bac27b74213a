"""Detailed balance, to the last digit, of every Metropolis-Hastings step on many models."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytest
from pymc.exceptions import ImputationWarning
from pytensor import sparse
from scipy.sparse import csr_matrix

import pymc_nnsteps as nns
from tests.cases import slow
from tests.steps.balance import assert_balance
from tests.steps.gaussian import COV, MEAN, PRIORS, regression

SIZES = {nns.PCN: ("beta", 0.4), nns.PCNL: ("delta", 0.1), nns.MALA: ("step_size", 0.2)}
GAUSSIAN_STEPS = [nns.PCN, nns.PCNL]


def check(kind, model, variables, mean, covariance, seed=0, size=None, **options):
    """Balance at a random place, everything else at its initial value."""
    name, usual = SIZES[kind]
    size = usual if size is None else size
    step = kind(variables, model=model, **{name: size})
    rng = np.random.default_rng(seed)
    point = model.initial_point()
    for value in step.vars:
        point[value.name] = rng.normal(size=np.shape(point[value.name]))
    if kind is nns.MALA:
        covariance = np.eye(sum(point[value.name].size for value in step.vars))
    assert_balance(step, model, point, mean, covariance, size, **options)


@pytest.mark.parametrize("kind", GAUSSIAN_STEPS)
@pytest.mark.parametrize("name", ["normal", "several", "tau", "batch, chol", "repeated, cov"])
def test_priors(name, kind):
    """A factor in rho or in the drift, a forgotten mean, C for L^T, a sign."""
    prior = PRIORS[name]
    model, variables = regression(prior, link=pm.math.tanh, noise=0.3)
    check(kind, model, variables, prior.mean, prior.covariance)


@pytest.mark.parametrize("name", ["several", "cov"])
def test_priors_under_mala(name):
    """The prior's density left out, or counted twice."""
    model, variables = regression(PRIORS[name], link=pm.math.tanh, noise=0.3)
    check(nns.MALA, model, variables, PRIORS[name].mean, None)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (nns.PCN, 1.0),
        (nns.PCN, 0.999),
        (nns.PCN, 0.01),
        (nns.PCNL, 2.0),
        (nns.PCNL, 1.9),
        (nns.PCNL, 1e-4),
        (nns.MALA, 3.0),
        (nns.MALA, 0.001),
    ],
)
def test_step_sizes(kind, size):
    """A formula that holds at small steps only, such as sqrt(1 - beta) or 2 - delta for 2."""
    prior = PRIORS["cov"]
    model, variables = regression(prior, link=pm.math.tanh, noise=0.3)
    check(kind, model, variables, prior.mean, prior.covariance, size=size)


# --- other things that a model may hold ----------------------------------------------------

VARIANCES = np.diag([0.25, 2.25, 1.0])
MISSING = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])


def states_f():
    return pm.Normal("f", MEAN, [0.5, 1.5, 1.0])


def total_size():
    f = states_f()
    pm.Normal("y", pm.math.tanh(f).sum(), 1, observed=[1.0, 2.0], total_size=50)
    return [f], MEAN, VARIANCES


def imputed_data():
    f = states_f()
    with pytest.warns(ImputationWarning):
        pm.Normal("y", pm.math.tanh(f), 0.5, observed=MISSING)
    return [f], MEAN, VARIANCES


def imputed_in_the_block():
    mu = pm.Normal("mu", initval=0.7)
    with pytest.warns(ImputationWarning):
        y = pm.Normal("y", mu, [0.5, 1.5, 1.0], observed=MISSING)
    pm.Normal("z", y**2, 1.0, observed=[1.0, 2.0, 3.0])
    return ["y_unobserved"], [0.7], [[2.25]]


def bounded_by_the_block():
    """The unconstrained value of ``t`` is held, so that ``t`` itself moves with ``f``."""
    f = states_f()
    t = pm.Uniform("t", lower=f, upper=f + pm.math.exp(f))
    pm.Normal("y", t, 0.3, observed=[1.0, 2.0, 3.0])
    pm.Potential("p", -pm.math.sqr(t).sum())
    return [f], MEAN, VARIANCES


def truncated():
    f = states_f()
    t = pm.Truncated("t", pm.Normal.dist(f, 1), lower=pm.math.exp(f))
    pm.Normal("y", t, 0.3, observed=[1.0, 2.0, 3.0])
    return [f], MEAN, VARIANCES


def censored():
    f = states_f()
    pm.Censored("y", pm.Normal.dist(f, 1), lower=0, upper=2, observed=[1.0, 2.0, 0.0])
    return [f], MEAN, VARIANCES


def mixture():
    f = states_f()
    pm.NormalMixture("y", w=[0.3, 0.2, 0.5], mu=f, sigma=0.5, observed=[1.0, 2.0, 0.0])
    return [f], MEAN, VARIANCES


def discrete_others():
    k = pm.Poisson("k", 3)
    z = pm.Bernoulli("z", 0.5, shape=3)
    f = pm.Normal("f", MEAN * (1 + k), [0.5, 1.5, 1.0])
    pm.Normal("y", pm.math.tanh(f) + z, 0.5, observed=[1.0, 2.0, 0.0])
    return [f], MEAN * 4, VARIANCES


def potentials():
    f = states_f()
    pm.Deterministic("unused", f.sum())
    d = pm.Deterministic("d", pm.math.exp(f / 4))
    pm.Potential("p", -(d.sum() ** 2) / 10)
    pm.Potential("constant", pm.math.constant(3.0))
    return [f], MEAN, VARIANCES


def observed_parent():
    """The prior's mean is a random variable with data."""
    x = pm.Normal("x", 0, 1, observed=[5.0, 6.0, 7.0])
    f = pm.Normal("f", x, [0.5, 1.5, 1.0])
    pm.Normal("y", f * x, 2.0, observed=[1.0, 2.0, 0.0])
    return [f], [5.0, 6.0, 7.0], VARIANCES


def gaussian_process():
    """A kernel whose hyperparameter is transformed and sampled by another step."""
    scale = pm.HalfNormal("scale", initval=0.8)
    covariance = scale**2 * pm.gp.cov.ExpQuad(1, 1.0)
    process = pm.gp.Latent(cov_func=covariance)
    x = np.arange(3.0)
    f = process.prior("f", X=x[:, None], reparameterize=False, jitter=1e-3)
    pm.Poisson("y", pm.math.exp(f), observed=[1, 2, 0])
    kernel = 0.8**2 * np.exp(-(np.subtract.outer(x, x) ** 2) / 2) + 1e-3 * np.eye(3)
    return [f], np.zeros(3), kernel


def marginal_likelihood():
    """Data whose covariance depends on the block, through a gradient that is by hand."""
    f = states_f()
    features = pm.math.tanh(np.array([[0.3], [1.0], [-0.8]]) * f)
    K = features @ features.T + 0.3 * np.eye(3)
    pm.MvNormal("y", f, cov=K, observed=[[1.0, 2.0, 0.0], [0.5, 0.0, -1.0]])
    return [f], MEAN, VARIANCES


def sparse_design():
    """A constant that is computed from data, but is no array."""
    f = states_f()
    X = sparse.as_sparse_variable(csr_matrix([[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]]))
    pm.Normal("y", pm.math.tanh(sparse.dot(X, f[:, None]))[:, 0], 0.5, observed=[0.3, 1.0])
    return [f], MEAN, VARIANCES


def child_with_dims():
    """A density whose axes have names, of a variable that has none."""
    pm.modelcontext(None).add_coords({"row": range(3)})
    f = states_f()
    mean = pmd.math.exp(pmd.Data("x", MEAN, dims="row")) * pmd.as_xtensor(f, dims="row")
    pmd.Normal("y", mean, 2.0, observed=pmd.as_xtensor(MEAN, dims="row"))
    return [f], MEAN, VARIANCES


def labelled():
    """Lengths that are known from dims only, and data in every place."""
    model = pm.modelcontext(None)
    model.add_coords({"row": range(3)})
    f = pm.MvNormal("f", pm.Data("mean", MEAN, dims="row"), cov=pm.Data("cov", COV), dims="row")
    pm.Normal("y", pm.math.tanh(f), 0.5, observed=pm.Data("y_", MEAN), dims="row")
    return [f], MEAN, COV


def scalars():
    """Variables without axes, one of which is not connected to the data."""
    f = pm.Normal("f", 1.0, 0.5)
    idle = pm.Normal("idle", -2.0, 1.5)
    pm.Normal("y", pm.math.tanh(f), 0.5, observed=1.0)
    return [f, idle], [1.0, -2.0], np.diag([0.25, 2.25])


def empty():
    """A variable with no entries beside one that has some."""
    nothing = pm.Normal("nothing", 0, 1, shape=(0, 2))
    f = states_f()
    pm.Normal("y", pm.math.tanh(f).sum() + nothing.sum(), 0.5, observed=1.0)
    return [nothing, f], MEAN, VARIANCES


def no_data():
    f = states_f()
    return [f], MEAN, VARIANCES


MODELS = [
    total_size,
    imputed_data,
    imputed_in_the_block,
    bounded_by_the_block,
    truncated,
    censored,
    mixture,
    discrete_others,
    potentials,
    observed_parent,
    gaussian_process,
    marginal_likelihood,
    sparse_design,
    child_with_dims,
    labelled,
    scalars,
    empty,
    no_data,
]
QUICK = {
    total_size, imputed_in_the_block, truncated, mixture, potentials, gaussian_process,
    sparse_design, labelled, empty,
}  # fmt: skip


@pytest.mark.parametrize(
    ("build", "kind"),
    [(build, nns.PCNL) if build in QUICK else slow(build, nns.PCNL) for build in MODELS]
    + [(build, nns.MALA) for build in (imputed_in_the_block, bounded_by_the_block)]
    + [(build, nns.PCN) for build in (potentials, labelled)],
)
def test_models(build, kind):
    """A term of the log density that the step forgets, takes for another, or draws at random."""
    with pm.Model() as model:
        variables, mean, covariance = build()
    check(kind, model, variables, mean, covariance)


@pytest.mark.parametrize("kind", GAUSSIAN_STEPS)
def test_float32(kind):
    """Products of inexact terms: the ratio is that of the proposal to single precision."""
    prior = PRIORS["several"]
    with pytensor.config.change_flags(floatX="float32"):
        model, variables = regression(prior, link=pm.math.tanh)
        check(kind, model, variables, prior.mean, prior.covariance, tolerance=1e-4)

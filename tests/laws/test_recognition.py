"""Models as people write them: what is recognised, that it is exact, and why the rest is not.

Every conditional that is found is compared with the model's own log density (see `graphs`).
"""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws import find_conditionals, match
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.piecewise import PiecewiseGaussian
from pymc_nnsteps.steps.explanation import explain
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.cases import quick
from tests.laws.exact_piecewise import assert_exact_piecewise
from tests.laws.graphs import assert_exact_gaussian, point_of

normal = pm.Normal
RNG = np.random.default_rng(31)
N, D, K = 7, 3, 2
X = RNG.normal(size=(N, D))
Y = RNG.normal(size=N)
YY = RNG.normal(size=(N, 2))
G = np.array([0, 2, 1, 1, 0, 2, 2])


def assert_all_exact(model, rvs=None, seed=0, **values):
    """Compare every conditional found with the model, and return which were found."""
    rvs = model.free_RVs if rvs is None else rvs
    found = find_conditionals(model, rvs)
    point = point_of(model, np.random.default_rng(seed), **values)
    for conditional in found:
        if isinstance(conditional, Gaussian):
            assert_exact_gaussian(model, conditional, point)
        elif isinstance(conditional, PiecewiseGaussian):
            assert_exact_piecewise(model, conditional, point)
        else:
            raise AssertionError(conditional.name)
    return [" ".join(rv.name for rv in conditional.draws) for conditional in found]


# --- networks written by hand --------------------------------------------------------------------


def relu(z):
    return pt.maximum(z, 0)


def plain():
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=K)
    z = normal("Z", X @ W1.T + b1, 0.1)
    x = normal("X", relu(z), 0.1)
    W2, b2 = normal("W2", 0, 0.5, shape=(1, K)), normal("b2", 0, 0.5, shape=1)
    normal("y", x @ W2.T + b2, 0.1, observed=Y[:, None])


def fan_in_by_fan_out():
    W1, b1 = normal("W1", 0, 0.5, shape=(D, K)), normal("b1", 0, 0.5, shape=K)
    z = normal("Z", pm.math.dot(pm.Data("inputs", X), W1) + b1, tau=100)
    x = normal("X", pt.switch(z > 0, z, 0.1 * z), tau=50)
    W2, b2 = normal("W2", 0, 0.5, shape=(K, 1)), normal("b2", 0, 0.5)
    normal("y", (pm.math.dot(x, W2) + b2)[:, 0], tau=10, observed=pm.Data("t", Y))


def tensordot_everywhere():
    W1, b1 = normal("W1", 0, tau=3, shape=(K, D)), normal("b1", 0, 0.5, shape=(1, K))
    z = normal("Z", pt.tensordot(X, W1, axes=[[1], [1]]) + b1, 0.1)
    x = normal("X", abs(z), 0.1)
    W2, b2 = normal("W2", 0, 0.5, shape=(K, 1)), normal("b2", 0, 0.5, shape=1)
    normal("y", pt.squeeze(pt.tensordot(x, W2, axes=1) + b2), 0.1, observed=Y)


def deterministics_in_between():
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=K)
    F = pm.Deterministic("F", pt.dot(X, W1.T) + b1)
    z = normal("Z", F, pm.Deterministic("s", pt.constant(0.3)))
    a = pm.Deterministic("a", pt.clip(z, -1, 1))
    x = normal("X", a, 0.1)
    W2, b2 = normal("W2", 0, 0.5, shape=(1, K)), normal("b2", 0, 0.5, shape=1)
    out = pm.Deterministic("out", (x @ W2.T + b2).flatten())
    normal("y", out, 0.1, observed=Y)


def bias_as_a_column():
    ones = np.ones((N, 1))
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 2.5, shape=K)
    joined = pt.concatenate([W1, b1[:, None]], axis=1)
    z = normal("Z", np.concatenate([X, ones], axis=1) @ joined.T, 0.1)
    x = normal("X", pt.sign(z), 0.1)
    W2, b2 = normal("W2", 0, 0.5, shape=(1, K)), normal("b2", 0, 0.5, shape=1)
    augmented = pt.concatenate([x, ones], axis=1)
    normal("y", augmented @ pt.concatenate([W2.T, b2[None, :]], axis=0), 0.1, observed=Y[:, None])


def dims_and_data():
    model = pm.modelcontext(None)
    model.add_coords({"obs": range(N), "feature": list("abc"), "unit": range(K), "output": ["y"]})
    inputs = pm.Data("inputs", X, dims=("obs", "feature"))
    W1, b1 = normal("W1", 0, 0.5, dims=("unit", "feature")), normal("b1", 0, 0.5, dims="unit")
    z = normal("Z", inputs @ W1.T + b1, 0.1, dims=("obs", "unit"))
    x = normal("X", pt.where(z > 0, z, 0), 0.1, dims=("obs", "unit"))
    W2, b2 = normal("W2", 0, 0.5, dims=("output", "unit")), normal("b2", 0, 0.5, dims="output")
    normal("y", (x @ W2.T + b2)[:, 0], 0.1, observed=pm.Data("t", Y, dims="obs"), dims="obs")


def vector_readout():
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=K)
    z = normal("Z", pt.dot(W1, X.T).T + b1, 0.1)
    x = normal("X", z * (z > 0), np.array([0.1, 0.2]))
    W2, b2 = normal("W2", 0, 0.5, shape=K), normal("b2", 0, 0.5)
    normal("y", x @ W2 + b2, 0.1, observed=Y)


def units_before_observations():
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=(K, 1))
    z = normal("Z", W1 @ X.T + b1, 0.1)
    x = normal("X", relu(z), 0.1)
    W2, b2 = normal("W2", 0, 0.5, shape=(1, K)), normal("b2", 0, 0.5)
    normal("y", (W2 @ x)[0] + b2, 0.1, observed=Y)


def two_outputs_and_unknown_noise():
    s = pm.LogNormal("s", 0, 1, shape=2)
    W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=K)
    z = normal("Z", X @ W1.T + b1, s[0])
    x = normal("X", relu(z) + 0.1, s[1])
    W2, b2 = normal("W2", 0, 0.5, shape=(2, K)), normal("b2", 0, 0.5, shape=2)
    normal("y", x @ W2.T + b2, s, observed=YY)


NETWORKS = [plain, fan_in_by_fan_out, tensordot_everywhere, deterministics_in_between,
            bias_as_a_column, dims_and_data, vector_readout, units_before_observations,
            two_outputs_and_unknown_noise]  # fmt: skip
QUICK = {plain, tensordot_everywhere, bias_as_a_column, two_outputs_and_unknown_noise}


@pytest.mark.parametrize("build", quick(NETWORKS, QUICK), ids=lambda f: f.__name__)
def test_a_network_however_it_is_written(build):
    with pm.Model() as model:
        build()
    latent = [rv for rv in model.free_RVs if rv.name != "s"]
    assert assert_all_exact(model, latent) == ["W1 b1", "Z", "X", "W2 b2"]
    assert isinstance(match(model, model["Z"]), PiecewiseGaussian)
    assert all(needs_gibbs(model, rv) for rv in latent)
    if build is two_outputs_and_unknown_noise:
        with pytest.raises(NotConjugate, match="s: its prior is LogNormal; a scale of several"):
            match(model, model["s"])


def test_a_deep_network_without_biases_with_a_shared_weight():
    """W is used in two layers: its evidence comes from both children."""
    with pm.Model() as model:
        W = normal("W", 0, 0.5, shape=(D, D))
        z2 = normal("Z2", X @ W.T, 0.1)
        x2 = normal("X2", relu(z2), 0.2)
        z3 = normal("Z3", x2 @ W.T, 0.3)
        x3 = normal("X3", relu(z3), 0.1)
        v = normal("V", 0, 1, shape=D)
        normal("y", x3 @ v, 0.1, observed=Y)
    assert assert_all_exact(model) == ["W", "Z2", "X2", "Z3", "X3", "V"]


def test_a_network_in_which_layers_skip():
    """Residual and skip connections: post-activations have several children."""
    with pm.Model() as model:
        W1 = normal("W1", 0, 0.5, shape=(D, D))
        z = normal("Z", X @ W1.T, 0.1)
        x = normal("X", relu(z) + X, 0.2)
        W2 = normal("W2", 0, 0.5, shape=(D, D))
        u = normal("U", x @ W2.T + x, 0.3)
        c = normal("C", 0, 1, shape=D)
        w = normal("w", 0, 1, shape=D)
        normal("y", relu(u) @ c + x @ w, 0.1, observed=Y)
    with pytest.raises(NotConjugate, match=r"U: child y|U: the mean of child y"):
        match(model, u)
    assert assert_all_exact(model, [W1, z, x, W2, c, w]) == ["W1", "Z", "X", "W2", "C w"]


def test_the_same_weight_twice_in_one_mean():
    with pm.Model() as model:
        W = normal("W", 0, 0.5, shape=(D, D))
        V = normal("V", 0, 0.5, shape=(D, D))
        normal("u", X @ W.T @ W.T, 0.1)
        normal("v", X @ V.T + 2 * (X[::-1] @ V.T) - 1, 0.1)
    with pytest.raises(NotConjugate, match=r"child u is not affine in it: it is on both"):
        match(model, W)
    assert assert_all_exact(model, [V]) == ["V"]


# --- models that are no networks -----------------------------------------------------------------


def bayesian_linear_regression():
    alpha = normal("alpha", 0, 10)
    beta = normal("beta", 0, 1, shape=D)
    sigma = pm.LogNormal("sigma", 0, 1)
    normal("y", alpha + X @ beta, sigma, observed=Y)
    return ["alpha beta"]


def simple_regression():
    alpha = normal("alpha", 0, 10)
    beta = normal("beta", 0, 1)
    normal("y", alpha + beta * pm.Data("x", X[:, 0]), 0.3, observed=Y)
    return ["alpha beta"]


def varying_intercepts():
    mu = normal("mu", 0, 10)
    tau = pm.LogNormal("tau", 0, 1)
    theta = normal("theta", mu, tau, shape=3)
    beta = normal("beta", 0, 1, shape=D)
    normal("y", theta[pm.Data("g", G)] + X @ beta, 0.3, observed=Y)
    return ["mu", "theta", "beta"]


def varying_slopes():
    mu = normal("mu", 0, 10, shape=D)
    beta = normal("beta", mu, 0.4, shape=(3, D))
    a = normal("a", 0, 1, shape=3)
    normal("y", (beta[G] * X).sum(-1) + a[G], 0.3, observed=Y)
    return ["mu", "beta", "a"]


def varying_slopes_by_group_size():
    b = normal("b", 0, 1, shape=3)
    a = normal("a", 0, 1)
    normal("y", a + b[G] * X[:, 0], np.linspace(0.1, 1, N), observed=Y)
    return ["b", "a"]


def hierarchical_means():
    mu = normal("mu", 0, 10)
    tau = pm.LogNormal("tau", 0, 1)
    theta = normal("theta", mu, tau, shape=N)
    normal("y", theta, np.linspace(0.1, 1, N), observed=Y)
    return ["mu", "theta"]


def non_centred_means():
    mu = normal("mu", 0, 10)
    tau = pm.LogNormal("tau", 0, 1)
    raw = normal("raw", 0, 1, shape=N)
    normal("y", pm.Deterministic("theta", mu + tau * raw), 0.3, observed=Y)
    return ["mu", "raw"]


def three_levels():
    top = normal("top", 0, 10)
    district = normal("district", top + X[:3, 0] * normal("slope", 0, 1), 0.5)
    school = normal("school", district[G], 0.4)
    normal("y", school, 0.3, observed=Y)
    return ["slope top", "district", "school"]


def district_regression_over_schools():
    beta = normal("beta", 0, 1, shape=D)
    district = normal("district", X[:3] @ beta, 0.5)
    school = normal("school", district[G], 0.4)
    normal("y", school[np.arange(N) // 2], 0.3, observed=Y)
    return ["beta", "district", "school"]


def two_levels_of_noise():
    beta = normal("beta", 0, 1, shape=D)
    district = normal("district", X @ beta, 0.5)
    school = normal("school", district, 0.4)
    normal("y", school, 0.3, observed=Y)
    return ["beta", "district", "school"]


def latent_regression_of_several_outputs():
    B = normal("B", 0, 1, shape=(D, 2))
    theta = normal("theta", X @ B, 0.5)
    pm.Poisson("count", pt.exp(theta), observed=np.ones((N, 2), int))
    return ["B"]


def crossed_effects():
    a = normal("a", 0, 1, shape=3)
    b = normal("b", 0, 2, shape=4)
    normal("y", a[G] + b[np.arange(N) % 4], 0.3, observed=Y)
    return ["a", "b"]


def factor_analysis():
    L = normal("L", 0, 1, shape=(2, K))
    F = normal("F", 0, 1, shape=(N, K))
    m = normal("m", 0, 10, shape=2)
    normal("y", F @ L.T + m, 0.3, observed=YY)
    return ["L m", "F"]


def factor_analysis_heteroscedastic():
    L = normal("L", 0, 1, shape=(2, K))
    F = normal("F", 0, 1, shape=(N, K))
    normal("y", F @ L.T, pm.HalfNormal("psi", shape=2), observed=YY)
    return ["L", "F"]


def matrix_factorisation():
    U = normal("U", 0, 1, shape=(4, K))
    V = normal("V", 0, 1, shape=(3, K))
    normal("y", (U[np.arange(N) % 4] * V[G]).sum(1), 0.3, observed=Y)
    return ["U", "V"]


def random_walk_of_scalars():
    x = [normal("x0", 0, 1)]
    for t in range(1, 4):
        x.append(normal(f"x{t}", 0.9 * x[-1] + 0.1, 0.5))
    normal("y", pt.stack(x), 0.3, observed=Y[:4])
    return ["x0", "x1", "x2", "x3"]


def measurement_error():
    x = normal("x", 0, 1, shape=N)
    slope = normal("slope", 0, 1)
    normal("seen", x, 0.3, observed=X[:, 0])
    normal("y", slope * x + 1, 0.2, observed=Y)
    return ["x", "slope"]


def no_child_at_all():
    normal("a", 2, 3, shape=2)
    normal("b", normal("c"), 0.5)
    return ["a", "c", "b"]


def multivariate_mean_of_parts():
    a, b = normal("a", 0, 1, shape=2), normal("b", 0, 1)
    normal("y", pt.concatenate([a, b[None], pt.zeros(4)]), 0.3, observed=Y)
    return ["a b"]


ORDINARY = [bayesian_linear_regression, simple_regression, varying_intercepts, varying_slopes,
            varying_slopes_by_group_size, hierarchical_means, non_centred_means, three_levels,
            district_regression_over_schools, two_levels_of_noise,
            latent_regression_of_several_outputs, crossed_effects, factor_analysis,
            factor_analysis_heteroscedastic, matrix_factorisation, random_walk_of_scalars,
            measurement_error, no_child_at_all, multivariate_mean_of_parts]  # fmt: skip


@pytest.mark.parametrize("build", ORDINARY, ids=lambda f: f.__name__)
def test_an_ordinary_model(build):
    """Recognised and exact on request, and no network variable: NUTS keeps it by default."""
    with pm.Model() as model:
        expected = build()
    wanted = {name for block in expected for name in block.split()}
    rvs = [rv for rv in model.free_RVs if rv.name in wanted]
    found = assert_all_exact(model, rvs)
    assert sorted(" ".join(sorted(block.split())) for block in found) == sorted(expected)
    assert not any(needs_gibbs(model, rv) for rv in model.free_RVs)


# --- what pm.sample gives to Gibbs by itself -----------------------------------------------------

ACTIVATIONS = {
    "identity": lambda z: z,
    "relu": relu,
    "sign": pt.sign,
    "leaky": lambda z: pt.switch(z > 0, z, 0.01 * z),
    "hard tanh": lambda z: pt.clip(z, -1, 1),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", ["normal", "probit", "multinomial"])
def test_network_variables(activation, output):
    with pm.Model() as model:
        s = pm.LogNormal("s", 0, 1)
        W1, b1 = normal("W1", 0, 0.5, shape=(K, D)), normal("b1", 0, 0.5, shape=K)
        z = normal("Z", X @ W1.T + b1, 0.1)
        x = normal("X", ACTIVATIONS[activation](z), 0.1)
        W2 = normal("W2", 0, 0.5, shape=(K, 3 if output == "multinomial" else 1))
        F = x @ W2
        if output == "normal":
            normal("y", F[:, 0], s, observed=Y)
        elif output == "probit":
            u = normal("U", F, 1.0)
            pm.Bernoulli("y", p=pt.gt(u[:, 0], 0), observed=(Y > 0).astype(int))
        else:
            u = normal("U", F, 1.0)
            largest = pt.eq(pt.argmax(u, axis=1, keepdims=True), pt.arange(3))
            pm.Categorical("y", p=largest, observed=G)
    decided = {rv.name: needs_gibbs(model, rv) for rv in model.free_RVs}
    decided.pop("s", None)  # shares y with X2, and has no conditional
    assert all(decided.values()), decided


# --- what is declined, and why -------------------------------------------------------------------


def declined(build, name="w"):
    with pm.Model() as model:
        build()
    with pytest.raises(NotConjugate) as error:
        match(model, model[name])
    [row] = [row for row in explain(model).rows if row[0] == name]
    assert row[1] is None
    assert str(error.value) == f"{name}: {row[2]}"
    return str(error.value)


def w(**options):
    return normal("w", 0, 1, **{"shape": 3, **options})


def observed_normal(mean, sigma=0.1):
    normal("y", mean, sigma, observed=np.zeros(3))


def weights_with(potential):
    v = w()
    observed_normal(v)
    pm.Potential("penalty", potential(v))


def sigma_depends():
    v = w()
    normal("y", X @ v, pt.exp(v[0]), observed=Y)


def another_scale_depends():
    v = w()
    normal("y", X @ v, 0.1, observed=Y)
    normal("u", 0, pt.exp(v), observed=np.zeros(3))


def student():
    pm.StudentT("y", nu=3, mu=X @ w(), sigma=1, observed=Y)


def multivariate():
    pm.MvStudentT("y", nu=4, mu=w(), scale=np.eye(3), observed=np.zeros(3))


def truncated():
    pm.Truncated("y", normal.dist(w(), 1), lower=-1, observed=np.zeros(3))


def censored():
    pm.Censored("y", normal.dist(w(), 1), lower=-1, upper=1, observed=np.zeros(3))


def mixture():
    components = [normal.dist(w(), 1), normal.dist(0, 3, shape=3)]
    pm.Mixture("y", [0.3, 0.7], components, observed=np.zeros(3))


def total_size():
    normal("y", w(), 0.1, observed=np.zeros(3), total_size=30)


def minibatch():
    data = pm.Minibatch(Y, batch_size=3)
    normal("y", w(), 0.1, observed=data, total_size=N)


def ordered():
    v = w(transform=pm.distributions.transforms.ordered, initval=[0.0, 1, 2])
    observed_normal(v)


def log_transformed():
    v = w(default_transform=pm.distributions.transforms.log, initval=np.ones(3))
    observed_normal(v)


def random_walk():
    steps = pm.Laplace.dist(0, 1)
    v = pm.RandomWalk("w", init_dist=normal.dist(0, 1), innovation_dist=steps, steps=2)
    observed_normal(v)


def custom_walk():
    v = w()
    pm.Potential("walk", pm.logp(normal.dist(v[:-1], 0.1), v[1:]).sum())


def flat_prior():
    observed_normal(pm.Flat("w", shape=3))


def multivariate_prior():
    observed_normal(pm.MvStudentT("w", nu=4, mu=np.zeros(3), scale=np.eye(3)))


def complementary_log_log():
    p = 1 - pt.exp(-pt.exp(X @ w()))
    pm.Bernoulli("y", p=p, observed=(Y > 0).astype(int))


def poisson():
    pm.Poisson("y", pt.exp(w()), observed=np.zeros(3, int))


def product_with_itself():
    v = w()
    observed_normal(v * v)


def custom_child():
    v = w()
    pm.CustomDist("y", v, logp=lambda value, v: -((value - v) ** 2), observed=np.zeros(3))


DECLINED = {
    sigma_depends: "the scale of child y depends on it",
    another_scale_depends: "the scale of child u depends on it",
    student: "child y is StudentT, not Normal",
    multivariate: "child y is M.*StudentT.*, not Normal",
    truncated: "child y is Trunc.*, not Normal",
    censored: "child y is Cens.*, not Normal",
    mixture: "child y is .*Mixture.*, not Normal",
    total_size: "child y is .*, not Normal",
    minibatch: "child y is .*, not Normal",
    ordered: "the transform Ordered constrains it",
    log_transformed: "the transform Log",
    random_walk: "an innovation is Laplace, not Normal",
    custom_walk: "the potential walk depends on it",
    flat_prior: "its prior is Flat, not Normal",
    multivariate_prior: "its prior is M.*StudentT.*, not Normal",
    complementary_log_log: "child y is not a threshold of it|not piecewise|probability",
    poisson: "child y is Poisson, not Normal",
    product_with_itself: "the mean of child y is not affine in it: it is multiplied",
    custom_child: "child y is .*, not Normal",
}


@pytest.mark.parametrize("build", DECLINED, ids=lambda f: f.__name__)
def test_declined_by_name_child_and_reason(build):
    import re

    message = declined(build)
    assert message.startswith("w: ")
    assert re.search(DECLINED[build], message), message


def test_a_child_that_sees_differences():
    """A walk as a penalty: neighbours are no longer independent given the data."""
    with pm.Model() as model:
        v = w()
        observed_normal(v)
        normal("steps", v[1:] - 0.9 * v[:-1], 0.1, observed=np.zeros(2))
    assert assert_all_exact(model) == ["w"]


def test_a_child_whose_transform_depends_on_it():
    """The bounds of a child move its value: the prior of that value is not what it claims."""
    with pm.Model() as model:
        v = w()
        bounds = pm.distributions.transforms.Interval(bounds_fn=lambda *args: (args[2] - 1, None))
        normal("u", v, 1, default_transform=bounds, initval=np.ones(3))
    with pytest.raises(NotConjugate, match="w: the transform of child u depends on it"):
        match(model, v)


RANDOM_DATA = {
    "rows": lambda v: normal("y", pm.Minibatch(X, batch_size=5) @ v, 1, observed=np.zeros(5)),
    "labels": lambda v: normal("y", v, 1, observed=pm.Minibatch(X[:, :3], batch_size=5)),
    "dropout": lambda v: normal("y", X @ (v * pm.Bernoulli.dist(0.5)), 1, observed=Y),
    "noise": lambda v: normal("y", X @ v, pm.HalfNormal.dist(), observed=Y),
}


@pytest.mark.parametrize("name", RANDOM_DATA)
def test_random_data(name):
    """Data drawn once and kept for the whole chain, where the model draws them anew."""
    with pm.Model() as model, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="total_size not provided")
        v = w()
        RANDOM_DATA[name](v)
    with pytest.raises(NotConjugate, match="w: y depends on data that are redrawn"):
        match(model, v)


def test_potentials():
    reason = "w: the potential penalty depends on it"
    assert declined(lambda: weights_with(lambda v: -abs(v).sum())) == reason
    assert declined(lambda: weights_with(lambda v: pm.Deterministic("d", v * 2).sum())) == reason
    with pm.Model() as model:
        v = w()
        u = normal("u", v, 1)
        pm.Potential("other", -abs(u).sum())
    assert assert_all_exact(model, [v]) == ["w"]
    with pytest.raises(NotConjugate, match="u: the potential other depends on it"):
        match(model, u)


def test_partially_observed_children():
    """Imputation splits y into two variables: both are evidence, and the missing part is drawn.

    A mean that varies is split by a boolean mask.
    """
    observed = np.where(np.arange(N) == 2, np.nan, Y)
    with pm.Model() as model:
        v = w(shape=())
        with pytest.warns(pm.exceptions.ImputationWarning):
            normal("y", v, 0.1, observed=observed)
    assert assert_all_exact(model) == ["w", "y_unobserved"]
    with pm.Model() as model:
        mean = w(shape=()) + X[:, 0]
        with pytest.warns(pm.exceptions.ImputationWarning):
            normal("y", mean, 0.1, observed=observed)
    assert assert_all_exact(model) == ["w", "y_unobserved"]


def test_the_mean_and_scale_of_a_child_may_depend_on_others():
    with pm.Model() as model:
        a, s = normal("a"), pm.HalfNormal("s")
        v = w()
        u = normal("l", 0, 1, shape=D)
        normal("y", a * (X @ v) + pt.exp(a), s * pt.exp(X @ u), observed=Y)
    assert assert_all_exact(model, [v]) == ["w"]
    for name in ("a", "l"):
        with pytest.raises(NotConjugate):
            match(model, model[name])


def test_transformed_neighbours_do_not_matter():
    """The child is ordered: its density in the mean's parameters is the same."""
    with pm.Model() as model:
        v = normal("w", 0, 1)
        normal("y", 2 * v, 0.3, shape=3, transform=pm.distributions.transforms.ordered,
               initval=[0.0, 1, 2])  # fmt: skip
    assert_exact_gaussian(model, match(model, v), point_of(model, np.random.default_rng(0)))


def test_discrete_variables_as_groups():
    """An index that is itself random is given, like any other variable."""
    with pm.Model() as model:
        k = pm.Categorical("k", np.ones(3) / 3, shape=N)
        theta = normal("theta", np.arange(3.0), 1, shape=3)
        normal("y", theta[k], 0.3, observed=Y)
    assert assert_all_exact(model, [theta], k=G) == ["theta"]


def test_a_continuous_variable_as_an_index_is_declined():
    with pm.Model() as model:
        s = normal("s")
        normal("y", s + pt.as_tensor(Y)[pt.cast(s, "int64")], 0.3, observed=1.0)
    with pytest.raises(NotConjugate, match=r"s: .*index"):
        match(model, s)


def test_gibbs_in_a_model_that_is_no_network_needs_no_change_of_the_model():
    with pm.Model() as model:
        bayesian_linear_regression()
    table = explain(model)
    assert [row[:2] for row in table.rows] == [
        ("alpha", "Gaussian"),
        ("beta", "Gaussian"),
        ("sigma", "step on a lattice"),
    ]
    text = str(replace(table, details=True))
    assert text.splitlines()[0].split() == ["variable", "step", "conditional"]
    for shown in (text, table._repr_html_()):
        assert "jointly with beta; children: y" in shown
    assert repr(table) == str(table)


def test_explain_names_conditionals_of_a_network():
    with pm.Model() as model:
        plain()
    rows = {row[0]: row[1:] for row in explain(model).rows}
    assert rows["Z"] == (
        "piecewise Gaussian, 2 pieces",
        "interwoven with W1, b1; along rays of units; along trajectories; children: X",
    )
    assert rows["W1"] == (
        "Gaussian",
        "jointly with b1; interwoven with b1, Z; along rays of units; along trajectories; "
        "children: Z",
    )
    assert rows["X"] == ("Gaussian", "children: y")


def test_explain_of_a_model_without_free_variables():
    with pm.Model() as model:
        normal("y", 0, 1, observed=[0.0])
    assert explain(model).rows == ()
    assert "variable" in str(explain(model))


def test_variables_of_another_model_are_refused():
    with pm.Model() as model:
        plain()
    with pm.Model():
        foreign = normal("foreign")
    with pytest.raises(NotConjugate, match="foreign is not a free random variable of the model"):
        match(model, foreign)
    with pytest.raises(NotConjugate, match="y is not a free random variable"):
        match(model, model["y"])


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float32"])
def test_designs_and_targets_of_any_number_type(dtype):
    with pm.Model() as model:
        a, b = normal("a"), normal("b", shape=D)
        design = (X * 50).astype(dtype)
        normal("y", a + design @ b, 2, observed=np.arange(N))
    assert assert_all_exact(model) == ["a b"]


def test_any_model_may_be_asked():
    """pm.sample asks for a competence in every model, once the package is imported."""
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=pm.Exponential.dist(1))
        v = pm.MvNormal("v", np.zeros(2), chol=chol)
        pm.ZeroSumNormal("zero", shape=3)
        k = pm.Poisson("k", 2)
        n = normal("n", k, 1)
        pm.Uniform("u", n, n + pt.exp(n))
        pm.CustomDist("custom", n, dist=lambda n, size: normal.dist(n, 1, size=size))
        pm.AR("ar", rho=[0.5], sigma=1, steps=3, init_dist=normal.dist())
        pm.Categorical("c", p=pm.math.softmax(v), observed=1)
        pm.OrderedLogistic("o", eta=n, cutpoints=[0.0, 1.0], observed=1)
        pm.Bernoulli("b", logit_p=n, observed=1)
    assert not any(needs_gibbs(model, rv) for rv in model.free_RVs)
    assert {row[0] for row in explain(model).rows if row[1] is not None} == {"ar"}


def test_data_that_changes():
    """The law follows `pm.set_data`, to other numbers of observations too."""
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", Y)
        beta = normal("beta", 0, 1, shape=D)
        normal("y", inputs @ beta, 0.1, observed=targets)
    assert assert_all_exact(model) == ["beta"]
    pm.set_data({"inputs": np.ones((2, D)) * 3, "targets": np.arange(2.0)}, model=model)
    assert assert_all_exact(model) == ["beta"]
    with pm.Model() as model:
        normal("y", normal("mu", 0, 1), 0.1, observed=pm.Data("d", Y))
    assert assert_all_exact(model) == ["mu"]
    pm.set_data({"d": np.arange(3.0)}, model=model)
    assert assert_all_exact(model) == ["mu"]


def test_an_output_that_is_not_observed_is_a_networks_variable():
    """As of a model to simulate from, or of missing targets."""
    with pm.Model() as model:
        W1 = normal("W1", 0, 0.5, shape=(2, D))
        x = normal("X", relu(normal("Z", X @ W1.T, 0.3)), 0.3)
        normal("y", x @ normal("w", 0, 1, shape=2), 0.1)
    assert all(needs_gibbs(model, rv) for rv in model.free_RVs)


def test_explain_takes_the_model_of_the_context_and_nothing_else():
    with pm.Model() as model:
        normal("a")
        assert str(explain()) == str(explain(model))
    with pytest.raises(ValueError, match=r"model must be a pm\.Model; got str"):
        explain("a")

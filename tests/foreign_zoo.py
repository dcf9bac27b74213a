"""Models that are none of this package's: what an import of it must leave alone.

One of each kind of PyMC's gallery. ``FOREIGN`` has each as a function that makes it.
"""

import warnings
from collections.abc import Callable
from functools import wraps

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

Foreign = Callable[[], pm.Model]

FOREIGN: dict[str, Foreign] = {}
"""Models by the names of the functions that make them."""

T = np.arange(8.0)
Y = np.array([0.3, -1.2, 0.7, 2.1, -0.4, 0.9, 1.6, -0.8])
COUNTS = np.array([0, 3, 1, 0, 2, 0, 4, 1])
HOLES = np.array([1.0, np.nan, 0.5, 2.0, np.nan, 1.0, 3.0, 2.0])
PAIRS = np.stack([Y, Y[::-1] ** 2], axis=1)


def makes(make: Foreign) -> Foreign:
    """Enter a function that returns a model; PyMC's warnings on it are none of ours."""

    @wraps(make)
    def quietly() -> pm.Model:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()

    FOREIGN[make.__name__] = quietly
    return make


def foreign(state: Callable[[], None]) -> Callable[[], None]:
    """Enter a function whose body states a model."""

    @wraps(state)
    def make() -> pm.Model:
        with pm.Model() as model:
            state()
        return model

    makes(make)
    return state


@foreign
def regression():
    a, b, sigma = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("sigma")
    pm.Normal("y", a + b * T, sigma, observed=Y)


@foreign
def partly_observed_vector():
    pm.MvNormal(
        "y", pm.Normal("mu", shape=2), np.eye(2), observed=np.where(PAIRS > 2, np.nan, PAIRS)
    )


@foreign
def partly_observed_vector_of_unknown_covariance():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    pm.MvNormal(
        "y", pm.Normal("mu", shape=2), chol=chol, observed=np.where(PAIRS > 2, np.nan, PAIRS)
    )


@foreign
def partly_observed_regression():
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * T, pm.HalfNormal("sigma"), observed=HOLES)


@foreign
def partly_observed_inputs():
    x = pm.Normal("x", pm.Normal("mean"), 1, observed=HOLES)
    pm.Normal("y", pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=Y)


@foreign
def partly_observed_counts():
    pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=HOLES)


@foreign
def zero_inflated_poisson():
    pm.ZeroInflatedPoisson("y", pm.Beta("psi", 1, 1), pm.Gamma("rate", 2, 1), observed=COUNTS)


@foreign
def partly_observed_zero_inflated_poisson():
    pm.ZeroInflatedPoisson("y", pm.Beta("psi", 1, 1), pm.Gamma("rate", 2, 1), observed=HOLES)


@foreign
def zero_inflated_negative_binomial():
    pm.ZeroInflatedNegativeBinomial(
        "y",
        psi=pm.Beta("psi", 1, 1),
        mu=pm.Gamma("mu", 2, 1),
        alpha=pm.Exponential("alpha", 1),
        observed=COUNTS,
    )


@foreign
def hurdle_poisson():
    pm.HurdlePoisson("y", pm.Beta("psi", 1, 1), pm.Gamma("rate", 2, 1), observed=COUNTS)


@foreign
def partly_observed_hurdle_poisson():
    pm.HurdlePoisson("y", pm.Beta("psi", 1, 1), pm.Gamma("rate", 2, 1), observed=HOLES)


@foreign
def hurdle_gamma():
    pm.HurdleGamma(
        "y",
        psi=pm.Beta("psi", 1, 1),
        alpha=pm.Exponential("alpha", 1),
        beta=1.0,
        observed=COUNTS + 0.0,
    )


def _mixture(data):
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w=w, mu=mu, sigma=pm.HalfNormal("sigma", shape=2), observed=data)


@foreign
def normal_mixture():
    _mixture(Y)


@foreign
def partly_observed_normal_mixture():
    _mixture(HOLES)


@foreign
def mixture_of_components():
    components = [
        pm.Normal.dist(pm.Normal("mu")),
        pm.StudentT.dist(nu=4, mu=pm.Normal("nu"), sigma=1),
    ]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), components, observed=Y)


@foreign
def mixture_by_latent_categories():
    group = pm.Categorical("group", pm.Dirichlet("w", np.ones(3)), shape=8)
    mu = pm.Normal("mu", 0, 3, shape=3)
    pm.Normal("y", mu[group], pm.HalfNormal("sigma"), observed=Y)


@foreign
def latent_mixture():
    z = pm.Mixture("z", [0.5, 0.5], [pm.Normal.dist(-1), pm.Normal.dist(1)], shape=8)
    pm.Normal("y", z, pm.HalfNormal("sigma"), observed=Y)


@foreign
def stick_breaking():
    beta = pm.Beta("beta", 1, pm.Gamma("alpha", 1, 1), shape=4)
    left = pt.concatenate([[1.0], pt.extra_ops.cumprod(1 - beta)[:-1]])
    w = pm.Deterministic("w", beta * left / (beta * left).sum())
    pm.NormalMixture("y", w=w, mu=pm.Normal("mu", shape=4), sigma=1.0, observed=Y)


@foreign
def censored():
    dist = pm.Normal.dist(pm.Normal("mu"), pm.HalfNormal("sigma"))
    pm.Censored("y", dist, lower=-1, upper=1, observed=Y.clip(-1, 1))


@foreign
def partly_observed_censored():
    dist = pm.Normal.dist(pm.Normal("mu"), pm.HalfNormal("sigma"))
    pm.Censored("y", dist, lower=None, upper=2, observed=HOLES)


@foreign
def truncated():
    dist = pm.Normal.dist(pm.Normal("mu"), pm.HalfNormal("sigma"))
    pm.Truncated("y", dist, lower=-3, upper=3, observed=Y)


@foreign
def partly_observed_truncated():
    dist = pm.Normal.dist(pm.Normal("mu"), pm.HalfNormal("sigma"))
    pm.Truncated("y", dist, lower=0, upper=9, observed=HOLES)


@foreign
def truncated_prior():
    mu = pm.Truncated("mu", pm.Normal.dist(0, 1), lower=0, upper=2)
    pm.Normal("y", mu, 1, observed=Y)


@foreign
def gaussian_random_walk():
    walk = pm.GaussianRandomWalk(
        "walk", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(0, 1), steps=7
    )
    pm.Normal("y", walk, pm.HalfNormal("sigma"), observed=Y)


@foreign
def observed_random_walk():
    pm.GaussianRandomWalk(
        "y", sigma=pm.HalfNormal("step"), init_dist=pm.Normal.dist(0, 1), observed=Y
    )


@foreign
def partly_observed_random_walk():
    pm.GaussianRandomWalk(
        "y",
        mu=pm.Normal("drift"),
        sigma=pm.HalfNormal("step"),
        init_dist=pm.Normal.dist(0, 1),
        observed=HOLES,
    )


@foreign
def stochastic_volatility():
    walk = pm.GaussianRandomWalk(
        "walk", sigma=pm.Exponential("step", 10), init_dist=pm.Normal.dist(0, 1), steps=7
    )
    pm.StudentT("y", nu=pm.Exponential("nu", 0.1) + 2, lam=pt.exp(-2 * walk), observed=Y)


@foreign
def autoregression():
    pm.AR(
        "y",
        pm.Normal("rho", shape=2),
        sigma=pm.HalfNormal("sigma"),
        constant=True,
        init_dist=pm.Normal.dist(0, 1),
        observed=Y,
    )


@foreign
def garch():
    pm.GARCH11(
        "y",
        omega=pm.HalfNormal("omega"),
        alpha_1=pm.Uniform("alpha", 0, 0.5),
        beta_1=pm.Uniform("beta", 0, 0.5),
        initial_vol=1.0,
        observed=Y,
    )


@foreign
def euler_maruyama():
    pm.EulerMaruyama(
        "y",
        0.1,
        lambda x, rate: (-rate * x, 0.5),
        (pm.HalfNormal("rate"),),
        init_dist=pm.Normal.dist(0, 1),
        observed=Y,
    )


@foreign
def custom_by_dist():
    def dist(mu, size):
        return pm.Normal.dist(mu, 1, size=size) ** 2

    pm.CustomDist("y", pm.Normal("mu"), dist=dist, observed=Y**2)


@foreign
def partly_observed_custom_by_dist():
    def dist(mu, size):
        return pt.exp(pm.Normal.dist(mu, 1, size=size))

    pm.CustomDist("y", pm.Normal("mu"), dist=dist, observed=HOLES)


@foreign
def custom_by_logp():
    def logp(value, mu):
        return -abs(value - mu)

    pm.CustomDist("y", pm.Normal("mu"), logp=logp, observed=Y)


@foreign
def latent_custom():
    z = pm.CustomDist("z", 0.0, dist=lambda mu, size: pm.Normal.dist(mu, 1, size=size) + 1, shape=8)
    pm.Normal("y", z, pm.HalfNormal("sigma"), observed=Y)


@foreign
def custom_scan():
    def dist(rate, size):
        def step(x, rate):
            following = pm.Normal.dist(rate * x)
            return following, pm.pytensorf.collect_default_updates([following])

        draws, _ = pytensor.scan(step, outputs_info=[pt.zeros(())], non_sequences=[rate], n_steps=8)
        return draws

    pm.CustomDist("y", pm.Normal("rate"), dist=dist, observed=Y)


@foreign
def potential():
    a = pm.Normal("a", shape=3)
    pm.Potential("zero_sum", -10 * a.sum() ** 2)
    pm.Normal("y", a[[0, 0, 0, 1, 1, 1, 2, 2]], pm.HalfNormal("sigma"), observed=Y)


@foreign
def zero_sum_effects():
    a = pm.ZeroSumNormal("a", sigma=pm.HalfNormal("between"), shape=4)
    pm.Normal("y", pm.Normal("level") + a[[0, 0, 1, 1, 2, 2, 3, 3]], 1, observed=Y)


@foreign
def eight_schools():
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Deterministic("theta", pm.Normal("mu", 0, 5) + tau * pm.Normal("eta", shape=8))
    pm.Normal("y", theta, np.full(8, 10.0), observed=Y)


@foreign
def centred_schools():
    pm.Normal(
        "y",
        pm.Normal("theta", pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5), shape=8),
        1.0,
        observed=Y,
    )


@foreign
def correlated_effects():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    effects = pm.MvNormal("effects", pm.Normal("mu", shape=2), chol=chol, shape=(4, 2))
    group = np.repeat(np.arange(4), 2)
    pm.Normal("y", effects[group, 0] + effects[group, 1] * T, pm.HalfNormal("sigma"), observed=Y)


@foreign
def lkj_correlation():
    packed = pm.LKJCorr("corr", n=2, eta=2)
    corr = packed if packed.ndim == 2 else pt.stack([[1.0, packed[0]], [packed[0], 1.0]])
    pm.MvNormal("y", np.zeros(2), corr, observed=PAIRS)


@foreign
def wishart_prior():
    pm.MvNormal("y", np.zeros(2), tau=pm.Wishart("lam", nu=4, V=np.eye(2)), observed=PAIRS)


@foreign
def matrix_normal():
    pm.MatrixNormal(
        "y",
        np.zeros((8, 2)),
        rowcov=np.eye(8),
        colchol=np.eye(2) * pm.HalfNormal("s"),
        observed=PAIRS,
    )


@foreign
def dirichlet_multinomial():
    counts = np.array([[3, 1, 0], [2, 2, 2]])
    alpha = pm.Dirichlet("share", np.ones(3)) * pm.Gamma("concentration", 2, 1)
    pm.DirichletMultinomial("y", n=counts.sum(1), a=alpha, observed=counts)


@foreign
def partly_observed_dirichlet():
    shares = np.array([[0.2, 0.3, 0.5], [0.1, np.nan, np.nan]])
    pm.Dirichlet("y", pm.Exponential("alpha", 1, shape=3), observed=shares[:1])


@foreign
def multinomial():
    pm.Multinomial("y", 4, pm.Dirichlet("p", np.ones(3)), observed=[[3, 1, 0], [2, 2, 0]])


@foreign
def ordered_logistic():
    cuts = pm.Normal("cuts", [-1, 1], 1, transform=pm.distributions.transforms.ordered)
    pm.OrderedLogistic("y", pm.Normal("b") * T, cuts, observed=[0, 1, 2, 1, 0, 2, 2, 1])


@foreign
def ordered_probit():
    cuts = pm.Normal("cuts", [-1, 1], 1, transform=pm.distributions.transforms.ordered)
    pm.OrderedProbit("y", pm.Normal("b") * T, cuts, observed=[0, 1, 2, 1, 0, 2, 2, 1])


@foreign
def logistic_regression():
    pm.Bernoulli("y", logit_p=pm.Normal("a") + pm.Normal("b") * T, observed=Y > 0)


@foreign
def softmax_regression():
    utilities = T[:, None] * pm.Normal("b", shape=3)
    pm.Categorical("y", logit_p=utilities, observed=[0, 1, 2, 1, 0, 2, 2, 1])


@foreign
def rasch():
    right = np.array([[1, 0, 1], [0, 0, 1]])
    pm.Bernoulli(
        "y", logit_p=pm.Normal("ability", shape=(2, 1)) - pm.Normal("item", shape=3), observed=right
    )


@foreign
def coal_mining():
    switch = pm.DiscreteUniform("switch", 0, 8)
    rate = pm.math.switch(switch >= T, pm.Exponential("early", 1), pm.Exponential("late", 1))
    pm.Poisson("y", rate, observed=HOLES)


@foreign
def spike_and_slab():
    chosen = pm.Bernoulli("chosen", 0.5, shape=2)
    b = pm.Normal("b", shape=2) * chosen
    pm.Normal("y", np.stack([T, T**2], 1) @ b, pm.HalfNormal("sigma"), observed=Y)


@foreign
def horseshoe():
    local, shared = pm.HalfCauchy("local", 1, shape=2), pm.HalfCauchy("shared", 1)
    b = pm.Normal("b", 0, local * shared, shape=2)
    pm.Normal("y", np.stack([T, T**2], 1) @ b, pm.HalfNormal("sigma"), observed=Y)


@foreign
def robust_regression():
    pm.StudentT(
        "y",
        nu=pm.Exponential("nu", 0.1),
        mu=pm.Normal("b") * T,
        sigma=pm.HalfNormal("sigma"),
        observed=Y,
    )


@foreign
def negative_binomial():
    pm.NegativeBinomial(
        "y", mu=pm.math.exp(pm.Normal("a")), alpha=pm.Exponential("alpha", 1), observed=COUNTS
    )


@foreign
def weibull_survival():
    pm.Weibull("y", pm.HalfNormal("alpha"), pm.math.exp(pm.Normal("b")), observed=T + 1)


@foreign
def marginal_gp():
    gp = pm.gp.Marginal(
        cov_func=pm.Gamma("scale", 2, 1) ** 2 * pm.gp.cov.ExpQuad(1, pm.Gamma("length", 2, 1))
    )
    gp.marginal_likelihood("y", T[:, None], Y, sigma=pm.HalfNormal("sigma"))


@foreign
def latent_gp():
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, pm.Gamma("length", 2, 1)))
    pm.Poisson("y", pm.math.exp(gp.prior("f", T[:, None])), observed=COUNTS)


@foreign
def centred_gp():
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, pm.Gamma("length", 2, 1)))
    pm.Normal(
        "y", gp.prior("f", T[:, None], reparameterize=False), pm.HalfNormal("sigma"), observed=Y
    )


@foreign
def student_gp():
    gp = pm.gp.TP(scale_func=pm.gp.cov.ExpQuad(1, 1.0), nu=4)
    pm.Normal("y", gp.prior("f", T[:, None]), pm.HalfNormal("sigma"), observed=Y)


@foreign
def hilbert_space_gp():
    gp = pm.gp.HSGP(m=[4], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma("length", 2, 1)))
    pm.Normal("y", gp.prior("f", T[:, None]), pm.HalfNormal("sigma"), observed=Y)


@foreign
def sparse_gp():
    gp = pm.gp.MarginalApprox(cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma("length", 2, 1)), approx="VFE")
    gp.marginal_likelihood("y", T[:, None], T[::3, None], Y, sigma=pm.HalfNormal("sigma"))


@foreign
def kronecker_gp():
    covs = [pm.gp.cov.ExpQuad(1, pm.Gamma("length", 2, 1)), pm.gp.cov.ExpQuad(1, 1.0)]
    gp = pm.gp.MarginalKron(cov_funcs=covs)
    gp.marginal_likelihood("y", [T[:4, None], T[:2, None]], Y, sigma=pm.HalfNormal("sigma"))


@foreign
def conditional_autoregression():
    W = (abs(np.subtract.outer(T, T)) == 1).astype(int)
    phi = pm.CAR("phi", mu=np.zeros(8), W=W, alpha=pm.Beta("alpha", 1, 1), tau=1.0)
    pm.Poisson("y", pm.math.exp(phi), observed=COUNTS)


@foreign
def intrinsic_autoregression():
    W = (abs(np.subtract.outer(T, T)) == 1).astype(int)
    phi = pm.ICAR("phi", W=W)
    pm.Poisson("y", pm.math.exp(phi * pm.HalfNormal("scale")), observed=COUNTS)


@foreign
def differential_equation_by_scan():
    rate = pm.HalfNormal("rate")
    states = pytensor.scan(
        lambda x, k: x - 0.1 * k * x,
        outputs_info=[pt.ones(())],
        non_sequences=[rate],
        n_steps=8,
        return_updates=False,
    )
    pm.Normal("y", states, pm.HalfNormal("sigma"), observed=Y)


@foreign
def differential_equation():
    ode = pm.ode.DifferentialEquation(
        func=lambda y, t, p: [-p[0] * y[0]], times=T[1:], n_states=1, n_theta=1
    )
    rate = pm.HalfNormal("rate")
    pm.Normal("y", ode(y0=[1.0], theta=[rate]), pm.HalfNormal("sigma"), observed=Y[1:, None])


class BlackBox(Op):
    """An operation without a gradient."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(np.sum(inputs[0] ** 2))


@foreign
def black_box():
    pm.Potential("likelihood", -BlackBox()(pm.Normal("a") + pm.Normal("b")))


@foreign
def simulator():
    pm.Simulator(
        "y",
        lambda rng, mu, sigma, size: rng.normal(mu, sigma, size=size),
        pm.Normal("mu"),
        pm.HalfNormal("sigma"),
        epsilon=1,
        observed=Y,
    )


@foreign
def nested():
    with pm.Model(name="inner"):
        b = pm.Normal("b")
    pm.Normal("y", b * T, pm.HalfNormal("sigma"), observed=Y)


@makes
def intervened():
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", a)
        pm.Normal("y", a + b * T, pm.HalfNormal("sigma"), observed=Y)
    return pm.do(model, {"b": 1.0})


@makes
def observed_later():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a") + pm.Normal("b") * T, pm.HalfNormal("sigma"))
    return pm.observe(model, {"y": Y})


@makes
def dims_regression():
    with pm.Model(coords={"row": T}) as model:
        x = pmd.Data("x", T, dims="row")
        mean = pmd.Normal("a") + pmd.Normal("b") * x
        targets = pmd.as_xtensor(Y, dims=("row",))
        pmd.Normal("y", mean, pmd.HalfNormal("sigma"), observed=targets)
    return model


@makes
def dims_effects():
    with pm.Model(coords={"row": T, "group": range(4), "k": range(2)}) as model:
        a = pmd.Normal("a", pmd.Normal("mu"), pmd.HalfNormal("tau"), dims="group")
        group = pmd.Data("index", np.repeat(np.arange(4), 2), dims="row")
        x = pmd.Data("x", np.stack([T, T**2], 1), dims=("row", "k"))
        mean = a.isel(group=group) + x.dot(pmd.Normal("b", dims="k"), dim="k")
        targets = pmd.as_xtensor(Y, dims=("row",))
        pmd.Normal("y", mean, pmd.HalfNormal("sigma"), observed=targets)
    return model


@foreign
def no_data():
    pm.Normal("b", pm.Normal("a"), pm.HalfNormal("s"))


@foreign
def minibatch():
    x, y = pm.Minibatch(T, Y, batch_size=4)
    pm.Normal(
        "y", pm.Normal("a") + pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=y, total_size=8
    )


@foreign
def interpolated_prior():
    grid = np.linspace(-3, 3, 20)
    pm.Normal("y", pm.Interpolated("mu", grid, np.exp(-(grid**2))), 1, observed=Y)


@foreign
def directions():
    pm.VonMises("y", pm.VonMises("mu", 0, 1), pm.Gamma("kappa", 2, 1), observed=Y)


@foreign
def skewed():
    pm.SkewNormal(
        "y",
        mu=pm.Normal("mu"),
        sigma=pm.HalfNormal("sigma"),
        alpha=pm.Normal("alpha"),
        observed=Y,
    )


@foreign
def ranked():
    mu = pm.Normal("mu", shape=8)
    pm.Potential("order", pt.switch(pt.all(mu[1:] > mu[:-1]), 0.0, -np.inf))


@foreign
def bounded_flat():
    pm.Normal("y", pm.Flat("a") + pm.HalfFlat("b") * T, 1, observed=Y)


@foreign
def latent_counts():
    n = pm.Poisson("n", 5, shape=8)
    pm.Binomial("y", n + COUNTS, pm.Beta("p", 1, 1), observed=COUNTS)


@foreign
def hidden_markov():
    P = pm.Dirichlet("P", np.ones(2), shape=(2, 2))
    states = [pm.Categorical("s0", [0.5, 0.5])]
    for t in range(1, 4):
        states.append(pm.Categorical(f"s{t}", P[states[-1]]))
    mu = pm.Normal("mu", shape=2)
    pm.Normal("y", mu[pt.stack(states)], 1, observed=Y[:4])


@foreign
def discrete_markov_chain():
    P = pm.Dirichlet("P", np.ones(2), shape=(2, 2))
    chain = [pm.Bernoulli("z0", 0.5)]
    chain.append(pm.Bernoulli("z1", P[chain[0], 1]))
    pm.Normal("y", pm.Normal("mu", shape=2)[chain[1]], 1, observed=0.3)


@foreign
def probabilistic_pca():
    W = pm.Normal("W", shape=(2, 1))
    z = pm.Normal("z", shape=(1, 8))
    pm.Normal("y", (W @ z).T, pm.HalfNormal("sigma"), observed=PAIRS)


@foreign
def matrix_factorisation():
    U, V = pm.Normal("U", shape=(8, 2)), pm.Normal("V", shape=(2, 2))
    pm.Normal("y", U @ V.T, 1, observed=np.where(PAIRS > 2, np.nan, PAIRS))


@foreign
def coregionalised_gp():
    """The mixing weights multiply a function that is itself linear in variables, as a layer is."""
    gps = [
        pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma(f"length{k}", 2, 1))) for k in range(2)
    ]
    f = pt.stack([gp.prior(f"f{k}", T[:, None]) for k, gp in enumerate(gps)], axis=1)
    pm.Normal(
        "y",
        f @ pm.Normal("mixing", 0, tau=pm.Gamma("precision", 2, 1), shape=(2, 2)),
        pm.HalfNormal("sigma"),
        observed=PAIRS,
    )


@foreign
def reduced_rank_regression():
    U, V = pm.Normal("U", 0, pm.HalfNormal("tau"), shape=(2, 1)), pm.Normal("V", shape=(1, 2))
    pm.Normal("y", PAIRS[::-1] @ U @ V, pm.HalfNormal("sigma"), observed=PAIRS)


@foreign
def vector_autoregression():
    A = pm.Normal("A", 0, pm.HalfNormal("tau"), shape=(2, 2))
    B = pm.Normal("B", 0, 1, shape=(2, 2))
    x = PAIRS[:-2] @ A.T + PAIRS[1:-1] @ B.T
    pm.MvNormal("y", x, chol=np.eye(2) * pm.HalfNormal("sigma"), observed=PAIRS[2:])


@foreign
def linear_state_space():
    A = pm.Normal("A", 0, pm.HalfNormal("tau"), shape=(2, 2))
    C = pm.Normal("C", shape=(2, 2))
    states = [pm.Normal("x0", shape=2)]
    for t in range(1, 4):
        states.append(pm.Normal(f"x{t}", A @ states[-1], pm.HalfNormal(f"q{t}")))
    pm.Normal("y", pt.stack(states) @ C.T, pm.HalfNormal("sigma"), observed=PAIRS[:4])


@foreign
def structural_equations():
    latent = pm.MvNormal("latent", np.zeros(2), np.eye(2), shape=(8, 2))
    loadings = pm.Normal("loadings", 1, pm.HalfNormal("tau"), shape=(2, 2))
    pm.Normal(
        "y",
        (latent @ pm.Normal("B", shape=(2, 2))) @ loadings,
        pm.HalfNormal("sigma"),
        observed=PAIRS,
    )


@foreign
def attention_to_trend():
    """Changepoints as in Prophet."""
    delta = pm.Laplace("delta", 0, pm.HalfNormal("tau"), shape=3)
    A = (T[:, None] > np.array([2, 4, 6])) * 1.0
    growth = pm.Normal("k") + A @ delta
    pm.Normal(
        "y", growth * T + A @ (-np.array([2.0, 4, 6]) * delta), pm.HalfNormal("sigma"), observed=Y
    )


@foreign
def bayesian_lasso():
    b = pm.Laplace("b", 0, pm.HalfCauchy("tau", 1), shape=2)
    pm.Normal("y", np.stack([T, T**2], 1) @ b, pm.HalfNormal("sigma"), observed=Y)


@foreign
def no_free_variables():
    pm.Normal("y", 0, 1, observed=Y)


@foreign
def tobit():
    mean = pm.Normal("a") + pm.Normal("b") * T
    pm.Normal("y", pt.maximum(mean, 0), pm.HalfNormal("sigma"), observed=Y.clip(0))


@foreign
def latent_probit():
    pm.Bernoulli("y", pm.math.invprobit(pm.Normal("a") + pm.Normal("b") * T), observed=Y > 0)


@foreign
def errors_in_variables():
    x = pm.Normal("x", pm.Normal("mean"), pm.HalfNormal("spread"), shape=8)
    pm.Normal("seen", x, 0.1, observed=T)
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=Y)

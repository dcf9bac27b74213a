"""Scale conditionals: density differences to rounding, and what is declined."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.laws import match
from pymc_nnsteps.random.generalized_inverse_gaussian import GeneralizedInverseGaussianRV
from tests.cases import quick
from tests.laws.graphs import draw_graph, evaluate, logp_of, point_of
from tests.modes import FAST

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
Y = RNG.normal(size=(6, 3))
POSITIVE = RNG.gamma(2.0, size=(6, 3))
GROUP = np.array([0, 2, 2, 1, 0, 1])

MODELS = {}


def model_of(function):
    MODELS[function.__name__] = function
    return function


@model_of
def precision_of_observations():
    v = pm.Gamma("v", 2, 3)
    pm.Normal("y", 0.3, tau=v, observed=Y)


@model_of
def standard_deviation_by_precision():
    v = pm.Gamma("v", mu=2, sigma=0.7)
    pm.Normal("y", pm.Normal("mu"), 1 / pt.sqrt(v), observed=Y[:, 0])


@model_of
def variance():
    v = pm.InverseGamma("v", 2.5, 0.3)
    pm.Normal("y", X @ pm.Normal("beta", shape=3), pt.sqrt(v), observed=Y[:, 0])


@model_of
def variance_with_gamma_prior():
    v = pm.Gamma("v", 0.4, 2)
    pm.Normal("w", 0, pt.sqrt(v), shape=4)


@model_of
def precision_with_inverse_gamma_prior():
    v = pm.InverseGamma("v", 2, 2)
    pm.Normal("w", 0.2, tau=v, shape=4)


@model_of
def without_a_transform():
    v = pm.Gamma("v", 2, 3, default_transform=None)
    pm.Normal("w", 0, tau=v, shape=4)


@model_of
def per_source_unit():
    v = pm.Gamma("v", 2, 3, shape=3)
    pm.Normal("w", 0, tau=v, shape=(4, 3))


@model_of
def per_destination_unit():
    v = pm.Gamma("v", 2, 3, shape=4)
    pm.Normal("w", 0, tau=v[:, None], shape=(4, 3))


@model_of
def per_case():
    v = pm.Gamma("v", 2, 2, shape=6)
    pm.Normal("y", X[:, 0], tau=3 * v, observed=Y[:, 0])


@model_of
def product_of_scales():
    v = pm.Gamma("v", 2, 3, shape=3)
    other = pm.Gamma("other", 2, 3, shape=(4, 1))
    pm.Normal("w", 0, 1 / pt.sqrt(v * other), shape=(4, 3))


@model_of
def second_of_a_product():
    other = pm.Gamma("other", 2, 3, shape=3)
    v = pm.Gamma("v", 2, 3, shape=(4, 1))
    pm.Normal("w", 0, 1 / pt.sqrt(v * other), shape=(4, 3))


@model_of
def several_children():
    v = pm.Gamma("v", 2, 3, shape=3)
    adjustment = pm.Gamma("adjustment", 1, 1, shape=4)
    pm.Normal("w", 0, tau=v * adjustment[:, None], shape=(4, 3))
    pm.Normal("b", 1, tau=2 * v)


@model_of
def groups():
    v = pm.InverseGamma("v", 3, 1, shape=3)
    pm.Normal("y", 0, pt.sqrt(v[GROUP])[:, None] * POSITIVE, observed=Y)


@model_of
def one_entry_for_each_child():
    v = pm.Gamma("v", 2, 3, shape=3)
    pm.Normal("w", 0, tau=v[0], shape=(2, 4))
    pm.Normal("u", X[0], 1 / pt.sqrt(2 * v[-1]))
    pm.Normal("y", 0, tau=v[0] * POSITIVE, observed=Y)


@model_of
def a_range_of_entries():
    v = pm.Gamma("v", 2, 1, shape=4)
    pm.Normal("y", 0, tau=v[1:], observed=Y)


@model_of
def rows_and_columns_of_a_matrix():
    v = pm.InverseGamma("v", 2, 3, shape=(2, 3))
    pm.Normal("w", 0, pt.sqrt(v[1]), shape=(4, 3))
    pm.Normal("u", 0, pt.sqrt(v[:, 2])[:, None], shape=(2, 3))
    pm.Normal("t", 0, pt.sqrt(v[:, GROUP][1, 3]), shape=2)


@model_of
def entry_of_an_axis_of_length_one():
    other = pm.Gamma("other", 3, 3, shape=3)
    v = pm.Gamma("v", 2, 2, shape=(2, 1))
    pm.Normal("W", 0, tau=other * v, shape=(2, 3))
    pm.Normal("b", 0, tau=0.5 * v[:, 0])
    pm.Normal("c", 0, tau=v.squeeze(1))


@model_of
def length_one():
    v = pm.Gamma("v", 2, 3, shape=1)
    pm.Normal("y", 0, tau=v, observed=Y[:, 0])


@model_of
def mean_of_lower_precisions():
    v = pm.Gamma("v", 0.25, 0.1)
    tau = pm.Gamma("tau", 2, 2 / v, shape=5)
    pm.Normal("w", 0, tau=tau)


@model_of
def mean_of_lower_precisions_by_mu_and_sigma():
    v = pm.Gamma("v", 3, 1)
    pm.Gamma("tau", alpha=0.5, beta=0.5 / v, shape=(2, 5))


@model_of
def rate_of_lower_precisions():
    v = pm.Gamma("v", 2, 1, shape=(2, 1))
    pm.Gamma("tau", 0.7, v, shape=(2, 5))


@model_of
def scale_of_inverse_gammas():
    v = pm.InverseGamma("v", 2, 1)
    pm.InverseGamma("u", 3, 2 * v, shape=3)
    pm.InverseGamma("t", 1.5, 1 / v)


@model_of
def exponential_prior_and_children():
    v = pm.Exponential("v", 0.7)
    pm.Exponential("u", v, observed=POSITIVE)


@model_of
def laplace_and_half_normal():
    v = pm.InverseGamma("v", 2, 1)
    pm.Laplace("a", 0.2, v, shape=3)
    pm.HalfNormal("h", pt.sqrt(v), shape=2)


@model_of
def own_prior():
    v = nns.distributions.GeneralizedInverseGaussian("v", -0.3, 0.5, 1.2, shape=2)
    pm.Normal("w", 0, pt.sqrt(v), shape=(3, 2))


@model_of
def prior_of_other_variables():
    m = pm.Gamma("m", 2, 2)
    v = pm.Gamma("v", 1.5, 1.5 / m, shape=2)
    pm.Normal("w", 0, tau=v, shape=(3, 2))


@model_of
def dims_only():
    with pm.modelcontext(None) as model:
        model.add_coords({"unit": range(4)})
        v = pm.Gamma("v", 2, 3, dims="unit")
        pm.Normal("w", 0, tau=v, dims="unit")


@model_of
def half_normal_standard_deviation():
    v = pm.HalfNormal("v", 1.7)
    pm.Normal("y", 0.3, v, observed=Y)


@model_of
def half_normal_standard_deviations_of_groups():
    v = pm.HalfNormal("v", np.array([0.5, 1.0, 2.0]))
    pm.Normal("y", X, (v * 2)[GROUP][:, None], observed=Y)
    pm.Normal("w", 0, tau=1 / v**2, shape=(4, 3))
    pm.HalfNormal("h", pt.stack([v[1], 0.3]))


@model_of
def means_of_counts():
    v = pm.Gamma("v", 2, 3, shape=3)
    pm.Poisson("y", v[GROUP][:, None] * POSITIVE, observed=np.arange(18).reshape((6, 3)))
    pm.Poisson("n", 2 / pm.Gamma("u", 2, 2) * v)


@model_of
def log_normals():
    v = pm.InverseGamma("v", 2, 3)
    pm.LogNormal("y", 0.3, pt.sqrt(2 * v), observed=POSITIVE)


@model_of
def joined_with_a_constant():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("w", 0, 1 / pt.sqrt(pt.concatenate([v * pt.ones(3), [0.01]])), shape=(4, 4))
    pm.Normal("u", 0, tau=pt.concatenate([v * POSITIVE[:, :2], pt.ones((6, 1))], axis=1))
    pm.Gamma("t", 2, pt.stack([v, 0.3, 2 * v]))


@model_of
def joined_with_another_scale():
    other = pm.Gamma("other", 2, 1, shape=2)
    v = pm.InverseGamma("v", 2, 1, shape=3)
    scales = pt.concatenate([v, other, v[::-1] * 2, other[:1]])
    pm.Normal("w", 0, pt.sqrt(scales)[:, None], shape=(9, 2))
    pm.Laplace("l", 0, pt.concatenate([other[:, None] * pt.ones(3), v * pt.ones((4, 3))]))


@model_of
def joined_and_rearranged():
    v = pm.Gamma("v", 2, 1, shape=2)
    parts = pt.stack([pt.ones(3), v[1] * pt.ones(3), v[0] * POSITIVE[0]])
    pm.Normal("w", 0, tau=parts.T[:, [2, 1, 1, 0]], shape=(5, 3, 4))
    pm.Normal("u", 0, tau=3 * pt.stack([v[0], 1.0, v[1]])[GROUP])
    pm.Normal("t", 0, tau=parts[1] ** 2 / parts[1])
    pm.Normal("s", 0, tau=pt.sqr(pt.sqrt(parts[0:2])))
    pm.Normal("r", 0, tau=pt.concatenate([v, v[:1]]) * np.ones((4, 1)))


@model_of
def no_children():
    pm.Gamma("v", 2, 3, shape=2)


def build(name):
    with pm.Model() as model:
        MODELS[name]()
    return model


def parameters_of_draw(model, conditional, point):
    """nu, delta^2 and lambda^2 that a draw claims, with its own value hidden."""
    rng, _, [value] = draw_graph(model, conditional)
    [node] = {
        v.owner
        for v in ancestors([value])
        if v.owner is not None
        and isinstance(v.owner.op, GeneralizedInverseGaussianRV)
        and v.owner.inputs[0] is rng
    }
    [rv] = conditional.draws
    hidden = model.rvs_to_values[rv]
    blind = {v: point[v.name] for v in model.value_vars}
    blind[hidden] = np.full_like(point[hidden.name], np.nan)
    return [np.broadcast_to(p, rv.eval().shape) for p in evaluate(node.op.dist_params(node), blind)]


QUICK = {
    "precision_of_observations", "variance", "precision_with_inverse_gamma_prior",
    "without_a_transform", "per_source_unit", "per_case", "second_of_a_product",
    "several_children", "groups", "one_entry_for_each_child", "rows_and_columns_of_a_matrix",
    "mean_of_lower_precisions", "rate_of_lower_precisions", "exponential_prior_and_children",
    "own_prior", "half_normal_standard_deviations_of_groups", "log_normals",
    "joined_with_another_scale",
}  # fmt: skip


@pytest.mark.parametrize("name", quick(MODELS, QUICK))
def test_density_differences(name):
    """A factor 2, a lost child, a sum over the wrong axis, the Jacobian of the transform."""
    model = build(name)
    rv = model["v"]
    conditional = match(model, rv)
    rng = np.random.default_rng(0)
    transform = model.rvs_to_transforms[rv]
    value_name = model.rvs_to_values[rv].name
    positive = {} if transform else {"v": rng.gamma(2.0, size=rv.eval().shape)}
    point = point_of(model, rng, **positive)
    nu, delta2, lambda2 = parameters_of_draw(model, conditional, point)
    # Rewritten: PyTensor divides by a small integer, as a rate is, in single precision.
    logp = model.compile_logp(mode=FAST)

    def claimed(value):
        x = np.exp(value) if transform else value
        jacobian = np.log(x) if transform else 0.0
        power = x**conditional.root
        jacobian += np.log(power / x)
        return np.sum((nu - 1) * np.log(power) - (delta2 / power + lambda2 * power) / 2 + jacobian)

    here = point[value_name]
    for scale in (0.1, 1.0, 4.0):
        there = here + scale * rng.normal(size=here.shape) if transform else here * np.exp(scale)
        theirs = logp({**point, value_name: np.asarray(there, here.dtype)}) - logp(point)
        ours = claimed(there) - claimed(here)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_draws_are_positive_and_fit(name):
    """Shapes, dtypes and the transform on the way back into the point."""
    model = build(name)
    point = point_of(model, np.random.default_rng(0))
    point = {name: np.exp(x) if name == "v" else x for name, x in point.items()}
    step = nns.Gibbs([model["v"]], model=model, rng=np.random.default_rng(0), initial_point=point)
    new, _ = step.step(point)
    assert list(new) == list(point)
    [value] = step.vars
    assert new[value.name].shape == point[value.name].shape
    assert np.isfinite(new[value.name]).all()
    assert np.isfinite(logp_of(model)(new))


def scales_of_weights():
    """Every kind of prior with which a scale of weights has no law where these are zero."""
    scales = {
        "half_normal": pm.HalfNormal("half_normal", shape=3),
        "exponential": pm.Exponential("exponential", 1),
        "uniform": pm.Uniform("uniform", 0, 3),
        "variance": pm.Gamma("variance", 0.4, 2) ** 0.5,
        "precision": pm.InverseGamma("precision", 2, 2) ** -0.5,
    }
    weights = [pm.Normal(f"w_{name}", 0, sigma, shape=3) for name, sigma in scales.items()]
    more = pm.Normal("more", 0, scales["precision"])
    mean = X @ pm.math.stack(weights, axis=1).sum(1) + more
    pm.Normal("y", mean, 0.5, observed=Y[:, 0])
    return list(scales)


def test_scales_wait_for_weights_that_begin_at_zero():
    """NaN in the chain; a scale that stays as it was, or other weights than these that do."""
    with pm.Model() as model:
        names = scales_of_weights()
        step = nns.Gibbs(rays=False, rng=np.random.default_rng(0), compile_kwargs={"mode": ONCE})
    start = model.initial_point()
    first, _ = step.step(start)
    second, _ = step.step(first)
    for name in names:
        value = model.rvs_to_values[model[name]].name
        np.testing.assert_allclose(first[value], start[value], rtol=0, atol=1e-12)
        assert np.all(np.abs(second[value] - start[value]) > 1e-6)
        assert np.all(first[f"w_{name}"] != 0)
    assert all(np.isfinite(value).all() for value in second.values())


def test_improper_at_zero():
    """NaN in the chain, or a scale that waits for ever: all that is seen of it stays at zero."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=2)
        pm.Normal("y", 0, sigma[0], observed=[0.0, 0.0])
        pm.Normal("z", 0, sigma[1], observed=[0.0, 1.0])
    with pytest.raises(ValueError, match="sigma_log__ cannot be drawn at the initial point"):
        nns.Gibbs(model=model, compile_kwargs={"mode": ONCE})


def test_float32():
    with pytensor.config.change_flags(floatX="float32"):
        for name in ("several_children", "mean_of_lower_precisions", "groups"):
            model = build(name)
            step = nns.Gibbs([model["v"]], model=model, rng=np.random.default_rng(0))
            new, _ = step.step(model.initial_point())
            assert new[step.vars[0].name].dtype == "float32"


DECLINED = {}


def declined(reason):
    def register(function):
        DECLINED[function.__name__] = (function, reason)
        return function

    return register


@declined("power -0.5")
def half_normal_precision():
    v = pm.HalfNormal("v", 2, shape=3)
    pm.Normal("y", 0, tau=v, observed=Y)


@declined("its prior is Logistic, not Normal")
def logistic_location():
    v = pm.Logistic("v", 0, 2)
    pm.Normal("y", v, 1, observed=Y)


@declined(
    "its prior is Gamma, for which no conditional is known where the scale of child y is proport"
)
def standard_deviation():
    v = pm.Gamma("v", 2, 1, shape=3)
    pm.Normal("y", 0, v, observed=Y)


@declined("in different ways")
def two_powers_joined():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", 0, tau=pt.stack([v, v**2, 1.0]), observed=Y)


@declined("along different axes")
def two_axes_joined():
    v = pm.Gamma("v", 2, 1, shape=(3, 3))
    pm.Normal("y", 0, tau=pt.concatenate([v[0], v[:, 0]]), observed=np.ones((2, 6)))


@declined("joins entries")
def a_sum_of_joined_entries():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", 0, tau=pt.stack([v, 1.0]).sum(), observed=Y)


@declined("is not a power of it")
def whole_part():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", 0, tau=pt.cast(v, "int64"), observed=Y)


@declined("a parameter other than the scale of child y depends on it")
def mean_too():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", v, tau=v, observed=Y)


@declined("a parameter other than the scale of child tau depends on it")
def shape_of_a_gamma():
    v = pm.Gamma("v", 2, 1)
    pm.Gamma("tau", v, v, shape=3)


@declined("child y is Gumbel, without a known scale")
def gumbel():
    v = pm.Gamma("v", 2, 1)
    pm.Gumbel("y", 0, 1 / v, observed=Y)


@declined("a parameter other than the scale of child y depends on it")
def degrees_of_freedom():
    v = pm.Gamma("v", 2, 1)
    pm.StudentT("y", nu=v, mu=0, lam=v, observed=Y)


@declined("is not a power of it")
def sum_of_variances():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", 0, pt.sqrt(v + 1), observed=Y)


@declined("does not keep its entries apart")
def a_mean_of_entries():
    v = pm.Gamma("v", 2, 1, shape=4)
    pm.Normal("y", 0, tau=v.mean(), observed=Y)


@declined("indexed by a number and a slice at once")
def a_range_of_a_row():
    v = pm.Gamma("v", 2, 1, shape=(2, 4))
    pm.Normal("y", 0, tau=v[0, 1:], observed=Y)


@declined("twice, along different axes")
def product_of_two_entries():
    v = pm.Gamma("v", 2, 1, shape=3)
    pm.Normal("y", 0, tau=v[0] * v[1], observed=Y)


@declined("the potential p depends on it")
def potential():
    v = pm.Gamma("v", 2, 1)
    pm.Normal("y", 0, tau=v, observed=Y)
    pm.Potential("p", -v)


@declined("the transform Interval constrains it")
def other_transform():
    v = pm.Gamma("v", 2, 1, default_transform=pm.distributions.transforms.Interval(0, 3))
    pm.Normal("y", 0, tau=v, observed=Y)


@pytest.mark.parametrize("name", DECLINED)
def test_declines(name):
    """A sampler for another model than the user's."""
    function, reason = DECLINED[name]
    with pm.Model() as model:
        function()
    with pytest.raises(nns.laws.NotConjugate, match=reason):
        match(model, model["v"])


def test_logp_is_compiled_for_the_whole_model():
    """The oracle itself: it must see the variable."""
    model = build("precision_of_observations")
    values = [model.compile_logp(mode=ONCE)({"v_log__": np.array(v)}) for v in (0.0, 1.0)]
    assert values[0] != values[1]

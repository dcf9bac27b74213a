"""HMC: the law it leaves invariant while its metric follows other steps, and what it refuses."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import CompoundStep
from scipy import integrate

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.steps import tuning
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.network_curvature import Metric
from tests.statistics import Z_LIMIT, assert_chain_moments, batch_means_z_scores
from tests.steps.chains import chain
from tests.steps.gaussian import PRIORS, design, regression
from tests.steps.joint import assert_joint, joint_z_scores

C = {"compile_kwargs": c_by_default()}
"""Trajectories in Python, for tests of a few: a compiler takes longer than they do."""

RNG = np.random.default_rng(5)
A = RNG.normal(size=(4, 3))


def two_levels():
    """Weights with priors of every kind that the metric reads, and one that it does not."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3.0, 2.0)
        w = pm.Normal("w", 0.5, tau=tau, shape=3)
        t = pm.StudentT("t", 5.0, 0.0, sigma=tau**-0.5, shape=2)
        a = pm.Laplace("a", 0.0, 0.7)
        r = pm.Gamma("r", 3.0, 1.0)
        mean = pm.math.tanh(A @ w) + t[0] - t[1] * A[:, 0] + a * pm.math.log(r)
        pm.Normal("y", mean, 0.8, observed=pm.Data("targets", np.zeros(4)))
    return model


def within_gibbs(model, **options):
    """Steps of a size that is accepted nearly always: no chain stands where it cannot be judged."""
    moved = nns.HMC(
        ["w", "t", "a", "r"], model=model, **{"step_size": 0.35, "metric": "learnt", **options}
    )
    return CompoundStep([moved, nns.Gibbs(["tau"], model=model)])


# --- laws ----------------------------------------------------------------------------------


def linear(draws, *, tune):
    """A chain on a linear Gaussian model, and its law."""
    prior = PRIORS["several"]
    matrix, y = design(len(prior.mean))
    model, variables = regression(prior)
    model["targets"].set_value(y)
    step = nns.HMC(variables, model=model)
    return chain(step, model.initial_point(), draws, tune=tune)[0], prior.posterior(matrix, 1.0, y)


@pytest.mark.slow
def test_law():
    """A wrong weight of a place, a turn that is seen from one side only."""
    history, law = linear(2_000, tune=200)
    assert_chain_moments(history, *law)


@pytest.mark.slow
def test_within_gibbs():
    """The metric changes from trajectory to trajectory, with the scale that Gibbs draws."""
    model = two_levels()
    assert_joint(within_gibbs(model, longest=None), model, "targets", transitions=4_000)


def test_network_within_gibbs():
    """The metric of a network, of scales and noise that Gibbs draws."""
    with pm.Model() as model:
        tau, noise = pm.Gamma("tau", 3.0, 2.0), pm.Gamma("noise", 3.0, 1.0)
        w = pm.Normal("w", 0.0, tau=tau, shape=(3, 2))
        v = pm.StudentT("v", 5.0, 0.0, sigma=tau**-0.5, shape=2)
        pm.Normal("y", pt.tanh(A @ w) @ v, tau=noise, observed=pm.Data("targets", np.zeros(4)))
    moved = nns.HMC(["w", "v"], step_size=0.9, longest=10, metric="network", model=model)
    step = CompoundStep([moved, nns.Gibbs(["tau", "noise"], model=model)])
    assert_joint(step, model, "targets", transitions=4_000)


def varying_noise():
    """Mean and log standard deviation of one network, whose scale Gibbs draws."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3.0, 2.0)
        w = pm.Normal("w", 0.0, tau=tau, shape=(3, 2))
        v = pm.Normal("v", 0.0, 0.7, shape=(2, 2))
        f = pt.tanh(A @ w) @ v
        level = pm.Normal("level", -0.3, 0.5)
        scale = pm.math.exp(f[:, 1] + level)
        pm.Normal("y", f[:, 0], scale, observed=pm.Data("targets", np.zeros(4)))
    return model


def varying_noise_within_gibbs(model):
    moved = nns.HMC(["w", "v", "level"], step_size=0.6, longest=10, model=model)
    assert moved._metric.kind == "network"
    return CompoundStep([moved, nns.Gibbs(["tau"], model=model)])


@pytest.mark.slow
def test_varying_noise_within_gibbs():
    """The information in mean and scale, at a place that is none of the trajectory."""
    model = varying_noise()
    assert_joint(varying_noise_within_gibbs(model), model, "targets", transitions=3_000)


def counts():
    """Overdispersed counts, with an effect of groups; the dispersion is moved too."""
    group = np.arange(8) % 3
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3.0, 2.0)
        w, v = pm.Normal("w", 0.0, tau=tau, shape=(3, 2)), pm.Normal("v", 0.0, 0.7, shape=2)
        a = pm.Normal("a", 0.5, 0.5, shape=3)
        eta = pt.tanh(np.concatenate([A, A[::-1] + 0.2]) @ w) @ v + a[group]
        alpha = pm.LogNormal("alpha", 0.5, 0.5)
        pm.NegativeBinomial("y", pm.math.exp(eta), alpha, observed=[0, 3, 1, 7, 0, 2, 1, 4])
    return model


def check_counts():
    model = counts()
    moved = nns.HMC(["w", "v", "a", "alpha"], longest=8, model=model)
    step = [moved, nns.Gibbs(["tau"], model=model)]
    nns.verify(model, sweeps=3_000, step=step, random_seed=1)


@pytest.mark.slow
def test_counts():
    """Stein's identities of weights, effects and dispersion, after tuning."""
    check_counts()


@pytest.mark.release
def test_counts_in_a_metric_of_the_place_are_seen(monkeypatch):
    """A metric of the place shows in the dispersion, which moves along."""
    evaluate = Metric.__call__

    def at_the_place(self, point, references):
        precision, *others = evaluate(self, point, references)
        precision[-1] *= np.exp(2 * point["alpha_log__"])
        return [precision, *others]

    monkeypatch.setattr(Metric, "__call__", at_the_place)
    with pytest.raises(AssertionError, match=r"alpha.* fails, z ="):
        check_counts()


@pytest.mark.slow
def test_information_at_the_place_is_seen(monkeypatch):
    """Where the trajectory begins."""
    model = varying_noise()
    step = varying_noise_within_gibbs(model)
    monkeypatch.setattr(nns.HMC, "_typical", lambda self, point: self._metric.references(point))
    scores = joint_z_scores(step, model, "targets", transitions=20_000)
    assert max(map(abs, scores.values())) > Z_LIMIT + 1


def quartic(theta):
    """Log density whose curvature differs from place to place."""
    return -4 * theta**4


def quartic_z_scores(tune):
    """z scores of the first four moments, which quadrature knows, after so much tuning."""
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.5, 1.5)
        pm.Potential("well", quartic(theta))
    step = nns.HMC([theta], step_size=0.9, model=model)
    draws = chain(step, model.initial_point(), 6_000, tune=tune)[0][:, 0]

    def density(x):
        return np.exp(quartic(x) - (x - 0.5) ** 2 / (2 * 1.5**2))

    moments = [integrate.quad(lambda x, k=k: x**k * density(x), -6, 6)[0] for k in range(5)]
    return batch_means_z_scores(
        draws[:, None] ** np.arange(1, 5) - np.array(moments[1:]) / moments[0]
    )


def test_learnt_curvature():
    """It is that of tuning, for all draws that follow."""
    assert np.all(np.abs(quartic_z_scores(tune=200)) < Z_LIMIT)


# --- the tests see errors ------------------------------------------------------------------


def test_curvature_that_is_learnt_after_tuning_is_seen(monkeypatch):
    """From the place where a trajectory begins."""
    monkeypatch.setattr(tuning, "RECENT", 1e12)
    monkeypatch.setattr(nns.HMC, "stop_tuning", lambda self: None)
    assert np.max(np.abs(quartic_z_scores(tune=200))) > Z_LIMIT + 1


@pytest.mark.slow
def test_a_metric_of_what_is_moved_is_seen(monkeypatch):
    """Prior precisions that follow the place, and not what Gibbs draws alone."""
    model = two_levels()
    step = within_gibbs(model, longest=None)
    evaluate = Metric.__call__

    def at_the_place(self, point, references):
        place = np.concatenate([np.ravel(point[name]) for name in ("w", "t", "a", "r_log__")])
        precision, *others = evaluate(self, point, references)
        return [precision * (1 + 30 * place**2), *others]

    monkeypatch.setattr(Metric, "__call__", at_the_place)
    scores = joint_z_scores(step, model, "targets", transitions=8_000)
    assert max(map(abs, scores.values())) > Z_LIMIT + 1


# --- what the metric is --------------------------------------------------------------------


def _gradient(model, rvs, point):
    """Gradient of the terms that depend on these variables, by PyMC."""
    target = model.logp(vars=[*rvs, model["y"]])
    slopes = pt.grad(target, [model.rvs_to_values[rv] for rv in rvs])
    compute = model.compile_fn(slopes, mode="FAST_COMPILE", on_unused_input="ignore")
    return np.concatenate([np.ravel(slope) for slope in compute(point)])


def test_density_and_metric():
    """Against the model's own: value, gradient, that of the priors, prior precisions."""
    model = two_levels()
    rvs = [model[name] for name in ("w", "t", "a", "r")]
    density = FlatDensity(model, rvs, C["compile_kwargs"])
    metric = Metric(model, rvs, "learnt", C["compile_kwargs"])
    rng = np.random.default_rng(0)
    point = {name: rng.normal(size=v.shape) for name, v in model.initial_point().items()}
    found = density(density.read(point))
    value = model.compile_logp(vars=[*rvs, model["y"]], mode="FAST_COMPILE")(point)
    tau = np.exp(point["tau_log__"])
    squares = point["t"] ** 2 * tau
    prior_slopes = [
        -(point["w"] - 0.5) * tau,
        -point["t"] * tau * 6 / (5 + squares),
        [-np.sign(point["a"]) / 0.7],
        [0.0],
    ]
    widths = [tau] * 3 + [1.2 * tau] * 2 + [0.7**-2, 1.0]
    precision, slopes, is_learnt = metric(point)
    assert is_learnt.all()
    np.testing.assert_allclose(found[0], value)
    np.testing.assert_allclose(found[1:], _gradient(model, rvs, point))
    np.testing.assert_allclose(slopes, np.concatenate(prior_slopes), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(precision, widths)


def test_a_scale_that_moves_with_its_bound_is_no_parent():
    """Its value variable is another step's, and what it stands for changes on the trajectory."""
    with pm.Model() as model:
        bound = pm.Gamma("bound", 3.0, 1.0)
        scale = pm.Uniform("scale", 0.0, bound)
        w = pm.Normal("w", 0.0, scale)
        pm.Normal("y", w, scale, observed=0.3)
    point = model.initial_point()
    elsewhere = point | {"bound_log__": point["bound_log__"] + 1.0}
    for rvs, moves in [([w, bound], False), ([w], True)]:
        metric = Metric(model, rvs, "auto", C["compile_kwargs"])
        assert metric.kind == ("network" if moves else "learnt")
        assert (metric(elsewhere)[0][0] != metric(point)[0][0]) == moves
    with pytest.raises(ValueError, match="the transform of scale depends on the moved variables"):
        Metric(model, [w, bound], "network", C["compile_kwargs"])


# --- beside other steps --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_beside_gibbs_and_nuts():
    """Its statistics beside theirs; what is learnt in tuning is kept in each process."""
    model = two_levels()
    with model:
        extra = pm.Normal("extra")
        steps = [nns.HMC(["w", "t", "a", "r"], **C), nns.Gibbs(["tau"]), pm.NUTS([extra])]
        options = {"tune": 60, "draws": 30, "chains": 2, "random_seed": 3, "progressbar": False}
        options |= {"compute_convergence_checks": False, "step": steps, "quiet": True}
        one, two = (pm.sample(cores=cores, **options) for cores in (1, 2))
    stats = one["sample_stats"]
    assert np.ptp(stats["proposal_size"].values, axis=1).max() == 0.0
    assert stats["n_leapfrog"].values.min() >= 1
    assert stats["diverging"].values.sum() <= 5
    for name in ("w", "tau", "r"):
        np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])


def test_divergences_are_counted_after_tuning():
    model = two_levels()
    step = nns.HMC(["w"], step_size=1e3, model=model, **C)
    step.setup_chain(np.random.default_rng(0), 2, 3)
    point, counts = model.initial_point(), []
    for i in range(5):
        if i == 2:
            step.stop_tuning()
        new, [stats] = step.step(point)
        assert stats["diverging"]
        np.testing.assert_array_equal(new["w"], point["w"])
        counts.append(stats["n_diverging"])
    assert counts == [0, 0, 1, 2, 3]


def test_what_was_tuned_is_kept_by_chains_without_tuning():
    model = two_levels()
    step = nns.HMC(["w"], model=model, **C)
    step.setup_chain(np.random.default_rng(0), 9, 3)
    point = model.initial_point()
    for _ in range(9):
        point, _ = step.step(point)
    step.stop_tuning()
    kept = step.size, step.curvature
    step.setup_chain(np.random.default_rng(1), 0, 3)
    assert (step.size, step.curvature) == kept
    step.setup_chain(np.random.default_rng(1), 9, 3)
    assert step.curvature is None


def test_which_trajectories():
    """A random length beside the scales of a network, no-U-turn elsewhere, or as asked."""
    model = two_levels()
    found = [nns.HMC(["w"], metric=metric, model=model, **C) for metric in ("network", "learnt")]
    assert [step.longest for step in found] == [1000, None]
    assert nns.HMC(["w"], longest=None, model=model, **C).longest is None


@pytest.mark.slow
def test_steps_of_a_network_have_a_largest_size(monkeypatch):
    """Where all are accepted the adaptation stays near it, and is soon back if they are not."""
    model = two_levels()
    point, sizes = model.initial_point(), []
    for metric in ("network", "learnt"):
        step = nns.HMC(["w"], metric=metric, model=model, **C)
        monkeypatch.setattr(nns.HMC, "_move", lambda *given: (0.0, 1.0, 1, False))
        for _ in range(300):
            step.step(point)
        sizes.append(step.size)
        monkeypatch.undo()
        if metric == "network":
            assert abs(step.adaptation.current) < 0.5
    assert sizes[0] <= 1.0 < sizes[1]


def test_depth_is_limited():
    model = two_levels()
    step = nns.HMC(["w"], step_size=1e-3, max_depth=2, longest=None, model=model, **C)
    step.setup_chain(np.random.default_rng(0), 0, 3)
    _, [stats] = step.step(model.initial_point())
    assert stats["n_leapfrog"] == 3


# --- messages ------------------------------------------------------------------------------


def test_bad_input():
    with pm.Model() as model:
        k = pm.Poisson("k", 2.0)
        x = pm.Normal("x")
        pm.Potential("nowhere", pm.math.log(x))
    for arguments, message in [
        ({"vars": [k]}, "k is discrete, but HMC moves continuous variables"),
        ({"vars": [x], "metric": "euclidean"}, "metric must be"),
        (
            {"vars": [x], "metric": "network"},
            'needs a network that can be read: the curvature of nowhere is not known; use "learnt"',
        ),
        ({"vars": [x], "target_accept": 1.0}, "target_accept"),
        ({"vars": [x], "step_size": 0.0}, "step_size"),
        ({"vars": [x], "max_depth": 0}, "max_depth"),
        ({"vars": [x], "longest": 0}, "longest"),
        ({"vars": [x], "scales": "all"}, "scales must be True or False"),
        ({"vars": [x], "relabel": 1}, "relabel must be True or False"),
    ]:
        with pytest.raises(ValueError, match=message):
            nns.HMC(model=model, **arguments, **C)
    step = nns.HMC([x], model=model, initial_point={"k": np.array(2), "x": np.array(1.0)}, **C)
    with pytest.raises(ValueError, match="log density of x is -inf where a trajectory is to begin"):
        step.step(model.initial_point())

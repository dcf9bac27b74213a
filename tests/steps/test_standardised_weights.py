"""Scales moved with their weights: what moves along, by which degrees, and the law that is kept."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.steps import trajectories
from pymc_nnsteps.steps.standardised_weights import StandardisedWeights, basis_of
from pymc_nnsteps.steps.trajectories import move_on_orbit, slope_on_orbit
from pymc_nnsteps.steps.tuning import Recent
from tests.planting import plant
from tests.statistics import Z_LIMIT
from tests.steps.joint import assert_joint, joint_z_scores

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 3))
GROUP = np.array([2, 0, 1, 0, 2, 1, 0, 0, 2])


def hierarchical():
    """Levels of groups and of units, adjustments, weights that skip a layer."""
    return nns.hierarchical_mlp(
        X, X[:, 0] > 0, hidden=(4, 2), likelihood="bernoulli", priors={"io": "0.5:1", "ah1": 3}
    )


def shared():
    """A weight of several connections, and no level of units."""
    kernel = np.array([[0, 1, -1], [-1, 0, 1]])
    return nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), connections={"ih": kernel})


def by_hand():
    """Standard deviations, precisions that data pick, other priors, effects beside a network."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        unit = pm.InverseGamma("unit", 3.0, 2.0 * s, shape=2)
        w = pm.StudentT("w", 5.0, 0.0, sigma=unit, shape=(3, 2))
        v = pm.Laplace("v", 0.0, 0.3 * s, shape=2)
        kind = pm.Gamma("kind", 2.0, 1.0, shape=2)
        a = pm.Normal("a", 0.0, tau=kind[pm.Data("kinds", [1, 0, 1])], shape=3)
        eta = pt.tanh(X @ w) @ v + a[GROUP]
        pm.Poisson("y", pm.math.exp(eta), observed=GROUP)
    return model


BUILDS = {
    hierarchical: ["tau_ah1", "tau_ih1", "tau_ih1_unit", "tau_bh1", "tau_h1h2", "tau_bh2"],
    shared: ["tau_ih1", "tau_bh1", "tau_h1o"],
    by_hand: ["s", "unit", "kind"],
}
OTHERS = {hierarchical: ["tau_h2o", "tau_io"], shared: [], by_hand: []}


def standardised(model):
    """The scales, an orbit and a point, and the values that move, as functions of the place."""
    weights = [rv for rv in model.free_RVs if model.rvs_to_transforms[rv] is None]
    found = StandardisedWeights(model, weights)
    point = {k: RNG.normal(size=np.shape(v)) for k, v in model.initial_point().items()}
    values = [model.rvs_to_values[rv] for rv in (*weights, *found.scales)]
    return found, found.orbit(point), point, values


def moved(orbit, values, point, u):
    """The point at u, and the logarithm of the change of volume."""
    origin = np.concatenate([np.ravel(point[v.name]) for v in values])
    place = np.empty_like(origin)
    log_volume = move_on_orbit(orbit, origin, np.asarray(u, dtype=float), place)
    ends = np.cumsum([point[v.name].size for v in values])
    parts = np.split(place, ends[:-1])
    shaped = {
        v.name: part.reshape(point[v.name].shape) for v, part in zip(values, parts, strict=True)
    }
    return {**point, **shaped}, log_volume, place


@pytest.mark.parametrize("build", BUILDS)
def test_ratios_are_held(build):
    """Each weight and each scale of scales, over its own scale; the volume of what multiplies."""
    model = build()
    found, orbit, point, values = standardised(model)
    assert [rv.name for rv in found.scales] == BUILDS[build] + OTHERS[build]
    n = orbit.directions.max() + 1
    there, log_volume, _ = moved(orbit, values, point, RNG.normal(size=n))
    weights = [rv for rv in model.free_RVs if model.rvs_to_transforms[rv] is None]
    expected = sum(np.log(there[rv.name] / point[rv.name]).sum() for rv in weights)
    assert log_volume == pytest.approx(expected)
    scales = {rv: [] for rv in (*weights, *found.scales)}
    for scale, seen in found._pairs:
        scales[seen.child].append(scale)
    held = [rv for rv in weights if scales[rv]]
    logp = model.compile_logp(vars=held, sum=False, mode="FAST_COMPILE")
    before, after = (np.concatenate([np.ravel(p) for p in logp(at)]) for at in (point, there))
    growth = [np.log(there[rv.name] / point[rv.name]).ravel() for rv in held]
    np.testing.assert_allclose(after, before - np.concatenate(growth), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("build", BUILDS)
def test_slope(build):
    """The derivative of the density in the coordinates of the orbit, the Jacobian included."""
    model = build()
    _, orbit, point, values = standardised(model)
    logp = model.compile_logp(mode="FAST_COMPILE")
    gradient = model.compile_dlogp(vars=[model.values_to_rvs[v] for v in values])
    u = 0.3 * RNG.normal(size=orbit.directions.max() + 1)

    def at(u):
        there, log_volume, _ = moved(orbit, values, point, u)
        return logp(there) + log_volume

    there, _, place = moved(orbit, values, point, u)
    slope = np.empty_like(u)
    slope_on_orbit(orbit, place, gradient(there), slope)
    steps = 1e-5 * np.eye(len(u))
    numeric = [(at(u + step) - at(u - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


def test_basis():
    """Independent of the scale of directions; of many values the inverse of their root."""
    root = np.array([[1.0, 0.0], [3.0, 20.0]])
    for count in (0, 10**6):
        found = basis_of(Recent([root @ root.T], count))
        curvature = found.T @ root @ root.T @ found
        np.testing.assert_allclose(np.diagonal(curvature), 1.0, rtol=0.5)
    np.testing.assert_allclose(curvature, np.eye(2), atol=1e-3)


def test_directions():
    """One of each level and of each unit with several weights; none of a weight by itself."""
    found, orbit, point, _ = standardised(hierarchical())
    sizes = [point[f"{rv.name}_log__"].size for rv in found.scales]
    assert orbit.directions.max() + 1 == sum(sizes)
    with pm.Model() as model:
        local = pm.HalfNormal("local", shape=5)
        pm.Normal("w", 0, local, shape=5)
    assert StandardisedWeights(model, [model["w"]]).orbit(model.initial_point()).degrees.size == 0


def test_what_is_no_scale():
    """A mean that is not zero, a scale within bounds, and one that is no power."""
    with pm.Model() as model:
        a, b = pm.HalfNormal("a"), pm.HalfNormal("b")
        c, d = pm.Uniform("c", 0, 2), pm.HalfNormal("d")
        w = [pm.Normal("w0", 1.0, a), pm.Normal("w1", 0, 1 + b), pm.Normal("w2", 0, c)]
        pm.Normal("y", sum(w), d, observed=np.ones(3))
    assert StandardisedWeights(model, w).scales == []


# --- the law that is kept ------------------------------------------------------------------


def levels():
    with pm.Model() as model:
        s = pm.Gamma("s", 3.0, 3.0)
        unit = pm.Gamma("unit", 3.0, 3.0 / s, shape=2)
        w = pm.Normal("w", 0.0, tau=unit, shape=(3, 2))
        v = pm.Normal("v", 0.0, tau=s, shape=2)
        pm.Normal("y", pt.tanh(X[:4] @ w) @ v, 0.6, observed=pm.Data("targets", np.zeros(4)))
    return model


def alone(model, **options):
    """Trajectories of scales, with few other moves to hide an error."""
    return nns.HMC(["w", "v"], step_size=0.3, longest=2, model=model, **options)


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
def test_joint(collapse):
    """By these trajectories alone the scales keep their law, with weights integrated out too."""
    model = levels()
    assert_joint(alone(model, collapse=collapse), model, "targets", transitions=4_000)


def test_a_metric_of_other_data_is_forgotten():
    """One of another number of directions, where a chain begins without tuning."""
    model = levels()
    step = alone(model, compile_kwargs=c_by_default(None))
    step.setup_chain(np.random.default_rng(0), 0, 1)
    step.of_scales = replace(step.of_scales, curvature=Recent([np.eye(9)]))
    step.step(model.initial_point())
    assert step.of_scales.curvature.means[0].shape == (3, 3)


def without_volume(right, *given):
    right(*given)
    return 0.0


@pytest.mark.slow
def test_a_lost_jacobian_is_seen(monkeypatch):
    """A wrong slope or degree changes what is accepted, not the law: other tests see these."""
    model = levels()
    step = alone(model, collapse=False, compile_kwargs=c_by_default(None))
    plant(monkeypatch, trajectories, "move_on_orbit", without_volume)
    scores = joint_z_scores(step, model, "targets", transitions=4_000)
    assert max(map(abs, scores.values())) > Z_LIMIT + 1

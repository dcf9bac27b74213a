"""A Gaussian block integrated out of what HMC moves: its density, its law, what is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.steps import terms
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.network_curvature import Metric
from pymc_nnsteps.steps.terms import block_to_collapse
from tests.statistics import Z_LIMIT
from tests.steps.joint import assert_joint, joint_z_scores

C = {"compile_kwargs": c_by_default()}

RNG = np.random.default_rng(3)
A = RNG.normal(size=(6, 2))


def network():
    """One output, a bias, and scales of weights and noise that others draw."""
    with pm.Model() as model:
        tau, noise = pm.Gamma("tau", 3.0, 2.0), pm.Gamma("noise", 3.0, 1.0)
        w = pm.Normal("w", 0.0, tau=tau, shape=(3, 2))
        v, b = pm.Normal("v", 0.5, tau=tau, shape=3), pm.Normal("b", 0.0, 2.0)
        f = pt.tanh(A @ w.T) @ v + b
        pm.Normal("y", f, tau=noise, observed=pm.Data("targets", np.zeros(6)))
    return model


def several_outputs():
    """Labels that share a precision matrix; a layer that is passed by; a variable mean."""
    with pm.Model() as model:
        level = pm.Normal("level")
        w = pm.Normal("w", 0.0, 1.0, shape=(3, 2))
        v = pm.Normal("v", level, 0.7, shape=(2, 3))
        u = pm.Normal("u", 0.2, 1.3, shape=(2, 2))
        f = pt.tanh(A @ w.T) @ v.T + A @ u.T
        pm.Normal("y", f, 0.6, observed=RNG.normal(size=(6, 2)))
    return model


def noises():
    """A precision matrix for each label; rows of several noises."""
    with pm.Model() as model:
        sigma = pm.Gamma("sigma", 3.0, 2.0, shape=2)
        w = pm.Normal("w", 0.0, 1.0, shape=(3, 2))
        v = pm.Normal("v", 0.0, 0.7, shape=(3, 2))
        f = pt.tanh(A @ w.T) @ v
        pm.Normal("y", f, sigma * np.arange(1, 7)[:, None], observed=RNG.normal(size=(6, 2)))
        pm.LogNormal("x", f[0], 0.5, observed=np.ones(2))
    return model


def effects():
    """A child that is moved, and not observed."""
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 1.0, 2.0), pm.HalfNormal("s")
        theta = pm.Normal("theta", mu, s, shape=4)
        pm.StudentT("y", 4.0, theta, sigma=0.3, observed=np.arange(4.0))
    return model


CASES = {
    network: ("w", "v", "b"),
    several_outputs: ("level", "w", "v", "u"),
    noises: ("sigma", "w", "v"),
    effects: ("mu", "s", "theta"),
}


def collapsed(model, names, collapse=True):
    """What is moved, and the block that is integrated out."""
    rvs = [model[name] for name in names]
    block = block_to_collapse(model, rvs, collapse, shapes_of(model, model.initial_point()))
    return [rv for rv in rvs if block is None or rv not in block.draws], block


def by_hand(model, rvs):
    """Log density with a block integrated out, by the model's own at a few places of it."""
    log_density = model.compile_logp(mode="FAST_COMPILE")
    names = [model.rvs_to_values[rv].name for rv in rvs]

    def at(point, place):
        sizes = [np.size(point[name]) for name in names]
        parts = np.split(place, np.cumsum(sizes)[:-1])
        own = {
            name: part.reshape(point[name].shape) for name, part in zip(names, parts, strict=True)
        }
        return float(log_density({**point, **own}))

    def integral(point):
        n = sum(np.size(point[name]) for name in names)
        units = np.eye(n)
        zero = at(point, np.zeros(n))
        up, down = (np.array([at(point, sign * unit) for unit in units]) for sign in (1, -1))
        both = np.array([[at(point, one + other) for one in units] for other in units])
        h = (up - down) / 2
        precision = zero - both + up[:, None] + up[None] - zero - zero
        precision[np.diag_indices(n)] = 2 * zero - up - down
        return zero + h @ np.linalg.solve(precision, h) / 2 - np.linalg.slogdet(precision)[1] / 2

    return integral


def density_and_by_hand(build):
    """The compiled density and by hand, at three places of what is moved."""
    model = build()
    moved, block = collapsed(model, CASES[build])
    density = FlatDensity(model, moved, C["compile_kwargs"], block)
    integral = by_hand(model, block.draws)
    rng = np.random.default_rng(0)
    shapes = {name: np.shape(value) for name, value in model.initial_point().items()}
    others = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    moving = [{name: rng.normal(size=shapes[name]) for name in density.values} for _ in range(3)]
    points = [others | place for place in moving]
    return density, [density.read(point) for point in points], [integral(p) for p in points]


@pytest.mark.parametrize("build", CASES)
def test_density(build):
    """A prior's mean, an offset or a noise that is left out; a wrong gradient by hand."""
    density, places, expected = density_and_by_hand(build)
    found = [density(located) for located in places]
    np.testing.assert_allclose(np.diff([f[0] for f in found]), np.diff(expected), rtol=1e-9)
    for located, (_, *gradient) in zip(places, found, strict=True):
        for i, slope in enumerate(gradient):
            step = 1e-5 * (np.arange(len(gradient)) == i)
            up, down = (density(located._replace(place=located.place + s)) for s in (step, -step))
            np.testing.assert_allclose(slope, (up[0] - down[0]) / 2e-5, rtol=1e-5, atol=1e-7)


def test_a_determinant_for_one_label_is_seen(monkeypatch):
    """Several labels share a precision matrix, and each has its determinant."""
    original = terms._log_gaussian_integral

    def for_one(p, h):
        return original(p, h) + (h.shape[1] - 1) * pt.log(pt.linalg.det(p[0])) / 2

    monkeypatch.setattr(terms, "_log_gaussian_integral", for_one)
    density, places, expected = density_and_by_hand(several_outputs)
    found = [density(located)[0] for located in places]
    assert np.max(np.abs(np.diff(found) - np.diff(expected))) > 0.1


def within_gibbs(model):
    names = ["w", "v", "b"]
    moved = nns.HMC(names, step_size=0.9, longest=6, metric="network", model=model)
    assert moved._block is not None
    return CompoundStep([moved, nns.Gibbs(["tau", "noise"], model=model)])


@pytest.mark.slow
def test_within_gibbs():
    """The block is drawn exactly after each trajectory in a metric that follows the scales."""
    model = network()
    assert_joint(within_gibbs(model), model, "targets", transitions=4_000)


class NotDrawn:
    """A sweep of the block that leaves it as it is."""

    def __init__(self, sweep):
        self.compiled = sweep.compiled

    def __call__(self, rng, point):
        return rng, {}, [], np.empty(0)


def test_a_block_that_is_not_drawn_afresh_is_seen():
    """That the trajectory has left behind."""
    model = network()
    step = within_gibbs(model)
    step.methods[0]._block = NotDrawn(step.methods[0]._block)
    scores = joint_z_scores(step, model, "targets", transitions=2_000)
    assert max(map(abs, scores.values())) > Z_LIMIT + 1


def test_metric_does_not_know_the_block():
    """Where it is at present: the trajectory does not condition on it."""
    model = network()
    moved, block = collapsed(model, CASES[network])
    metric = Metric(model, moved, "network", C["compile_kwargs"], block.draws)
    point = model.initial_point()
    elsewhere = point | {"v": point["v"] + 1.0, "b": point["b"] - 1.0}
    for here, there in zip(metric(point), metric(elsewhere), strict=True):
        np.testing.assert_array_equal(here, there)


def test_what_is_integrated_out_by_itself():
    """Weights of a network in float64, of moderate width, by one matrix; none of other models."""
    model = network()
    assert collapsed(model, CASES[network], "auto")[1].draws == (model["v"], model["b"])
    assert collapsed(model, CASES[network], False)[1] is None
    assert collapsed(effects(), CASES[effects], "auto")[1] is None
    with pm.Model() as wide:
        w, v = pm.Normal("w", shape=(101, 1)), pm.Normal("v", shape=101)
        pm.Normal("y", pt.tanh(np.ones((3, 1)) @ w.T) @ v, observed=np.ones(3))
    assert collapsed(wide, ("w", "v"), "auto")[1] is None
    assert collapsed(wide, ("w", "v"), True)[1].draws == (v,)
    for noise, is_shared in [("0.05:0.5", True), ("0.05:0.5:0.5", False)]:
        outputs = nns.hierarchical_mlp(A, A, hidden=(2,), priors={"noise": noise})
        block = collapsed(outputs, ("W_ih1", "bh1", "W_h1o", "bo"), "auto")[1]
        assert (block is not None) == is_shared
    built = nns.hierarchical_mlp(A, A[:, 0], hidden=(2,))
    assert "whose scales Gibbs draws; W_h1o, bo integrated out" in str(
        nns.explain(built, details=True)
    )


def test_what_cannot_be_integrated_out():
    model = network()
    for names, message in [
        (["w"], "collapse is True, but none of w can be integrated out and drawn exactly; pass"),
        (["v", "b"], "collapse is True, but all of v, b can be integrated out .* use nns.Gibbs"),
    ]:
        with pytest.raises(ValueError, match=message):
            nns.HMC(names, collapse=True, model=model, **C)
    with pytest.raises(ValueError, match='collapse must be True, False or "auto"; got 1'):
        nns.HMC(["w"], collapse=1, model=model, **C)

"""What is particular to Gibbs: its options, and what it says of unsuitable variables."""

import importlib
from itertools import product

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import Competence, CompoundStep

import pymc_nnsteps as nns
from tests.steps.cases import assert_same, run
from tests.zoo import regression, relu_network

FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


@pytest.fixture(scope="module")
def model():
    return relu_network()


@pytest.mark.parametrize("scan", ["sequential", "parallel"])
def test_sweeps_are_that_many_steps(model, scan):
    once = nns.Gibbs(model=model, scan=scan, **FAST)
    thrice = nns.Gibbs(model=model, scan=scan, sweeps=np.int64(3), **FAST)
    for step, tune in ((once, 6), (thrice, 2)):
        step.setup_chain(np.random.default_rng(0), tune, 5)
    points, stats = run(once, model.initial_point(), 6)
    thinned, thinned_stats = run(thrice, model.initial_point(), 2)
    assert_same(thinned, points[2::3])
    for one, three in zip(thinned_stats, (stats[:3], stats[3:]), strict=True):
        assert one["n_sweeps"] == three[-1]["n_sweeps"]
        for name in ("interweaving_acceptance", "interweaving_rho"):
            assert one[name] == pytest.approx(np.mean([stat[name] for stat in three]))


def test_scans_differ_in_order_only(model):
    sequential, parallel = (
        nns.Gibbs(model=model, scan=scan, interweave=False, collapse=False, **FAST)
        for scan in ("sequential", "parallel")
    )
    names = [[v.name for v in step.vars] for step in (sequential, parallel)]
    assert names[0] == ["W1", "b1", "Z2", "X2", "W2", "b2"]
    assert names[1] == ["X2", "W1", "b1", "W2", "b2", "Z2"]


def test_interwoven_layers_stay_together_in_both_scans(model):
    """Weights drawn given activations that have been integrated out and not drawn since."""
    for scan, interweave in product(("sequential", "parallel"), (True, False)):
        step = nns.Gibbs(model=model, scan=scan, interweave=interweave, **FAST)
        assert {v.name for v in step.vars} == {"W1", "b1", "Z2", "X2", "W2", "b2"}


def test_some_variables_only(model):
    step = nns.Gibbs(["W2", model["Z2"]], model=model, **FAST)
    assert [v.name for v in step.vars] == ["Z2", "W2"]
    start = model.initial_point()
    point, _ = step.step(start)
    assert {name for name in point if np.any(point[name] != start[name])} == {"Z2", "W2"}


@pytest.mark.parametrize("given", ["W1", ("W1",), ["W1", "W1"]])
def test_ways_to_name_a_variable(model, given):
    assert [v.name for v in nns.Gibbs(given, model=model, **FAST).vars] == ["W1"]
    value = model.rvs_to_values[model["W1"]]
    assert nns.Gibbs(value, model=model, **FAST).vars == [value]


def test_all_recognised_variables_are_the_default():
    model = regression()
    assert [v.name for v in nns.Gibbs(model=model, **FAST).vars] == ["slopes", "intercept"]


def test_not_blocked(model):
    step = nns.Gibbs(["W1", "Z2"], blocked=False, model=model, **FAST)
    assert isinstance(step, CompoundStep)
    assert [[v.name for v in each.vars] for each in step.methods] == [["W1"], ["Z2"]]


def test_competence(model):
    """Gibbs takes the network's variables and no others, as ``pm.sample`` asks it."""
    with regression() as other:
        assert all(nns.Gibbs.competence(rv, True) == 0 for rv in other.free_RVs)
        assert all(nns.Gibbs.competence(rv, True) == 0 for rv in model.free_RVs)
    with model:
        assert all(nns.Gibbs.competence(rv, True) == Competence.IDEAL for rv in model.free_RVs)


def test_importing_twice_registers_once():
    importlib.reload(nns)
    assert [step.__name__ for step in STEP_METHODS].count("Gibbs") == 1


# --- bad arguments -------------------------------------------------------------------------


@pytest.mark.parametrize("sweeps", [0, -1, 1.5, True, "2", None])
def test_bad_sweeps(model, sweeps):
    with pytest.raises(ValueError, match="sweeps must be a positive integer; got"):
        nns.Gibbs(model=model, sweeps=sweeps)


@pytest.mark.parametrize("scan", ["foo", None, ["parallel"]])
def test_bad_scan(model, scan):
    with pytest.raises(ValueError, match='scan must be one of "sequential", "parallel"; got'):
        nns.Gibbs(model=model, scan=scan)


def test_bad_options_through_sample(model):
    with pytest.raises(ValueError, match="sweeps must be a positive integer; got 0"):
        pm.sample(model=model, gibbs={"sweeps": 0}, draws=1, tune=0, chains=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sweep'"):
        pm.sample(model=model, gibbs={"sweep": 1}, draws=1, tune=0, chains=1)


@pytest.mark.parametrize("given", ["foo", ["W1", "foo"], 3, [None]])
def test_unknown_variable(model, given):
    with pytest.raises(
        ValueError, match=r"^vars must be free variables of the model \(W1, b1, .*got"
    ):
        nns.Gibbs(given, model=model)


@pytest.mark.parametrize("step", [nns.Gibbs, nns.HMC, nns.MALA, nns.PCN, nns.PCNL, nns.explain])
def test_no_model(step):
    with pytest.raises(TypeError, match=r"^No model is given and none is open; pass model=, or"):
        step()


@pytest.mark.parametrize("step", [nns.Gibbs, nns.HMC, nns.MALA, nns.PCN, nns.PCNL])
def test_no_variables(step, model):
    with pytest.raises(ValueError, match=rf"^vars is empty; name variables .* {step.__name__}"):
        step([], model=model)
    with pytest.raises(ValueError, match=r"^vars must be variables; got a model, which is"):
        step(model)


def unsuitable():
    with pm.Model() as model:
        count = pm.Poisson("count", 3)
        scale = pm.LogNormal("scale", 0, 1, shape=2)
        mu = pm.Normal("mu", count)
        pm.StudentT("y", nu=4, mu=mu, sigma=scale, observed=[1.0, 2.0])
        squared = pm.Normal("squared")
        pm.Normal("y2", squared**2, 1, observed=1.0)
        in_scale = pm.Normal("in_scale")
        pm.Normal("y3", 0, pm.math.exp(in_scale), observed=1.0)
        tied = pm.Normal("tied")
        pm.Potential("potential", -(tied**2))
        bounded = pm.Normal("bounded", transform=pm.distributions.transforms.ordered, shape=2)
        pm.Normal("y4", bounded, 1, observed=[1.0, 1.0])
    return model


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("count", "count: its prior is Poisson, not Normal"),
        ("scale", "scale: its prior is LogNormal; a scale of several entries needs"),
        ("mu", "mu: child y is StudentT, not Normal"),
        ("squared", "squared: the mean of child y2 is not affine in it"),
        ("in_scale", "in_scale: the scale of child y3 depends on it"),
        ("tied", "tied: the potential potential depends on it"),
        ("bounded", "bounded: the transform Ordered constrains it"),
    ],
)
def test_unsuitable_variable(name, reason):
    """The variable, the child in the way, and why."""
    with pytest.raises(nns.laws.NotConjugate, match=f"^{reason}"):
        nns.Gibbs([name], model=unsuitable())


def test_nothing_suitable():
    with pytest.raises(nns.laws.NotConjugate, match=r"No variable of the model has(.|\n)*StudentT"):
        nns.Gibbs(model=unsuitable())


TOO_PRECISE = {
    "": lambda: 3e-8,
    r" at lengths\[1\] = 1e-09": lambda: pm.Uniform("lengths", 0, 9, shape=2, initval=[1, 1e-9])[1],
    r" at precision = 1e\+18": lambda: pm.Gamma("precision", 1, 1, initval=1e18) ** -0.5,
    r" at drawn = \S+e-(19|20)": lambda: pm.InverseGamma("drawn", 1, 1e-18, initval=1) ** 0.5,
}


@pytest.mark.parametrize("scales", TOO_PRECISE)
def test_a_block_that_numbers_do_not_hold_is_named(scales):
    """The first of the sweep's variables named, or none, where another is too precise.

    A scale that is far from one is named with its value, and no other.
    """
    columns = np.column_stack([np.ones(9), np.full(9, 1.1)])
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        pm.Normal("other", mean, pm.HalfNormal("usual"), observed=np.zeros(3))
        noise = TOO_PRECISE[scales]()
        v = pm.MvNormal("v", np.zeros(2), np.eye(2), shape=(9, 2))
        pm.Normal("y", (columns * v[np.arange(9)]).sum(-1), noise, observed=np.zeros(9))
    drawn = [rv for rv in model.free_RVs if rv.name in ("mean", "v", "drawn")]
    with pytest.raises(np.linalg.LinAlgError, match=f"^v cannot be drawn{scales}: a precision"):
        nns.Gibbs(drawn, model=model)

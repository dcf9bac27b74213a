"""Through ``pm.sample``: assignment, processes, mixtures of steps, traces, data."""

import os
import re
import subprocess
import sys

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import Metropolis
from pymc.step_methods.compound import BlockedStep

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from tests.steps.cases import CASES, PRECISIONS, assert_same, run
from tests.zoo import X, hierarchical_network, probit_network, regression, relu_network

WEIGHTS = ["W1", "b1", "W2", "b2"]
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
FEW = QUIET | {"draws": 6, "tune": 4, "chains": 2, "cores": 1, "random_seed": 11}
IN_C = FEW | {"compile_kwargs": c_by_default()}
SLOW = pytest.mark.slow
FORK_WARNS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Hold(BlockedStep):
    """Keep variables where they start."""

    def __init__(self, vars, model=None, blocked=True):
        self.vars = [model.rvs_to_values[model[name]] for name in vars]
        self.rng = np.random.default_rng()

    def step(self, point):
        return point, [{}]


def start_methods(quick):
    """How PyMC starts its processes, all but one of which are slow tests."""
    methods = ["fork", "spawn", "forkserver"]
    marked = [m if m == quick else pytest.param(m, marks=SLOW) for m in methods]
    return pytest.mark.parametrize("start_method", marked)


def assert_same_posterior(idata, other):
    for name, values in other["posterior"].data_vars.items():
        np.testing.assert_array_equal(idata["posterior"][name], values, err_msg=name)


@pytest.fixture(scope="module")
def model():
    return relu_network()


STATS = {"n_sweeps", "interweaving_acceptance", "interweaving_rho"}


@pytest.fixture(scope="module")
def reference(model):
    with model:
        return pm.sample(**FEW)


# --- assignment ----------------------------------------------------------------------------


def test_gibbs_is_chosen_for_a_network(reference):
    assert set(reference["sample_stats"].data_vars) == STATS
    n_sweeps = reference["sample_stats"]["n_sweeps"]
    assert n_sweeps.dtype == np.int64
    np.testing.assert_array_equal(n_sweeps, np.tile(np.arange(5, 11), (2, 1)))


def test_gibbs_is_chosen_outside_of_the_context(model, reference):
    assert_same_posterior(pm.sample(model=model, **FEW), reference)


def test_gibbs_is_chosen_inside_another_context(model, reference):
    with pm.Model():
        pm.Normal("unrelated")
        assert_same_posterior(pm.sample(model=model, **FEW), reference)


@pytest.mark.skipif(not hasattr(pm, "StepSampler"), reason="this PyMC has no StepSampler")
def test_step_sampler(model, reference):
    """The form that PyMC plans for ``step=``: steps that it assigns, and given ones."""
    with model:
        assert_same_posterior(pm.sample(sampler=pm.StepSampler(), **FEW), reference)
        given = pm.sample(sampler=pm.StepSampler(step=nns.Gibbs()), **FEW)
        assert_same_posterior(given, pm.sample(step=nns.Gibbs(), **FEW))


def test_gibbs_is_not_chosen_for_an_ordinary_regression():
    idata = pm.sample(model=regression(), **FEW | {"draws": 2, "tune": 2, "chains": 1})
    assert "tree_depth" in idata["sample_stats"]
    assert "n_sweeps" not in idata["sample_stats"]


def test_options_through_sample(model, reference):
    """``pm.sample(gibbs={...})``: three draws of two sweeps are six of one."""
    twice = pm.sample(model=model, gibbs={"sweeps": 2}, **FEW | {"draws": 3, "tune": 2})
    expected = reference["posterior"].isel(draw=[1, 3, 5])
    for name, values in twice["posterior"].data_vars.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    np.testing.assert_array_equal(twice["sample_stats"]["n_sweeps"][0], [6, 8, 10])


def test_chains_and_seeds(model, reference):
    assert_same_posterior(pm.sample(model=model, **FEW), reference)
    first, second = reference["posterior"]["W1"].values
    assert not np.any(first == second)
    other = pm.sample(model=model, **FEW | {"random_seed": 12})
    assert not np.any(other["posterior"]["W1"].values == reference["posterior"]["W1"].values)


@start_methods("fork")
@FORK_WARNS
def test_processes_draw_the_same_bits(start_method, model, reference):
    idata = pm.sample(model=model, mp_ctx=start_method, **FEW | {"cores": 2})
    assert_same_posterior(idata, reference)
    np.testing.assert_array_equal(
        idata["sample_stats"]["n_sweeps"], reference["sample_stats"]["n_sweeps"]
    )


def test_backend(model, reference):
    """PyMC's name of what is the default: the same bits, by the same compiled code."""
    idata = pm.sample(model=model, backend="c", **FEW)
    assert set(idata["sample_stats"].data_vars) == STATS
    assert_same_posterior(idata, reference)


def test_mode_of_a_step_that_the_user_built():
    """PyTensor's own C, which starts the compiler for each operation: of few."""
    draws = []
    with regression() as model:
        for options in (None, {"mode": "CVM"}):
            step = nns.Gibbs(["slopes", "intercept"], compile_kwargs=options)
            step.setup_chain(np.random.default_rng(1), 0, 5)
            draws.append(run(step, model.initial_point(), 5)[0])
    for by_default, point in zip(*draws, strict=True):
        for name, value in by_default.items():
            np.testing.assert_allclose(point[name], value, rtol=1e-8, atol=1e-8)


# --- other steps beside it -----------------------------------------------------------------


@SLOW
def test_beside_nuts_and_metropolis():
    """Colliding statistics, or a step that writes over another one's variables."""
    with relu_network() as model:
        scale = pm.HalfNormal("scale", 1.0)
        count = pm.Poisson("count", 3.0)
        pm.Normal("extra", 0, scale + count, observed=[2.0, -1.0])
        idata = pm.sample(400, tune=400, **QUIET, chains=2, cores=1, random_seed=3)
    assert {"n_sweeps", "tree_depth", "accepted"} <= set(idata["sample_stats"].data_vars)
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {v.name for v in model.free_RVs}
    summary = az.summary(idata, var_names=[*WEIGHTS, "scale", "count"])
    assert np.isfinite(summary[["mean", "sd", "ess_bulk", "r_hat"]].astype(float)).all(axis=None)
    assert float(az.rhat(idata)["scale"]) < 1.2
    assert float(az.ess(idata)["scale"]) > 50
    assert posterior["count"].dtype == np.int64
    residual = posterior["X2"] - np.maximum(posterior["Z2"], 0)
    assert 0.08 < float((residual**2).mean()) < 0.12


@pytest.fixture(scope="module")
def compound():
    """Draws of a hierarchical network, with the steps that pm.sample chooses.

    In C: Numba may reorder the sums of NUTS's gradient (PyTensor's ``numba__fastmath``), and code
    that was just compiled differs in the last bits from the same code kept on disk.
    """
    return pm.sample(model=hierarchical_network(), **IN_C)


@pytest.mark.slow
def test_steps_are_chosen_for_a_hierarchical_network(compound, caplog):
    """And told of: which step draws which variable. HMC is not for C."""
    options = IN_C | {"quiet": False, "chains": 1, "draws": 2}
    with caplog.at_level("INFO", logger="pymc"):
        pm.sample(model=hierarchical_network(), **options)
    assert f">Gibbs: [{', '.join(PRECISIONS)}]" in caplog.text
    assert ">NUTS: [W_ih1, bh1, W_h1o, bo]" in caplog.text
    assert {"n_sweeps", "tree_depth"} < set(compound["sample_stats"].data_vars)
    for name in PRECISIONS:
        assert np.unique(compound["posterior"][name]).size == compound["posterior"][name].size


@start_methods("fork")
@FORK_WARNS
def test_processes_draw_the_same_bits_of_a_compound(start_method, compound):
    options = IN_C | {"cores": 2, "mp_ctx": start_method}
    assert_same_posterior(pm.sample(model=hierarchical_network(), **options), compound)


@SLOW
def test_backends_of_a_compound(compound):
    """Both steps in one language; NUTS's rounding grows from draw to draw."""
    idata = pm.sample(
        model=hierarchical_network(), backend="numba", nuts={"target_accept": 0.8}, **FEW
    )
    for name in PRECISIONS:
        first = idata["posterior"][name].isel(draw=0)
        np.testing.assert_allclose(first, compound["posterior"][name].isel(draw=0), rtol=1e-4)


def test_one_progress_bar_for_a_compound(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = {k: v for k, v in FEW.items() if k not in ("progressbar", "quiet")}
    pm.sample(model=hierarchical_network(), progressbar=True, **options)
    shown = capsys.readouterr().out
    assert shown.count("Sweeps") == shown.count("Divergences") == 1


def test_progress_table_of_a_compound_is_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = {k: v for k, v in FEW.items() if k not in ("progressbar", "quiet")}
    pm.sample(model=hierarchical_network(), progressbar=True, **options)
    shown = capsys.readouterr().out
    assert " Accept " in shown
    assert set(re.findall(r"\S*…", shown)) <= {"Remai…", "Remain…", "Remaini…"}


def test_compound_by_hand():
    """Gibbs on the coefficients, NUTS on the scale between them in the point."""
    with regression() as model:
        gibbs = nns.Gibbs([model["slopes"], model["intercept"]])
        idata = pm.sample(
            300,
            tune=300,
            step=[gibbs, pm.NUTS([model["sigma"]])],
            **QUIET,
            cores=1,
            chains=2,
            random_seed=5,
        )
    posterior = idata["posterior"]
    assert {"n_sweeps", "tree_depth"} <= set(idata["sample_stats"].data_vars)
    # the data are 1 * x_0 - 1 exactly, so that sigma is pulled to zero and the rest is known
    assert (posterior["sigma"] > 0).all()
    np.testing.assert_allclose(posterior["slopes"].mean(["chain", "draw"]), [1, 0], atol=0.1)
    np.testing.assert_allclose(posterior["intercept"].mean(), -1, atol=0.1)


def test_two_gibbs_steps_and_metropolis():
    with probit_network() as model:
        steps = [nns.Gibbs(["Z2", "X2"]), nns.Gibbs(["W1", "W2"]), Metropolis([model["b1"]])]
        idata = pm.sample(step=steps, **FEW)
    stats = idata["sample_stats"]
    assert {"n_sweeps", "accepted"} <= set(stats.data_vars)
    assert stats["n_sweeps"].shape[:2] == (2, 6)
    posterior = idata["posterior"]
    assert all(np.unique(posterior[name]).size > 6 for name in ("Z2", "X2", "W1", "W2", "Z3", "b2"))


# --- traces and starts ---------------------------------------------------------------------


@pytest.mark.parametrize(("width", "columns"), [(80, ("Accept",)), (90, ("Accept", "Sweeps"))])
def test_progress_table_is_whole(model, width, columns, capsys, monkeypatch):
    """Columns for which there is no room cut times; PyMC alone cuts a title on 80 characters."""
    monkeypatch.setenv("COLUMNS", str(width))
    options = {k: v for k, v in FEW.items() if k not in ("progressbar", "quiet")}
    pm.sample(model=model, progressbar=True, **options)
    shown = capsys.readouterr().out
    for title in ("Progress", "Draw", "Speed", "Elapsed", *columns):
        assert f" {title} " in shown
    assert set(re.findall(r"\S*…", shown)) <= {"Remai…", "Remain…", "Remaini…"}


def test_latents_left_out(model, reference):
    idata = pm.sample(model=model, var_names=WEIGHTS, **FEW)
    assert set(idata["posterior"].data_vars) == set(WEIGHTS)
    for name in WEIGHTS:
        np.testing.assert_array_equal(idata["posterior"][name], reference["posterior"][name])


def test_tuning_draws_kept(model, reference):
    idata = pm.sample(model=model, discard_tuned_samples=False, **FEW)
    assert idata["warmup_posterior"].sizes["draw"] == 4
    np.testing.assert_array_equal(idata["warmup_sample_stats"]["n_sweeps"][1], [1, 2, 3, 4])
    assert_same_posterior(idata, reference)


def test_given_initial_values():
    """With the scale held at its start, the draws of the coefficients tell which it was."""
    model = regression()
    steps = [nns.Gibbs(["slopes", "intercept"], model=model), Hold(["sigma"], model=model)]
    starts = [{"sigma": 1e-6}, {"sigma": 1e6}]
    idata = pm.sample(model=model, step=steps, initvals=starts, **FEW)
    np.testing.assert_allclose(idata["posterior"]["sigma"][:, 0], [1e-6, 1e6])
    close, far = np.abs(idata["posterior"]["intercept"].values + 1)
    assert np.all(close < 1e-5)
    assert np.all(far > 1e-2)


def test_prior_start():
    """Held weights show where each chain started."""
    model = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1, start="prior")
    steps = [Hold(WEIGHTS, model=model), nns.Gibbs(["Z2", "X2"], model=model)]
    first, second = pm.sample(model=model, step=steps, **FEW)["posterior"]["W1"].values
    for chain in (first, second):
        np.testing.assert_array_equal(chain, np.broadcast_to(chain[0], chain.shape))
    assert not np.any(first == second)
    assert 0.1 < first.std() < 3


# --- new data ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["gibbs-relu", "gibbs-bow-tie", "pcnl-process", "hmc-scales"])
def test_new_data_between_chains(key):
    """A Gram matrix of the old data; another number of rows, then other data of as many."""
    rng = np.random.default_rng(2)
    model, fresh = CASES[key].build(), CASES[key].build()
    targets = model["targets"].get_value()
    start = model.initial_point()
    step = CASES[key].make(model, initial_point=start)
    step.setup_chain(np.random.default_rng(0), 5, 5)
    run(step, start, 2)
    coords = {"obs": np.arange(7)} if "obs" in model.dim_lengths else None
    for _ in range(2):
        new = {"inputs": rng.normal(size=(7, 2))}
        new["targets"] = rng.permutation(np.resize(targets, (7, *targets.shape[1:])))
        with model:
            pm.set_data(new, coords=coords)
        start = model.initial_point()
        step.setup_chain(np.random.default_rng(1), 5, 5)
        points = run(step, start, 3)[0]
    with fresh:
        pm.set_data(new, coords=coords)
    expected = CASES[key].make(fresh, initial_point=start)
    expected.setup_chain(np.random.default_rng(1), 5, 5)
    assert_same(points, run(expected, start, 3)[0])


def test_new_data_between_calls_of_sample():
    rng = np.random.default_rng(2)
    new = {"inputs": rng.normal(size=(9, 2)), "targets": rng.normal(size=9)}
    with relu_network() as model:
        step = nns.Gibbs()
        pm.sample(step=step, **FEW)
        pm.set_data(new)
        idata = pm.sample(step=step, **FEW)
    with relu_network():
        pm.set_data(new)
        expected = pm.sample(**FEW)
    assert idata["posterior"]["Z2"].shape == (2, 6, 9, 3)
    assert_same_posterior(idata, expected)
    assert model["inputs"].get_value().shape == (9, 2)


# --- without a compiler --------------------------------------------------------------------

WITHOUT_COMPILER = """
import numpy as np, pymc as pm, pytensor, pymc_nnsteps as nns
assert not pytensor.config.cxx
with pm.Model() as model:
    mu = pm.Normal("mu", shape=2)
    pm.Normal("y", mu, 0.5, observed=np.array([[1.0, 2.0], [3.0, 2.0]]))
    step = nns.Gibbs([mu])
    step.setup_chain(np.random.default_rng(0), 0, 1)
    point, _ = step.step(model.initial_point())
print(*point["mu"])
"""


def test_without_a_compiler():
    """Numba in its place, and the same draws."""
    flags = {"PYTENSOR_FLAGS": "cxx="}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_COMPILER],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        pm.Normal("y", mu, 0.5, observed=np.array([[1.0, 2.0], [3.0, 2.0]]))
        step = nns.Gibbs([mu])
    step.setup_chain(np.random.default_rng(0), 0, 1)
    point, _ = step.step(model.initial_point())
    draws = [float(draw) for draw in done.stdout.split()]
    np.testing.assert_allclose(draws, point["mu"], rtol=1e-10)

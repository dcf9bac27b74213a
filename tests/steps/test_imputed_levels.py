"""Missing levels of categories that are drawn row by row: their law, and who draws them."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import CompoundStep
from scipy import special, stats

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.steps.assignment import beside_gibbs
from pymc_nnsteps.steps.imputed_levels import ImputedLevels
from pymc_nnsteps.steps.imputed_rows import ImputedRows
from tests.modes import FAST
from tests.statistics import bonferroni_limit
from tests.steps.joint import LEVEL, _z_scores

RNG = np.random.default_rng(0)
DEPOTS, SHARES = np.array(["east", "north", "south"]), np.array([0.2, 0.3, 0.5])
OPTIONS = {
    nns.intermediate_noise_mlp: {"noise": 0.3},
    nns.bow_tie: {},
    nns.hierarchical_mlp: {"embed": {"depot": 2}},
}


def frame(n=30):
    """A category, a column of booleans and one of numbers with gaps, and one without."""
    X = pd.DataFrame(
        {
            "depot": RNG.choice(DEPOTS, size=n, p=SHARES).astype(object),
            "is_new": (RNG.random(n) < 0.4).astype(object),
            "age": RNG.normal(size=n),
            "km": RNG.normal(size=n),
        }
    )
    X.loc[: n // 5, "depot"], X.loc[2 : n // 4, "is_new"] = None, None
    X.loc[1 : n // 6, "age"] = np.nan
    return X


@pytest.mark.parametrize("build", OPTIONS)
def test_every_network_leaves_levels_to_the_draws_of_rows(build):
    X = frame()
    model = build(X, X["km"], hidden=(3,), missing="impute", **OPTIONS[build])
    beside = {rv.name: step for rv, step, _ in beside_gibbs(model)}
    levels = {"inputs::depot_missing", "inputs::is_new_missing"}
    assert {name for name, step in beside.items() if step == "ImputedLevels"} == levels
    by_hmc = {"W_ih1", "bh1", "W_h1o", "bo", "inputs::age_missing", "depot::E"}
    is_functional = build is nns.hierarchical_mlp
    assert set(beside) == levels | (by_hmc if is_functional else set())
    assert {beside[name] for name in by_hmc & set(beside)} <= {"HMC"}


def test_levels_of_rows_that_depend_on_each_other_are_left_to_other_steps():
    with pm.Model() as model:
        x = nns.blocks.table(frame(), missing="impute")
        pm.Normal("y", x.cumsum(axis=0).sum(axis=1), 1, observed=RNG.normal(size=30))
    with pytest.raises(ValueError, match="depot_missing are not missing levels whose rows are"):
        ImputedLevels("inputs::depot_missing", model=model)


def test_rows_that_have_changed_since():
    X = frame()
    model = nns.hierarchical_mlp(X, X["km"], hidden=(3,), missing="impute")
    pm.set_data({"inputs": np.nan_to_num(model["inputs"].get_value()) + 1}, model=model)
    with pytest.raises(ValueError, match="set_data has changed columns with missing entries"):
        ImputedLevels(model=model)


def test_the_joint_law_of_levels_numbers_layers_and_targets_stays():
    """Rows drawn from the model; would catch wrong shares, rows, layers or a level left out."""
    n = 20000
    w = {"east": 1.0, "north": -0.7, "south": 0.2}
    whole = pd.DataFrame(
        {
            "depot": RNG.choice(DEPOTS, size=n, p=SHARES),
            "is_new": RNG.random(n) < 0.3,
            "b": RNG.normal(size=n),
        }
    )
    weights, sigma, offset = np.array([0.3, 0.8]), 0.6, RNG.normal(size=n)
    whole["a"] = weights[0] + weights[1] * whole["b"] + sigma * RNG.normal(size=n)
    slopes = np.array([*w.values(), 0.9, -0.4, 0.5])
    order = [*(whole["depot"] == depot for depot in DEPOTS), *whole[["is_new", "b", "a"]].T.values]
    Z = np.column_stack(order).astype(float) @ slopes + 0.5 * RNG.normal(size=n)
    gate = RNG.random(n) < 1 / (1 + np.exp(-2 * Z))
    y = np.abs(Z) + offset + 0.4 * RNG.normal(size=n)
    X = whole.astype({"depot": object, "is_new": object})
    gaps = {name: RNG.random(n) < 0.8 for name in ("depot", "is_new", "a")}
    for name, missing in gaps.items():
        X.loc[missing, name] = None
    X["a"] = X["a"].astype(float)
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        layer = pm.Normal("Z", x @ slopes, 0.5)
        pm.Bernoulli("gate", logit_p=2 * layer)
        pm.Normal("y", abs(layer) + pm.Data("offset", offset), 0.4, observed=y)
    codes = {
        "depot": whole["depot"].map({name: k for k, name in enumerate(DEPOTS)}).to_numpy(),
        "is_new": whole["is_new"].to_numpy().astype(int),
        "a": whole["a"].to_numpy(),
    }
    point = model.initial_point()
    point |= {f"inputs::{name}_missing": codes[name][missing] for name, missing in gaps.items()}
    shares = {"depot": SHARES, "is_new": np.array([0.7, 0.3])}
    for name, p in shares.items():
        log = np.log(p[:-1])
        point[f"inputs::{name}_shares_simplex__"] = log - np.log(p).mean()
    point |= {
        "inputs::a_weights": weights,
        "inputs::a_sigma_log__": np.log(sigma),
        "Z": Z,
        "gate": gate.astype("int64"),
    }
    point = {name: np.asarray(value) for name, value in point.items()}
    step = ImputedLevels(model=model, rng=1)
    rows = ImputedRows(model, model.free_RVs, c_by_default(None))
    for _ in range(3):
        point, [stats] = step.step(point)
        assert 0.1 < stats["changed_levels"] < 0.9
        point |= rows(RNG, point)
    now = {name: values.copy() for name, values in codes.items()}
    for name, missing in gaps.items():
        now[name][missing] = point[f"inputs::{name}_missing"]
    functions = {
        "share": lambda v: v,
        "square": np.square,
        "with target": lambda v: v * y,
        "misfit": lambda v: (v + offset - y) ** 2,
        "with gate": lambda v: v**2 * gate,
        "with known input": lambda v: v * whole["b"],
    }
    pairs = [*((codes[name], now[name]) for name in codes), (Z, point["Z"])]
    pairs.append(
        (codes["depot"] * codes["a"] * codes["is_new"], now["depot"] * now["a"] * now["is_new"])
    )
    pairs.append((Z * (codes["depot"] == 1), point["Z"] * (now["depot"] == 1)))
    for number, (before, after) in enumerate(pairs):
        for name, g in functions.items():
            change = np.asarray(g(after) - g(before))
            z = change.mean() / change.std() * np.sqrt(n)
            assert abs(z) < 4, (number, name, z)


def with_network(noisy):
    """A small network of a table with gaps in a category and in numbers; targets to be set."""
    X = frame(9).drop(columns="is_new")
    X.loc[:2, "depot"], X.loc[2:5, "age"] = None, np.nan
    X.loc[3:5, "depot"] = DEPOTS
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        w, v = pm.Normal("w", shape=(5, 2)), pm.Normal("v", shape=2)
        hidden = pt.tanh(x @ w)
        if noisy:
            hidden = pm.Normal("hidden", pt.maximum(pm.Normal("z", x @ w, 0.5), 0), 0.3)
        mean = pm.Deterministic("mean", hidden @ v)
        pm.Normal("y", mean, 0.5, observed=pm.Data("targets", np.zeros(9)))
    return model, X


def whole_sweeps(model, noisy):
    """Levels first: of an error in the last draw before new targets, these would tell nothing."""
    levels = ImputedLevels(model=model)
    if noisy:
        rest = [rv for rv in model.free_RVs if rv.name != "inputs::depot_missing"]
        return CompoundStep([levels, nns.Gibbs(rest, model=model)])
    moved = ["w", "v", "inputs::age_missing"]
    laws = [f"inputs::{name}" for name in ("age_weights", "age_sigma", "depot_shares")]
    by_hmc = nns.HMC(moved, step_size=0.7, longest=10, model=model)
    return CompoundStep([levels, by_hmc, nns.Gibbs(laws, model=model)])


def residuals(model, X, history, rng):
    """Independent standard normals, if the law of the history is the joint one given known inputs.

    Without targets the shares have a Dirichlet law given the known levels, weights a Gaussian one
    given their scale and the known numbers, and the scale a density known up to its integral.
    """
    of = {name: np.asarray(values) for name, values in history.items()}
    counts = 1 + np.array([(X["depot"] == depot).sum() for depot in DEPOTS])
    p = of["inputs::depot_shares"]
    first = stats.beta.cdf(p[:, 0], counts[0], counts[1:].sum())
    second = stats.beta.cdf(p[:, 1] / p[:, 1:].sum(axis=1), counts[1], counts[2])
    levels, below = of["inputs::depot_missing"], np.pad(p.cumsum(axis=1), ((0, 0), (1, 0)))
    low, high = (np.take_along_axis(below, levels + k, axis=1) for k in (0, 1))
    found = {
        "shares": np.stack([first, second], axis=1),
        "levels": low + (high - low) * rng.random(levels.shape),
    }
    gone = X["age"].isna()
    design = np.column_stack([np.ones(9), X["km"]])
    D, a = design[~gone], X.loc[~gone, "age"]
    sigma, w = of["inputs::age_sigma"], of["inputs::age_weights"]
    grid = np.linspace(1e-3, 6, 3000)
    log = [stats.multivariate_normal.logpdf(a, cov=D @ D.T + s**2 * np.eye(len(a))) for s in grid]
    density = np.exp(log - np.max(log) - grid**2 / 2)
    found["sigma"] = np.interp(sigma, grid, np.cumsum(density) / density.sum())
    precision = np.eye(2) + D.T @ D / sigma[:, None, None] ** 2
    about = w - np.linalg.solve(precision, (D.T @ a / sigma[:, None] ** 2)[..., None])[..., 0]
    found = {name: special.ndtri(u) for name, u in found.items()}
    found["weights"] = (np.linalg.cholesky(precision).mT @ about[..., None])[..., 0]
    found["age"] = (of["inputs::age_missing"] - w @ design[gone].T) / sigma[:, None]
    return found | {name: of[name] for name in ("w", "v", "y")}


SWEEPS = 3000


def joint_scores(noisy):
    """z-scores of one chain, whose targets are drawn afresh after each sweep."""
    model, X = with_network(noisy)
    step, rng = whole_sweeps(model, noisy), np.random.default_rng(1)
    step.setup_chain(rng, 0, SWEEPS)
    point, names = model.initial_point(), [rv.name for rv in model.free_RVs]
    natural = model.replace_rvs_by_values([model["mean"], *model.free_RVs])
    at = pytensor.function(model.value_vars, natural, mode=FAST, on_unused_input="ignore")
    history = {name: [] for name in [*names, "y"]}
    for _ in range(SWEEPS):
        point, _ = step.step(point)
        mean, *values = at(*(point[value.name] for value in model.value_vars))
        noise = rng.standard_normal(9)
        model["targets"].set_value(mean + noise / 2)
        for name, value in zip([*names, "y"], [*values, noise], strict=True):
            history[name].append(value)
    kept = {name: values[SWEEPS // 20 :] for name, values in history.items()}
    errors = residuals(model, X, kept, rng)
    return _z_scores({name: e.reshape(len(e), -1) for name, e in errors.items()}, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("noisy", [True, False])
def test_joint_distribution_with_targets_of_a_network(noisy):
    """Geweke's test of numbers, levels, their laws and the weights of a network.

    Would catch levels without their shares or without the network, and a wrong law of entries.
    """
    scores = joint_scores(noisy)
    limit = bonferroni_limit(len(scores), LEVEL)
    assert not {name: z for name, z in scores.items() if not abs(z) < limit}


@pytest.mark.release
@pytest.mark.parametrize("build", [nns.intermediate_noise_mlp, nns.hierarchical_mlp])
def test_the_sweeps_of_a_network_with_missing_levels_leave_its_posterior(build):
    """Stein's identities and moves; would catch shares that do not see the levels drawn."""
    X = frame(14)
    model = build(X, np.abs(X["km"]), hidden=(2,), missing="impute", **OPTIONS[build])
    nns.verify(model, sweeps=1500, random_seed=0)

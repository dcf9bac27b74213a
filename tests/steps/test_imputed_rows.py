"""Missing inputs that move row by row: what moves, what judges, and that their law stays."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.steps import imputed_rows as rows_moved
from pymc_nnsteps.steps.assignment import beside_gibbs
from pymc_nnsteps.steps.imputed_rows import ImputedRows, imputed_rows, moved_by_gradients
from pymc_nnsteps.steps.terms import block_to_collapse
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)
OPTIONS = {nns.intermediate_noise_mlp: {"noise": 0.3}, nns.hierarchical_mlp: {}}


def holed(n=30):
    X = RNG.normal(size=(n, 3))
    X[:5, 0] = X[3:6, 2] = np.nan
    return X


@pytest.mark.parametrize(
    ("build", "options", "layers", "judges"),
    [
        (nns.intermediate_noise_mlp, {"noise": 0.1}, ["Z2", "X2"], ["y"]),
        (nns.bow_tie, {}, ["a1"], ["gamma1", "y"]),
        (nns.hierarchical_mlp, {"sigma": "network"}, [], ["y"]),
    ],
)
def test_layers_move_along_and_the_rest_judges(build, options, layers, judges):
    X = holed()
    model = build(X, X[:, 1], hidden=(3,), missing="impute", **options)
    [move] = imputed_rows(model, model.free_RVs)
    assert [rv.name for rv in move.moved] == ["inputs::2_missing", "inputs::0_missing", *layers]
    assert [rv.name for rv in move.judges] == judges
    assert imputed_rows(model, move.moved[1:]) == []


def test_laws_of_missing_inputs_are_gibbs_s_where_hmc_moves_the_entries():
    """So that HMC integrates the readout out, and not the largest of the regressions."""
    X = holed()
    model = nns.hierarchical_mlp(X, X[:, 1], hidden=(3,), missing="impute")
    by_hmc = [rv for rv, step, _ in beside_gibbs(model) if step == "HMC"]
    entries = ["inputs::2_missing", "inputs::0_missing"]
    assert [rv.name for rv in by_hmc] == [*entries, "W_ih1", "bh1", "W_h1o", "bo"]
    assert len(imputed_rows(model, by_hmc)) == 1
    weights = moved_by_gradients(model, by_hmc)
    assert weights == by_hmc[len(entries) :]
    block = block_to_collapse(model, weights, "auto", shapes_of(model))
    assert [rv.name for rv in block.draws] == ["W_h1o", "bo"]


def test_rows_have_effects_of_groups_beside_the_network():
    """Would catch the number of a variable's entries taken for data of the rows."""
    with pm.Model() as model:
        effects = pm.Normal("effects", shape=4)[pm.Data("group", np.arange(30) % 4)]
        f = nns.blocks.hierarchical(nns.blocks.table(holed(), missing="impute"), hidden=(2,))
        pm.Poisson("y", pm.math.exp(f + effects), observed=np.arange(30))
    [move] = imputed_rows(model, model.free_RVs)
    assert [*move.judges] == [model["y"]]


def test_each_of_two_tables_moves_alone():
    """Those of more rows, of which data pick some, stay with other steps."""
    with pm.Model() as model:
        f = 0.0
        for name, n in (("first", 30), ("second", 30), ("groups", 8)):
            x = nns.blocks.table(
                holed(n), name=name, dims=(f"{name}_row", f"{name}_column"), missing="impute"
            )
            column = x.sum(axis=1)
            f = f + (column[pm.Data("group", np.arange(30) % 8)] if n == 8 else column)
        pm.Normal("y", f, 1, observed=RNG.normal(size=30))
    moves = imputed_rows(model, model.free_RVs)
    names = [[rv.name for rv in move.moved] for move in moves]
    wanted = [[f"{name}::{k}_missing" for k in (2, 0)] for name in ("first", "second")]
    assert names == wanted
    assert [[*move.judges] for move in moves] == [[model["y"]]] * 2


def test_rows_that_depend_on_each_other_stay():
    with pm.Model() as model:
        x = nns.blocks.table(holed(), missing="impute")
        pm.Normal("y", x.cumsum(axis=0).sum(axis=1), 1, observed=RNG.normal(size=30))
    assert imputed_rows(model, model.free_RVs) == []


def test_entries_that_enter_something_else_stay():
    X = holed()
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        pm.Normal("y", x.sum(axis=1), 1, observed=X[:, 1])
        assert len(imputed_rows(model, model.free_RVs)) == 1
        pm.Normal("more", model["inputs::0_missing"].sum(), 1, observed=0.0)
    assert imputed_rows(model, model.free_RVs) == []


def test_layers_of_a_potential_stay():
    X = holed()
    with nns.intermediate_noise_mlp(X, X[:, 1], hidden=(3,), noise=0.1, missing="impute") as model:
        pm.Potential("more", -(model["Z2"] ** 2).sum())
    [move] = imputed_rows(model, model.free_RVs)
    assert (move.layers, [*move.judges]) == ((), [model["Z2"]])
    with model:
        pm.Potential("of_entries", -(model["inputs::0_missing"] ** 2).sum())
    assert imputed_rows(model, model.free_RVs) == []


def test_observed_entries_of_another_law_are_told():
    X = holed()
    with pm.Model() as model:
        inputs = pm.Data("inputs", np.nan_to_num(X[:, :2]))
        mean = inputs[:, [1]] @ pm.Normal("slope", shape=1)
        pm.Normal("observed", mean[np.arange(5, 30)], 2, observed=X[5:, 0])
        missing = pm.Normal("missing", mean[np.arange(5)], 1)
        x = pt.set_subtensor(inputs[np.arange(5), 0], missing)
        pm.Normal("y", pm.Deterministic("f", x.sum(axis=1)), 1, observed=X[:, 1])
    assert imputed_rows(model, model.free_RVs) == []
    with pytest.raises(
        nns.laws.NotConjugate, match="no observed variable has the distribution of missing"
    ):
        nns.predict(made_up(model), X[:, :2], model=model)


def test_data_that_have_changed_since():
    X = holed()
    model = nns.hierarchical_mlp(X, X[:, 1], hidden=(3,), missing="impute")
    pm.set_data({"inputs": np.nan_to_num(X) + 1}, model=model)
    with pytest.raises(ValueError, match="set_data has changed columns with missing entries"):
        ImputedRows(model, model.free_RVs, {})
    pm.set_data({"inputs": np.nan_to_num(X[:4]), "targets": X[:4, 1]}, model=model)
    with pytest.raises(ValueError, match=r"number of rows of inputs, but .* by nns\.predict"):
        model.initial_point()


@pytest.mark.parametrize("sizes", [(), (0.7,), (0.3,)])
def test_the_joint_law_of_inputs_layers_and_targets_stays(sizes, monkeypatch):
    """Rows drawn from the model; would catch a wrong step, ratio, or noise that is not held.

    Trajectories are almost alone. Coarse steps would show what a ratio corrects, fine ones a
    ratio that is wrong itself.
    """
    if sizes:
        monkeypatch.setattr(rows_moved, "STEPS", (1e-3,))
        monkeypatch.setattr(rows_moved, "SIZES", sizes)
    n, weights, sigma = 20000, np.array([0.3, 0.8]), 0.6
    X = pd.DataFrame(RNG.normal(size=(n, 2)), columns=["a", "b"])
    a = weights[0] + weights[1] * X["b"] + sigma * RNG.normal(size=n)
    w, offset = np.array([1.0, -0.4]), RNG.normal(size=n)
    Z = np.column_stack([a, X["b"]]) @ w + 0.5 * RNG.normal(size=n)
    p = 1 / (1 + np.exp(-2 * Z))
    gate, y = RNG.random(n) < p, np.abs(Z) + offset + 0.4 * RNG.normal(size=n)
    missing = RNG.random(n) < 0.9
    X["a"] = a.where(~missing)
    with pm.Model() as model:
        x = nns.blocks.table(X, missing="impute")
        layer = pm.Normal("Z", x @ w, 0.5)
        pm.Bernoulli("gate", logit_p=2 * layer)
        pm.Normal("y", abs(layer) + pm.Data("offset", offset), 0.4, observed=y)
    move = ImputedRows(model, model.free_RVs, c_by_default(None), follow=bool(sizes))
    point = model.initial_point() | {
        "inputs::a_weights": weights,
        "inputs::a_sigma_log__": np.log(sigma),
        "inputs::a_missing": a[missing].to_numpy(),
        "Z": Z,
        "gate": gate.astype("int64"),
    }
    point = {name: np.asarray(value) for name, value in point.items()}
    for _ in range(30 if sizes else 3):
        new = move(RNG, point)
        assert set(new) == {"inputs::a_missing", "Z"}
        point |= new
    now = a.to_numpy(copy=True)
    now[missing] = point["inputs::a_missing"]
    assert (now != a)[missing].mean() > 0.9
    functions = {
        "mean": lambda v: v,
        "square": np.square,
        "with target": lambda v: v * y,
        "misfit": lambda v: (abs(v) + offset - y) ** 2,
        "with gate": lambda v: v**2 * gate,
        "with known input": lambda v: v * X["b"],
    }
    for before, after in ((a, now), (Z, point["Z"])):
        for name, g in functions.items():
            change = (g(after) - g(before))[missing]
            z = change.mean() / change.std() * np.sqrt(len(change))
            assert abs(z) < 4, (name, z)
    np.testing.assert_allclose(
        (point["Z"] - w[0] * now)[missing], (Z - w[0] * a)[missing], atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("build", [nns.intermediate_noise_mlp, nns.hierarchical_mlp])
def test_the_sweeps_of_a_network_with_missing_inputs_leave_its_posterior(build):
    """Stein's identities; would catch a density of the columns' laws left out of their draws."""
    X = RNG.normal(size=(12, 3))
    X[:3, 0] = X[2:4, 1] = np.nan
    model = build(X, np.abs(X[:, 2]), hidden=(2,), missing="impute", **OPTIONS[build])
    nns.verify(model, sweeps=1500, random_seed=0)

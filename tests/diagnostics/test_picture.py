"""The picture of a network says what explain says."""

import re

import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.diagnostics.picture import JOINT, LAYER, MOVE, OTHER, SCALE
from tests.diagnostics.networks import NETWORKS, X, Y


def nodes(graph):
    """Label and fill of each filled node, by name."""
    pattern = r'^\t+(\w+) \[label="([^"]*)" fillcolor="([^"]*)"'
    return {n: (label, fill) for n, label, fill in re.findall(pattern, str(graph.source), re.M)}


def lines(graph):
    pattern = r'^\t(\w+) -> (\w+) \[color="([^"]*)"'
    return {(a, b): color for a, b, color in re.findall(pattern, graph.source, re.M)}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_variable_with_what_it_is_drawn_from(name):
    """A variable that is left out, and a conditional where pm.sample uses another step."""
    model = NETWORKS[name]()
    shown = nodes(nns.plot_network(model))
    assert set(shown) == {rv.name for rv in model.free_RVs}
    explanation = nns.explain(model)
    drawn = {variable: law for variable, law, _ in explanation.rows}
    drawn |= {variable: step for variable, step, _ in explanation.beside}
    assert {n: label.split("\n")[-1] for n, (label, _) in shown.items()} == drawn


def test_layers_scales_and_weights():
    fills = {n: fill for n, (_, fill) in nodes(nns.plot_network(NETWORKS["bow_tie"]())).items()}
    assert {n for n, fill in fills.items() if fill == LAYER} == {"gamma1", "a1"}
    scales = {"tau1", "psi1", "tau2", "psi2", "eta_sq1", "eta_sq2"}
    assert {n for n, fill in fills.items() if fill == SCALE} == scales
    assert {n for n, fill in fills.items() if fill == OTHER} == {"W1", "b1", "W2", "b2"}


def test_what_is_drawn_together():
    """A joint draw for a move, and lines to what another step draws."""
    model = nns.intermediate_noise_mlp(X, Y, hidden=(3,), noise=0.5)
    shown = lines(nns.plot_network(model))
    assert MOVE in {color for pair, color in shown.items() if "Z2" in pair}
    assert shown.keys() & {("W2", "b2"), ("b2", "W2")}
    assert {shown[pair] for pair in shown if set(pair) == {"W2", "b2"}} == {JOINT}
    weights = {"W_ih1", "bh1", "W_h1o", "bo"}
    by_hmc = lines(nns.plot_network(NETWORKS["hierarchical_mlp"]()))
    assert not [pair for pair in by_hmc if weights & set(pair)]


def test_names_of_nested_models():
    """A line to a node that PyMC calls otherwise, which Graphviz would add to the picture."""
    with pm.Model() as model, pm.Model(name="part"):
        x = pm.Normal("x", shape=2)
        z = pm.Normal("z")
        pm.Normal("y", X @ x + z, 1, observed=Y)
    source = nns.plot_network(model).source
    assert '"part::x"' in source or "part&&x" in source
    assert 'part::x" ->' not in source

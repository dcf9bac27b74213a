"""Units moved along rays with their outgoing weights, against the model's own density.

The kernel runs as plain Python. Points of lattices are chosen by the test, which adds up what the
kernel holds for their log densities: that of the end, beside that of the start, is the model's own
with the activations integrated out, with the Jacobian of the move.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import graph_replace

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.moves import outgoing_weights as moves
from pymc_nnsteps.moves.loops import outgoing_weights as kernels
from pymc_nnsteps.moves.outgoing_weights import UnitRays
from tests.laws.graphs import draw_graph, random_nodes, shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.moves.in_python import in_python
from tests.planting import plant

RNG = np.random.default_rng(23)
N, UNITS = 7, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 2))


def network(y=Y[:, 0], **options):
    nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), noise=0.3, **options)


def learnt(y=Y[:, 0]):
    """An inverse gamma variance of the response."""
    noise = {"pre": 0.1, "post": 0.2, "output": "learnt"}
    nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), noise=noise)


def layer(activation=abs):
    W = pm.Normal("W1", [[0.5], [-0.3]], [[0.7, 1.2, 0.4]], shape=(2, UNITS))
    return pm.Normal("X2", activation(pm.Normal("Z2", X @ W, 0.6)), [0.5, 0.9, 0.4])


def half_normal():
    """Beside an effect, with prior means."""
    v, sigma = pm.Normal("v", 0.4, [0.3, 1.2, 0.8], shape=UNITS), pm.HalfNormal("sigma", 0.9)
    mean = layer() @ v + pm.Normal("a", shape=2)[np.arange(N) % 2]
    pm.Normal("y", mean, sigma, observed=Y[:, 0])


def precision():
    v, tau = pm.Normal("v", shape=UNITS), pm.Gamma("tau", 2, 1)
    pm.Normal("y", layer() @ v, tau=tau, observed=Y[:, 0])


def of_weights_too():
    """The response's scale is that of the outgoing weights as well: it stays."""
    sigma = pm.HalfNormal("sigma")
    v = pm.Normal("v", 0, sigma, shape=UNITS)
    pm.Normal("y", layer() @ v, sigma, observed=Y[:, 0])


CASES = {
    "relu": (network, {}, None),
    "leaky": (network, {"activation": "leaky_relu"}, None),
    "precisions": (network, {"weight_precision": [0.6, 1.7]}, None),
    "no bias": (network, {"bias": False}, None),
    "probit": (network, {"y": np.arange(N) % 2, "likelihood": "probit"}, None),
    "of weights too": (of_weights_too, {}, None),
    "learnt": (learnt, {}, "noise_y"),
    "half-Normal": (half_normal, {}, "sigma"),
    "precision": (precision, {}, "tau"),
}


def rays_of(model):
    return [draw for draw in sweep_of(model) if isinstance(draw, UnitRays)]


def with_points(monkeypatch, steps):
    """Let the kernel be Python with points that are chosen; returns what it holds of them."""
    gains = []

    def choose(points, log_density, level):
        start = np.flatnonzero(points == 0)[0]
        end = int(np.clip(start + steps[len(gains)], 0, len(points) - 1))
        while log_density[end] == -np.inf:
            end += 1 if end < start else -1
        gains.append((points[end], log_density[end] - log_density[start]))
        return points[end : end + 1]

    in_python(monkeypatch, kernels)
    monkeypatch.setattr(kernels, "choose_point", choose)
    return gains


def moved(model, rays, point, level):
    """The point after a move with given uniform numbers."""
    rng, next_rng, values = draw_graph(model, rays)
    [node] = random_nodes(rng, next_rng, values)
    values = graph_replace(values, {node.outputs[1]: pt.as_tensor(level)}, strict=False)
    names = list(model.value_vars)
    function = pytensor.function(names, values, mode=ONCE, on_unused_input="ignore")
    given = point | {rays.integrates_out[0].name: np.full((N, UNITS), np.nan)}
    end = dict(point)
    drawn = function(*(given[v.name] for v in names))
    for rv, value in zip(rays.draws, drawn, strict=True):
        is_scale = model.rvs_to_transforms[rv] is not None
        end[model.rvs_to_values[rv].name] = np.log(value) if is_scale else value
    return end


def log_ratio_of(model, rays, start, end):
    if rays.scale is None:
        return 0.0
    stored = model.rvs_to_values[rays.scale.draws[0]].name
    graph = moves.prior_ratio(rays.scale, pt.as_tensor(end[stored] - start[stored]))
    [graph] = substitute([graph], natural_values(model))
    inputs = list(model.value_vars)
    function = pytensor.function(inputs, graph, mode=ONCE, on_unused_input="ignore")
    return function(*(start[v.name] for v in inputs))


def density_error(case, monkeypatch, seed=0):
    """What the kernel gains on the way with the prior's ratio, less what the density does."""
    rng = np.random.default_rng(seed)
    build, options, scale = CASES[case]
    model = built(build, **options)
    [rays] = rays_of(model)
    assert [rv.name for rv in rays.draws if model.rvs_to_transforms[rv]] == [scale] * bool(scale)
    gains = with_points(monkeypatch, rng.integers(-60, 60, size=UNITS))
    level = rng.uniform(0.3, 0.6, size=(UNITS + 1, 3))
    level[-1, 1] = 1e-300
    start = random_point(model, seed)
    end = moved(model, rays, start, level)
    assert not any(
        np.allclose(end[name], start[name]) for name in ("W1", "Z2", rays.outgoing.draws[0].name)
    )
    density = integrated_density(model, "X2", {})
    n_weights = rays.outgoing.rows.row_length(shapes_of(model))
    expected = density(end) - density(start) + (n_weights - 1) * sum(u for u, _ in gains)
    if scale:
        stored = model.rvs_to_values[model[scale]].name
        expected -= 2 * rays.scale.of_response * (end[stored] - start[stored])
    return sum(g for _, g in gains) + log_ratio_of(model, rays, start, end) - expected


@pytest.mark.parametrize("case", CASES)
def test_density_is_the_models(case, monkeypatch):
    """A lost Jacobian, prior or part of the response's variance, samples on the wrong piece."""
    assert abs(density_error(case, monkeypatch)) < 1e-8


def no_jacobian(right, points, squares, n_obs, n_weights, *others):
    right(points, squares, n_obs, 1, *others)


def variance_not_made_up_for(right, *args):
    *others, keeps, sums, sums_above, log_density = args
    right(*others, 0.0 * keeps, sums, sums_above, log_density)


def noise_scaled_as_well(right, row, pre, mean, noise, factor):
    right(row, pre, mean + noise, 0 * noise, factor)


def turned_at_another_point(right, *args):
    *others, spacing, squares = args
    right(*others, 2 * spacing, squares)


PLANTS = {
    "no Jacobian": ("relu", "log_densities_at_points", no_jacobian),
    "variance not made up for": ("learnt", "log_densities_at_points", variance_not_made_up_for),
    "noise scaled as well": ("relu", "scale_unit", noise_scaled_as_well),
    "samples turned at another point": ("leaky", "squares_on_lattice", turned_at_another_point),
    "prior means": (
        *("half-Normal", "sums_of"),
        lambda right, weights, prior, linear: right(weights, prior, 0 * linear),
    ),
}
"""Parts of the kernel, and what stands in their place."""


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    in_python(monkeypatch, kernels)
    plant(monkeypatch, kernels, *planted)
    assert abs(density_error(case, monkeypatch)) > 1e-3


def test_lost_prior_of_the_scale_is_seen(monkeypatch):
    monkeypatch.setattr(moves, "prior_ratio", lambda _, shift: pt.zeros_like(shift))
    assert abs(density_error("half-Normal", monkeypatch)) > 1e-3


def test_units_are_moved_in_both_orders(monkeypatch):
    """The step that the prior's ratio accepts is to be reversible."""
    model = built(network)
    [rays] = rays_of(model)
    level = np.full((UNITS + 1, 3), 0.4)
    level[:UNITS, 0] = 0.2, 0.4, 0.6
    start, orders = random_point(model, 1), []
    for order in (0.1, 0.9):
        level[-1, 0] = order
        with monkeypatch.context() as patch:
            gains = with_points(patch, [9] * UNITS)
            moved(model, rays, start, level)
        orders.append([u for u, _ in gains])
    assert np.allclose(orders[0], orders[1][::-1])
    assert np.all(np.diff(orders[0]) > 0)


def shifted():
    v = pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer(lambda z: pt.maximum(z, 0.5)) @ v, 0.7, observed=Y[:, 0])


def noise_of_each_sample():
    v = pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer() @ v, np.linspace(0.5, 2, N), observed=Y[:, 0])


def several_outputs():
    pm.Normal("y", layer() @ pm.Normal("v", shape=(UNITS, 2)), 0.7, observed=Y)


@pytest.mark.parametrize("function", [shifted, noise_of_each_sample, several_outputs])
def test_others_are_left(function):
    assert not rays_of(built(function))


def test_they_can_be_left_out():
    model = built(network)
    assert not [draw for draw in sweep_of(model, rays=False) if isinstance(draw, UnitRays)]


def test_they_are_explained():
    rows = {row[0]: row[2] for row in nns.explain(built(precision)).rows}
    assert "along rays of units; " in rows["tau"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["learnt"])
def test_sweeps_leave_the_posterior_invariant(case):
    build, options, _ = CASES[case]
    model = built(build, **options)
    with model:
        nns.verify(model, sweeps=1000, step=[nns.Gibbs()], random_seed=3)

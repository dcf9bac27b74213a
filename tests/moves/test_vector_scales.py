"""Scales of outputs and of groups of rows without the activations, against the model's density.

The oracle is the model's log density with the activations integrated out by completing squares, at
points where one scale is shifted and those before it are where they went.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning

import pymc_nnsteps as nns
from pymc_nnsteps.compile import linear_algebra
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import residual_scales
from pymc_nnsteps.moves.loops import residual_scales as kernels
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.moves.residual_scales import VectorScale
from tests.laws.graphs import shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.moves.in_python import in_python
from tests.planting import plant
from tests.steps.joint import assert_joint

RNG = np.random.default_rng(23)
N, UNITS = 7, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 4))
GROUPS = np.array([0, 1, 1, 0, 3, 1, 0])
KERNELS = linear_algebra, kernels
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def layer(x=X):
    z = pm.Normal("Z2", x @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    return pm.Normal("X2", pt.maximum(z, 0) + 0.3, [0.5, 0.9, 0.4])


def outputs():
    """Beside an intercept of each, with a constant of each in the noise."""
    sigma = pm.HalfNormal("sigma", [0.5, 1.0, 1.5], shape=3)
    b, v = pm.Normal("b", shape=3), pm.Normal("v", shape=(UNITS, 3))
    pm.Normal("y", layer() @ v + b, sigma * np.array([1.0, 0.4, 2.0]), observed=Y[:, :3])


def more_outputs_than_units():
    """Precisions, of a hyperprior that they share."""
    tau = pm.Gamma("tau", 3, pm.Gamma("rate", 2, 2), shape=(1, 4))
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, 2)), 0.6)
    a = pm.Normal("X2", abs(z), 0.5)
    pm.Normal("y", a @ pm.Normal("v", shape=(2, 4)), tau=tau, observed=Y)


def groups():
    """One of them without rows, and one with a single row."""
    sigma = pm.HalfNormal("sigma", [0.5, 1.0, 1.5, 1.0], shape=4)
    b, v = pm.Normal("b", shape=4), pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer() @ v + b[GROUPS], 0.7 * sigma[GROUPS], observed=Y[:, 0])


def precisions_of_groups():
    """Times a precision of all, in a column."""
    tau = pm.Gamma("tau", 3, pm.Gamma("rate", 2, 2), shape=4)
    common, v = pm.Gamma("common", 2, 2), pm.Normal("v", shape=(UNITS, 1))
    pm.Normal("y", layer() @ v, tau=(common * tau)[GROUPS][:, None], observed=Y[:, :1])


CASES = {
    "outputs": (outputs, "sigma"),
    "more outputs than units": (more_outputs_than_units, "tau"),
    "groups": (groups, "sigma"),
    "precisions of groups": (precisions_of_groups, "tau"),
}


def scales_of(model):
    """The draw, or None."""
    conditionals = find_conditionals(model, model.free_RVs)
    [block] = [c for c in conditionals if c.draws == (model["X2"],)]
    likelihood = marginal_likelihood(block)
    found = residual_scales.find_vector_scales(likelihood, conditionals, shapes_of(model))
    return next(iter(found), None)


def told(model, scales, point, level):
    """What the kernel is told, with the activations NaN, and each scale's points at SHIFTS."""
    points = pt.as_tensor(np.tile(SHIFTS, (len(level), 1)))
    graphs = [*scales.lattices(points, pt.as_tensor(level)), *scales.seen()]
    names = list(model.value_vars)
    replaced = substitute(graphs, natural_values(model))
    function = pytensor.function(names, replaced, mode=ONCE, on_unused_input="ignore")
    without = {**point, "X2": np.full_like(point["X2"], np.nan)}
    values = function(*(without[v.name] for v in names))
    return kernels.Lattices(*values[:4]), *values[4:]


def move_of(scales):
    by = kernels.move_scales_of_outputs, kernels.move_scales_of_groups
    return as_op(by[scales.groups is not None], 1)


def log_densities(model, scales, monkeypatch):
    """As the kernel has them one scale after another, and as they should be, up to constants."""
    [rv], point = scales.draws, random_point(model, 2)
    stored = model.rvs_to_values[rv].name
    places = np.arange(point[stored].size) * 2 % len(SHIFTS)
    found = []

    def choose(points, log_density, level):
        found.append(log_density - log_density[2])
        return points[int(level[0]) :]

    in_python(monkeypatch, *KERNELS)
    monkeypatch.setattr(kernels, "choose_point", choose)
    shift = move_of(scales).kernel(*told(model, scales, point, places.astype("float64")))
    assert np.array_equal(shift, SHIFTS[places])
    density = integrated_density(model, "X2", {})
    expected, at = [], point[stored].copy()
    for entry, place in enumerate(places):
        levels = []
        for change in SHIFTS:
            there = at.copy()
            there.flat[entry] += change
            levels.append(density({**point, stored: there}))
        expected.append(np.array(levels) - levels[2])
        at.flat[entry] += SHIFTS[place]
    return np.array(found), np.array(expected)


def differ(case, monkeypatch):
    model = built(CASES[case][0])
    found, expected = log_densities(model, scales_of(model), monkeypatch)
    return not np.allclose(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case, monkeypatch):
    """An output given the old scales of others, groups counted wrongly, a lost Jacobian."""
    assert scales_of(built(CASES[case][0])).draws[0].name == CASES[case][1]
    assert not differ(case, monkeypatch)


def one_power_for_all(right, lattices, *args):
    return right(lattices._replace(power=np.array([2.0])), *args)


def residuals_not_scaled(right, lattices, place, count, squares, own, spread):
    return right(lattices, place, count, squares / (own + spread), own, spread)


def no_jacobian(right, scales, points, level):
    told = right(scales, points, level)
    return told._replace(prior=told.prior - points)


def precision_for_variance(right, scales):
    count, squares, own, spread = right(scales)
    return count, squares, 1 / own, spread


def variance_of_another_group(right, scales):
    count, squares, own, spread = right(scales)
    return count, squares, own[::-1], spread


PLANTS = {
    "old scales of others": ("outputs", kernels, "add_to_diagonal", lambda right, *args: None),
    "one power for all": (
        *("more outputs than units", kernels, "step_of_one"),
        one_power_for_all,
    ),
    "residuals not scaled": ("outputs", kernels, "step_of_one", residuals_not_scaled),
    "rows not counted": (
        *("groups", kernels, "step_of_one"),
        lambda right, lattices, place, count, *args: right(lattices, place, min(count, 1.0), *args),
    ),
    "no Jacobian": ("outputs", VectorScale, "lattices", no_jacobian),
    "precision for variance": ("outputs", VectorScale, "seen", precision_for_variance),
    "variance of another group": ("groups", VectorScale, "seen", variance_of_another_group),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, *planted)
    assert differ(case, monkeypatch)


def test_numba_is_told_the_same():
    """Sums over the rows of groups, which PyTensor fuses with what stands beside them."""
    model = built(CASES["groups"][0])
    graphs = substitute(scales_of(model).seen(), natural_values(model))
    names, point = list(model.value_vars), random_point(model, 2)
    told = []
    for mode in ONCE, "NUMBA":
        function = pytensor.function(names, graphs, mode=mode, on_unused_input="ignore")
        told.append(function(*(point[v.name] for v in names)))
    for found, expected in zip(*told, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def at_a_point(case, level):
    """What the kernel is told, and the kernel as an Op."""
    model = built(CASES[case][0])
    scales = scales_of(model)
    return told(model, scales, random_point(model, 2), np.array(level)), move_of(scales)


LEVELS = {"outputs": [0.3, 0.9, 0.6], "groups": [0.3, 0.9, 0.6, 0.1]}


@pytest.mark.parametrize("case", LEVELS)
def test_compiled_kernels_move_as_in_python(case, monkeypatch):
    (lattices, *seen), move = at_a_point(case, LEVELS[case])
    inputs = [pt.as_tensor(array).type() for array in (*lattices, *seen)]
    compiled = pytensor.function(inputs, move(kernels.Lattices(*inputs[:4]), *inputs[4:]))
    found = compiled(*lattices, *seen)
    in_python(monkeypatch, *KERNELS)
    expected = move.kernel(lattices, *seen)
    assert np.array_equal(found, expected)
    assert len(np.unique(expected)) > 1


def test_scales_stay_where_all_residuals_are_zero():
    """As those of targets that are zero, at weights that are; not that of a group without rows."""
    (lattices, count, squares, *rest), move = at_a_point("groups", [0.0] * 4)
    assert count[2] == 0
    shift = move.kernel(lattices, count, 0 * squares, *rest)
    assert np.array_equal(shift, [0, 0, SHIFTS[0], 0])


def missing_targets():
    y = np.where(np.arange(N)[:, None] == [1, 3], np.nan, Y[:, :2])
    sigma = pm.HalfNormal("sigma", shape=2)
    with pytest.warns(ImputationWarning):
        pm.Normal("y", layer() @ pm.Normal("v", shape=(UNITS, 2)), sigma, observed=y)


def rows_of_unlike_noise():
    sigma, v = pm.HalfNormal("sigma", shape=4), pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer() @ v, sigma[GROUPS] * np.linspace(1, 2, N), observed=Y[:, 0])


def outputs_of_unlike_rows():
    sigma, v = pm.HalfNormal("sigma", shape=2), pm.Normal("v", shape=(UNITS, 2))
    pm.Normal("y", layer() @ v, sigma * np.linspace(1, 2, N)[:, None], observed=Y[:, :2])


def factors_of_rows():
    sigma, v = pm.HalfNormal("sigma", shape=4), pm.Normal("v", shape=UNITS)
    pm.Normal("y", np.linspace(1, 2, N) * (layer() @ v), sigma[GROUPS], observed=Y[:, 0])


def groups_of_outputs():
    sigma, v = pm.HalfNormal("sigma", shape=2), pm.Normal("v", shape=(UNITS, 3))
    pm.Normal("y", layer() @ v, sigma[[0, 1, 0]], observed=Y[:, :3])


def groups_of_rows_of_outputs():
    sigma, v = pm.HalfNormal("sigma", shape=4), pm.Normal("v", shape=(UNITS, 2))
    pm.Normal("y", layer() @ v, sigma[GROUPS][:, None], observed=Y[:, :2])


def scale_of_each_row():
    sigma, v = pm.HalfNormal("sigma", shape=N), pm.Normal("v", shape=UNITS)
    pm.Normal("y", layer() @ v, sigma, observed=Y[:, 0])


def rows_in_another_order():
    sigma, v = pm.HalfNormal("sigma", shape=2), pm.Normal("v", shape=(UNITS, 2))
    pm.Normal("y", (layer() @ v)[[0, 3, 3, 4]], sigma, observed=Y[:4, :2])


def two_responses():
    sigma, a = pm.HalfNormal("sigma", shape=2), layer()
    pm.Normal("y", a @ pm.Normal("v", shape=(UNITS, 2)), sigma, observed=Y[:, :2])
    pm.Normal("u", a @ pm.Normal("w", shape=UNITS), 0.7, observed=Y[:, 2])


def further_children():
    sigma = pm.HalfNormal("sigma", shape=2)
    pm.Normal("y", layer() @ pm.Normal("v", shape=(UNITS, 2)), sigma, observed=Y[:, :2])
    pm.Normal("u", 0.3, sigma, observed=Y[:, 2:])


def scale_with_two_axes():
    sigma = pm.HalfNormal("sigma", shape=(N, 2))
    pm.Normal("y", layer() @ pm.Normal("v", shape=(UNITS, 2)), sigma, observed=Y[:, :2])


LEFT = [missing_targets, rows_of_unlike_noise, outputs_of_unlike_rows,
        factors_of_rows, groups_of_outputs, groups_of_rows_of_outputs, scale_of_each_row,
        rows_in_another_order, two_responses, further_children, scale_with_two_axes]  # fmt: skip


@pytest.mark.parametrize("function", LEFT)
def test_other_scales_are_left(function):
    assert scales_of(built(function)) is None


def test_it_is_explained_and_stands_before_the_fresh_activations():
    model = built(outputs)
    rows = {row[0]: row[2] for row in nns.explain(model).rows}
    assert rows["sigma"] == "X2 integrated out, given which it moves by small steps; children: y"
    drawn = [tuple(rv.name for rv in draw.draws) for draw in sweep_of(model)]
    assert drawn.count(("sigma",)) == 1
    assert drawn.index(("sigma",)) < drawn.index(("X2",))
    plain = sweep_of(model, collapse=False)
    assert "steps on lattices" not in [draw.name for draw in plain]


def joint_outputs():
    x = np.random.default_rng(3).normal(size=(6, 2))
    sigma, v = pm.HalfNormal("sigma", 0.7, shape=3), pm.Normal("v", shape=(UNITS, 3))
    pm.Normal("y", layer(x) @ v, sigma, observed=pm.Data("targets", np.zeros((6, 3))))


def joint_groups():
    x = np.random.default_rng(3).normal(size=(6, 2))
    tau, v = pm.Gamma("tau", 3, 2, shape=3), pm.Normal("v", shape=UNITS)
    of_row = tau[[0, 1, 1, 0, 0, 1]]
    pm.Normal("y", layer(x) @ v, tau=of_row, observed=pm.Data("targets", np.zeros(6)))


@pytest.mark.slow
@pytest.mark.parametrize("function", [joint_outputs, joint_groups])
def test_joint_distribution(function):
    """Points that are not those of the lattice, one place for all, activations out of date."""
    model = built(function)
    assert_joint(nns.Gibbs(model=model), model, "targets", transitions=20000)


@pytest.mark.slow
@pytest.mark.parametrize("function", [joint_outputs, joint_groups])
def test_joint_distribution_test_sees_a_planted_error(function, monkeypatch):
    """The noise of the activations taken for smaller than it is."""
    right = residual_scales.find_vector_scales

    def smaller(likelihood, *others):
        layer = replace(likelihood.layer, precision=3 * likelihood.layer.precision)
        return right(replace(likelihood, layer=layer), *others)

    monkeypatch.setattr("pymc_nnsteps.moves.responses.find_vector_scales", smaller)
    model = built(function)
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(nns.Gibbs(model=model), model, "targets", transitions=4000)

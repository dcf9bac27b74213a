"""Moves of weights with their pre-activations, against the model's own density.

:mod:`tests.moves.interwoven_layers` has the oracle.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy import linalg, stats

import pymc_nnsteps as nns
from pymc_nnsteps.activations import PiecewiseLinear
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves.interweaving import LONGEST_ROW, Interweaving
from pymc_nnsteps.moves.loops import interweaving as kernels
from pymc_nnsteps.steps.sweep import chain_draws
from tests.cases import quick
from tests.laws import graphs
from tests.laws.graphs import shapes_of
from tests.moves.densities import built
from tests.moves.in_python import of_arrays
from tests.moves.interwoven_layers import (
    PASSES,
    Layer,
    assert_same_point,
    check_acceptance,
    check_turns,
    compiled,
    matched,
    noises_of,
    rhos_of,
    stated,
)

pytestmark = pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")

RNG = np.random.default_rng(11)
N, UNITS = 4, 3
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=(N, 3))
SPREAD = np.exp(RNG.normal(size=(N, 3)) / 2)
BINARY = [1, 0, 0, 1]

JUMPS = PiecewiseLinear(knots=(-0.4, 0.3, 1.0), slopes=(-0.7, 0, 1.5, -1), values=(0, 0.4, -1, 2))


# --- models ---------------------------------------------------------------------------------------


def network(hidden=(UNITS,), y=Y[:, 0], noise=0.3, X=X, **options):
    return nns.intermediate_noise_mlp(X, y, hidden=hidden, noise=noise, **options)


NETWORKS = {
    "relu": (network, {}),
    "leaky_relu": (network, {"activation": "leaky_relu", "y": Y}),
    "abs": (network, {"activation": "abs"}),
    "hard_tanh": (network, {"activation": "hard_tanh", "y": Y}),
    "identity": (network, {"activation": "identity"}),
    "jumps": (network, {"activation": JUMPS, "y": Y}),
    "one_unit": (network, {"hidden": (1,)}),
    "no_bias": (network, {"bias": False, "weight_precision": [0.6, 1.7]}),
    "one_feature": (network, {"bias": False, "X": X[:, :1]}),
    "little_noise": (network, {"noise": 1e-4, "y": Y}),
    "noises": (
        network,
        {
            "hidden": (2, 3),
            "noise": {"pre": [0.3, 0.8], "post": [0.5, 0.2], "output": 0.4},
            "bias_precision": [0.5, 2.0, 1.0],
        },
    ),
    "probit": (network, {"y": BINARY, "likelihood": "probit"}),
    "multinomial": (network, {"y": [0, 2, 1, 2], "likelihood": "multinomial_probit"}),
}


def relu(z):
    return pt.maximum(z, 0)


def weights_by_column():
    """A precision and a mean of each entry, noise of each unit, an offset of the inputs."""
    W = pm.Normal("W1", [[0.3, -0.2, 0.1], [1.0, 0.5, 0.4]], [[1.0, 0.6, 0.9], [0.8, 2.0, 0.3]])
    z = pm.Normal("Z2", X @ W + Y, [0.4, 0.7, 1.1])
    a = pm.Normal("X2", abs(z) - 0.5, [0.5, 0.3, 0.8])
    pm.Normal("y", a @ pm.Normal("W2", shape=(UNITS, 2)) + Y[:, :2], 0.8, observed=Y[::-1, :2])


def units_before_samples():
    """An offset of each entry, one noise of the activations, inputs weighted by the sample."""
    W = pm.Normal("W1", 0.4, 1.3, shape=(UNITS, 2))
    b = pm.Normal("b1", [[-0.4], [0.3], [0.1]], 0.7, shape=(UNITS, 1))
    z = pm.Normal("Z2", SPREAD[:, 0] * (W @ X.T + b), 0.6)
    a = pm.Normal("X2", relu(z - 0.1) + Y.T, 0.5)
    pm.Normal("y", pm.Normal("W2", shape=(2, UNITS)) @ a, 0.7, observed=Y[:, :2].T)


def noise_of_each_sample():
    """Outputs give the activations weights of each sample."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), SPREAD)
    a = pm.Normal("X2", pt.clip(z, -0.6, 0.5) + np.array([0.3, 0.0, -0.2]), 0.6)
    pm.Normal("y", a @ pm.Normal("W2", shape=(UNITS, 3)), SPREAD, observed=Y)


def logistic():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)) + pm.Normal("b1", shape=UNITS), 0.6)
    a = pm.Normal("X2", abs(z), 0.5)
    p = pm.math.sigmoid(a @ pm.Normal("w2", shape=UNITS) - 0.2)
    pm.Bernoulli("y", p=p, observed=BINARY)


def several_children():
    """Two that see activations through weights, one that sees them one by one."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), [0.5, 0.9, 0.4])
    w = pm.Normal("w2", shape=UNITS)
    pm.Normal("u", 0.1 + 2 * a, SPREAD, observed=Y)
    pm.Bernoulli("v", logit_p=a @ w - 0.2, observed=BINARY)
    pm.Normal("y", a @ w, 0.7, observed=Y[:, 0])


def some_activations_not_seen():
    """Closed gates above: rows of no weight."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    gates = pm.Bernoulli("gates", p=0.5, shape=(N, 2))
    pm.Normal("y", gates * (a @ pm.Normal("W2", shape=(UNITS, 2))), 0.7, observed=Y[:, :2])


def hierarchical():
    """Precisions of weights and all noise are free."""
    tau = pm.Gamma("tau", 3, 2, shape=(UNITS, 1))
    pre, post, out = (pm.InverseGamma(name, 3, 1) for name in ("pre", "post", "out"))
    W = pm.Normal("W1", pm.Normal("mu", shape=2), tau=tau, shape=(UNITS, 2))
    z = pm.Normal("Z2", X @ W.T, pre**0.5)
    a = pm.Normal("X2", relu(z), post**0.5)
    pm.Normal("y", a @ pm.Normal("w2", shape=UNITS), out**0.5, observed=Y[:, 0])


def one_unit_without_axis():
    """Weights that carry no axis of the pre-activations' one unit, behind minus signs."""
    z = pm.Normal("Z2", 0.2 - X @ pm.Normal("W1", 0.3, [0.7, 1.2])[:, None], 0.6, shape=(N, 1))
    a = pm.Normal("X2", 0.4 - abs(z), 0.5)
    pm.Normal("y", a[:, 0] * pm.Normal("w2"), 0.7, observed=Y[:, 0])


def one_weight_of_each_unit():
    """No axis of inputs, and a prior of each unit."""
    w = pm.Normal("w1", [0.3, -0.2, 0.1], [0.7, 1.2, 0.9])
    z = pm.Normal("Z2", X[:, :1] * w + Y, 0.6)
    a = pm.Normal("X2", abs(z), 0.5)
    pm.Normal("y", a @ pm.Normal("W2", shape=(UNITS, 2)), 0.7, observed=Y[:, :2])


def skip_connection():
    """Activations of the second layer are around those of the first, which they see one by one."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    z = pm.Normal("Z3", a @ pm.Normal("W2", shape=(UNITS, UNITS)), 0.8)
    a = pm.Normal("X3", abs(z) + a, [0.5, 0.9, 0.4])
    pm.Normal("y", a @ pm.Normal("W3", shape=(UNITS, 2)), 0.7, observed=Y[:, :2])


def activations_seen_in_part():
    """Some samples twice, others by nobody, as where targets are missing."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    w = pm.Normal("w2", shape=UNITS)
    pm.Normal("y", a[np.array([0, 2, 2])] @ w, [0.7, 0.9, 0.4], observed=Y[:3, 0])
    pm.Normal("u", a[:1] @ w, 0.5, observed=Y[1:2, 1])


def targets_missing_in_different_rows():
    """Imputed ones; of another table some entries, one of them twice, its columns in rows."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    gaps = np.array([[0, 1, 0], [0, 0, 0], [1, 0, 1], [1, 1, 1]], bool)
    mean = a @ pm.Normal("W2", shape=(UNITS, 3)) + 0.2
    pm.Normal("y", mean, [0.7, 0.9, 0.4], observed=np.where(gaps, np.nan, Y))
    other = -(pm.Normal("W3", shape=(2, UNITS)) @ a.T)
    pm.Normal("u", other[[1, 0, 1, 1], [3, 0, 3, 1]], 0.8, observed=Y[:, 1])


HAND_WRITTEN = (
    weights_by_column,
    units_before_samples,
    noise_of_each_sample,
    logistic,
    several_children,
    some_activations_not_seen,
    activations_seen_in_part,
    targets_missing_in_different_rows,
    hierarchical,
    one_unit_without_axis,
    one_weight_of_each_unit,
    skip_connection,
)

CASES = [*NETWORKS, *(build.__name__ for build in HAND_WRITTEN)]
TWO_LAYERS = ("noises", "skip_connection")
LAYERS = {
    f"{case}-layer{layer - 1}": (case, layer)
    for case in CASES
    for layer in ((2, 3) if case in TWO_LAYERS else (2,))
}
QUICK = {
    "relu-layer1", "abs-layer1", "jumps-layer1", "one_unit-layer1", "one_feature-layer1",
    "noises-layer1", "probit-layer1", "weights_by_column-layer1", "noise_of_each_sample-layer1",
    "several_children-layer1", "activations_seen_in_part-layer1", "hierarchical-layer1",
    "one_weight_of_each_unit-layer1", "skip_connection-layer2",
}  # fmt: skip


def build_case(case):
    by_name = {build.__name__: (build, {}) for build in HAND_WRITTEN}
    build, options = (NETWORKS | by_name)[case]
    return built(build, **options)


@cache
def layer_of(case, layer):
    return Layer(build_case(case), f"Z{layer}")


@cache
def draw_of(case, layer):
    found = layer_of(case, layer)
    return compiled(found.model, found.move, found.omegas)


@pytest.fixture(params=quick(LAYERS, QUICK))
def case(request):
    return layer_of(*LAYERS[request.param]), draw_of(*LAYERS[request.param])


# --- what is drawn --------------------------------------------------------------------------------

ARGUMENTS = (
    "inputs", "rows", "prior", "prior_linear", "pre", "knots", "slopes", "intercepts",
    "design", "weight", "response", "variance",
)  # fmt: skip


def arguments_of(layer):
    """What the kernel is given."""
    results, _ = stated(layer.model, layer.move, layer.omegas)
    move = as_op(kernels.move_rows, 2, 2, 1)
    [node] = {v.owner for v in ancestors(results) if v.owner and v.owner.op == move}
    names = list(layer.model.value_vars)
    arguments = node.inputs[: len(ARGUMENTS)]
    function = pytensor.function(names, arguments, mode=ONCE, on_unused_input="ignore")
    return dict(zip(ARGUMENTS, function(*(layer.point[v.name] for v in names)), strict=True))


def covariance_of(p, n):
    """Covariance of what is seen from above of a sample."""
    weight = p["weight"][n if len(p["weight"]) > 1 else 0]
    return np.diag(1 / weight) + p["design"] @ np.diag(p["variance"]) @ p["design"].T


def activation_of(p, z):
    """Slope and intercept at pre-activations."""
    piece = np.searchsorted(p["knots"], z, side="right")
    return p["slopes"][piece], p["intercepts"][piece]


def coefficients(p, pre, unit):
    """``c_n`` and ``g_n`` of a row."""
    slope, intercept = activation_of(p, pre)
    others = np.arange(len(pre)) != unit
    column, among = p["design"][:, unit], p["design"][:, others]
    seen = p["response"] - (slope * pre + intercept)[others].T @ among.T
    gains = [np.linalg.solve(covariance_of(p, n), column) for n in range(len(seen))]
    return np.array([gain @ column for gain in gains]), (np.array(gains) * seen).sum(1)


def log_target(p, rows, pre, unit):
    """The density of a row as the derivation states it."""
    c, g = coefficients(p, pre, unit)
    slope, intercept = activation_of(p, pre[unit])
    level = slope * pre[unit] + intercept
    by_prior = p["prior_linear"][unit] @ rows[unit] - rows[unit] ** 2 @ p["prior"][unit] / 2
    return by_prior + (g * level - c * level**2 / 2).sum()


def test_target(case):
    """A lost prior mean or offset, a variance for a precision, units or samples in another order.

    Of the arrays that the kernel is given, by the formula of the derivation.
    """
    layer, _ = case
    p, rng = arguments_of(layer), np.random.default_rng(5)
    reference = layer.marginal(layer.point)
    for unit in range(layer.units):
        here = log_target(p, p["rows"], p["pre"], unit)
        for scale in (0.1, 1.0, 5.0):
            step = np.zeros(layer.jacobian.shape[1])
            step[layer.rows[unit]] = shift = scale * rng.normal(size=layer.d)
            rows, pre = p["rows"].copy(), p["pre"].copy()
            rows[unit] += shift
            pre[unit] += p["inputs"] @ shift
            ours = log_target(p, rows, pre, unit) - here
            theirs = layer.marginal(layer.moved(layer.point, step)) - reference
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_row_is_accepted_at_its_probability(case):
    """Another proposal, probability or way back; a row or pre-activations that stay or go alone.

    All other proposals meet a level of one, which none passes.
    """
    check_acceptance(*case)


@pytest.mark.parametrize("case", sorted(QUICK), indirect=True)
@pytest.mark.parametrize("accept", ["all", "some"])
def test_rows_are_moved_in_turn(case, accept):
    """Precisions, residuals or pieces of the row before, or of the pass before; a mean of others.

    The reported acceptance is the mean over the passes, whatever was accepted.
    """
    check_turns(*case, accept)


@pytest.mark.parametrize("name", ["relu", "probit", "weights_by_column", "logistic"])
def test_float32(name):
    """The same move as that of a model in double precision, but for the rounding of its state."""
    layer, draw = layer_of(name, 2), draw_of(name, 2)
    with pytensor.config.change_flags(floatX="float32", warn_float64="ignore"):
        model = build_case(name)
        move = matched(model)
        assert all(rv.dtype == "float32" for rv in move.draws)
        held = [omega for before in move.likelihood.before for omega in before.fixed]
        draw32 = compiled(model, move, dict(zip(held, layer.omegas.values(), strict=True)))
    point32 = {key: value.astype("float32") for key, value in layer.point.items()}
    for accept in ("all", "some"):
        normal, uniform = noises_of(layer, 3)
        uniform = 0 * uniform if accept == "all" else uniform
        drawn, acceptance = draw32(point32, rhos_of(layer), normal, uniform)
        expected, probabilities = draw(layer.point, rhos_of(layer), normal, uniform)
        assert acceptance.dtype == "float64"
        assert_same_point(drawn, expected, 1e-5)
        np.testing.assert_allclose(acceptance, probabilities, rtol=1e-4)


def test_other_data():
    """What was computed beforehand from old inputs, or for their number."""
    rng = np.random.default_rng(4)
    many, targets = rng.normal(size=(N + 2, 2)), rng.normal(size=N + 2)
    old, new = network(), network(X=many, y=targets)
    found = Layer(new)
    draws = [compiled(model, matched(model), {}) for model in (old, new)]
    with old:
        pm.set_data({"inputs": many, "targets": targets}, coords={"obs": range(N + 2)})
    noises = rhos_of(found), *noises_of(found, 3)
    (ours, accepted), (theirs, expected) = (draw(found.point, *noises) for draw in draws)
    assert_same_point(ours, theirs)
    np.testing.assert_allclose(accepted, expected, rtol=1e-9)


# --- the kernel at other sizes --------------------------------------------------------------------


def problem(seed, n_obs, units, d, m, shared, pieces=JUMPS):
    rng = np.random.default_rng(seed)
    p = {
        "inputs": rng.normal(size=(n_obs, d)),
        "rows": rng.normal(size=(units, d)) / d**0.5,
        "prior": 0.2 + rng.gamma(1.0, size=(units, d)),
        "prior_linear": rng.normal(size=(units, d)),
        "knots": np.array(pieces.knots),
        "slopes": np.array(pieces.slopes),
        "intercepts": np.array(pieces.intercepts),
        "design": rng.normal(size=(m, units)),
        "weight": 0.2 + rng.gamma(1.0, size=(1 if shared else n_obs, m)),
        "variance": 0.2 + rng.gamma(1.0, size=units),
    }
    p["pre"] = p["rows"] @ p["inputs"].T + 0.3 * rng.normal(size=(units, n_obs))
    slope, intercept = activation_of(p, p["pre"])
    p["response"] = (slope * p["pre"] + intercept).T @ p["design"].T
    p["response"] += rng.normal(size=(n_obs, m))
    return p


def row_law(p, rows, pre, unit):
    """Mean and precision of a row on the pieces of its pre-activations."""
    c, g = coefficients(p, pre, unit)
    slope, intercept = activation_of(p, pre[unit])
    noise = pre[unit] - p["inputs"] @ rows[unit]
    precision = np.diag(p["prior"][unit]) + (p["inputs"].T * (c * slope**2)) @ p["inputs"]
    linear = p["prior_linear"][unit] + (slope * (g - c * (slope * noise + intercept))) @ p["inputs"]
    return np.linalg.solve(precision, linear), precision


def slow_moves(p, rho, normal, uniform):
    """The derivation, word by word."""
    rows, pre, probabilities = p["rows"].copy(), p["pre"].copy(), np.empty(uniform.shape)

    def transition(law, start, end, rho):
        covariance = (1 - rho**2) * np.linalg.inv(law[1])
        normal = stats.multivariate_normal(law[0] + rho * (start - law[0]), covariance)
        return normal.logpdf(end)

    for i, unit in np.ndindex(uniform.shape):
        here, row = row_law(p, rows, pre, unit), rows[unit]
        step = np.linalg.solve(linalg.cholesky(here[1]), normal[i, unit])
        new_rows, new_pre = rows.copy(), pre.copy()
        new_rows[unit] = here[0] + rho[unit] * (row - here[0]) + np.sqrt(1 - rho[unit] ** 2) * step
        new_pre[unit] += p["inputs"] @ (new_rows[unit] - row)
        there, new = row_law(p, new_rows, new_pre, unit), new_rows[unit]
        log_ratio = log_target(p, new_rows, new_pre, unit) - log_target(p, rows, pre, unit)
        log_ratio += transition(there, new, row, rho[unit]) - transition(here, row, new, rho[unit])
        probabilities[i, unit] = np.exp(min(0.0, log_ratio))
        if uniform[i, unit] < probabilities[i, unit]:
            rows, pre = new_rows, new_pre
    return rows, pre, probabilities.mean(0)


def kernel_draw(p, rho, normal, uniform):
    return kernels.move_rows(*(p[name] for name in ARGUMENTS), rho, normal, uniform)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("n_obs", "units", "d", "m"),
    [(1, 1, 1, 1), (40, 5, 3, 1), (7, 4, 6, 5), (25, 1, 4, 2), (600, 2, 34, 1)],
)
def test_kernel(n_obs, units, d, m, shared):
    """What shows with more samples than weights, fewer, many of both, or after many passes only."""
    p = problem(n_obs, n_obs, units, d, m, shared)
    before = {name: value.copy() for name, value in p.items()}
    rng, passes = np.random.default_rng(1), 6
    rho, uniform = 0.9 * rng.random(units), rng.random((passes, units))
    noises = rho, rng.normal(size=(passes, units, d)), uniform
    for found, expected in zip(kernel_draw(p, *noises), slow_moves(p, *noises), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    for name, value in p.items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@pytest.mark.slow
def test_few_units_are_held_at_a_time(monkeypatch):
    """Whitened designs of other units, or residuals that are whitened again."""
    p = problem(3, 6, 5, 2, 3, False)
    rng = np.random.default_rng(2)
    noises = rng.random(5), rng.normal(size=(3, 5, 2)), rng.random((3, 5))
    expected = kernel_draw(p, *noises)
    room = np.empty((len(p["design"]), 2, len(p["weight"])))
    monkeypatch.setattr(kernels, "empty_whitened", lambda above: room)
    in_groups = of_arrays(kernels.move_rows.__wrapped__)
    for ours, theirs in zip(in_groups(*(p[a] for a in ARGUMENTS), *noises), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_rows_are_left_by_a_kernel_that_accepts_none():
    p = problem(2, 30, 4, 3, 2, False)
    uniform, normal = np.ones((3, 4)), np.random.default_rng(0).normal(size=(3, 4, 3))
    rows, pre, _ = kernel_draw(p, np.full(4, 0.3), normal, uniform)
    np.testing.assert_array_equal(rows, p["rows"])
    np.testing.assert_array_equal(pre, p["pre"])


@pytest.mark.parametrize("name", ["inputs", "rows", "prior", "prior_linear", "pre", "design",
                                  "weight", "response", "variance"])  # fmt: skip
def test_nan_is_told(name):
    """A NaN that is taken for a certain acceptance, for a refusal, or stops the sweep."""
    p = problem(3, 6, 2, 3, 2, False)
    p[name].flat[0] = np.nan
    rows, pre, _ = kernel_draw(p, np.zeros(2), np.ones((3, 2, 3)), np.full((3, 2), 0.5))
    assert np.isnan(rows).any()
    assert np.isnan(pre).any()


# --- what can be moved ----------------------------------------------------------------------------


def output(a):
    pm.Normal("y", a @ pm.Normal("W2", shape=(UNITS, 2)), 0.7, observed=Y[:, :2])


def no_slope():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    output(pm.Normal("X2", pt.sign(z), 0.5, shape=(N, UNITS)))


def weights_with_another_child():
    W = pm.Normal("W1", shape=(2, UNITS))
    z = pm.Normal("Z2", X @ W, 0.6)
    pm.Normal("u", X[::-1] @ W, 0.9, observed=Y)
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def weights_that_all_units_share():
    W = pm.Normal("W1", shape=2)
    z = pm.Normal("Z2", (X @ W)[:, None], 0.6, shape=(N, UNITS))
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def one_row_for_all_units():
    W = pm.Normal("W1", shape=(1, 2))
    z = pm.Normal("Z2", X @ W.T, 0.6, shape=(N, UNITS))
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def units_that_share_rows():
    W = pm.Normal("W1", shape=(2, 2))
    z = pm.Normal("Z2", X @ W[np.array([0, 1, 1])].T, 0.6)
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def inputs_of_each_unit():
    inputs = np.stack([X, X[::-1], 2 * X], axis=1)
    W = pm.Normal("W1", shape=(UNITS, 2))
    z = pm.Normal("Z2", (inputs * W).sum(-1), 0.6)
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def gains_of_each_unit():
    z = pm.Normal("Z2", (X @ pm.Normal("W1", shape=(2, UNITS))) * [0.4, 1.0, 2.0], 0.6)
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def weights_of_each_sample():
    """A row of weights for each sample, which its units share."""
    W = pm.Normal("W1", shape=(N, 2))
    z = pm.Normal("Z2", W @ RNG.normal(size=(2, UNITS)), 0.6)
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def biases_alone():
    """The same mean for all samples."""
    z = pm.Normal("Z2", pm.Normal("b1", shape=UNITS), 0.6, shape=(N, UNITS))
    output(pm.Normal("X2", relu(z), 0.5, shape=(N, UNITS)))


def noise_that_varies_with_the_sample():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    output(pm.Normal("X2", relu(z), SPREAD))


def activations_seen_one_by_one():
    """No axis of units: they are drawn one by one, given the rest."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    pm.Normal("y", pm.Normal("X2", relu(z), 0.5), 0.7, observed=Y)


def weights_above_of_each_sample():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", (a * SPREAD).sum(1) + Y[:, 1], 0.7, observed=Y[:, 0])


REFUSED = [
    (no_slope, "the mean of X2 is piecewise constant in it"),
    (weights_with_another_child, "no weights enter it alone, with a row for each"),
    (weights_that_all_units_share, "no weights enter it alone, with a row for each"),
    (one_row_for_all_units, "no weights enter it alone, with a row for each"),
    (units_that_share_rows, "no weights enter it alone, with a row for each"),
    (inputs_of_each_unit, "no weights enter it alone, with a row for each"),
    (gains_of_each_unit, "no weights enter it alone, with a row for each"),
    (weights_of_each_sample, "no weights enter it alone, with a row for each"),
    (biases_alone, "no weights enter it alone, with a row for each"),
    (noise_that_varies_with_the_sample, "the noise of X2 differs between samples"),
    (weights_above_of_each_sample, "the children of X2 do not depend on all its samples alike"),
    (activations_seen_one_by_one, "X2 is not a layer with one axis of samples and one of units"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED, ids=[b.__name__ for b, _ in REFUSED])
def test_layers_that_cannot_be_moved(build, reason):
    """Are left as they are, or refused with the reason if the user insists."""
    model = built(build)
    with pytest.raises(NotConjugate, match=reason):
        matched(model)
    assert not any(c.integrates_out for c in sweep_of(model))
    insisted = rf'^interweave is True, but Z2 cannot be interwoven: {reason}.*use "auto"\.$'
    with pytest.raises(ValueError, match=insisted):
        sweep_of(model, True)
    with pytest.raises(ValueError, match=insisted), model:
        nns.Gibbs(interweave=True)
    compile_check(model, sweep_of(model))


def seen_twice():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ [1.0, 2.0, 3.0] + z @ [0.5, 1.0, 1.0], 0.7, observed=Y[:, 0])


def seen_with_weights():
    W = pm.Normal("W1", shape=(2, UNITS))
    z = pm.Normal("Z2", X @ W, 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ [1.0, 2.0, 3.0] + X @ W @ [0.5, 1.0, 1.0], 0.7, observed=Y[:, 0])


def noise_above_by_weights():
    W = pm.Normal("W1", shape=(2, UNITS))
    z = pm.Normal("Z2", X @ W, 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a @ [1.0, 2.0, 3.0], pt.exp(W.sum()), observed=Y[:, 0])


def transposed():
    z = pm.Normal("Z2", X[:UNITS] @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", relu(z).T, 0.5)
    pm.Normal("y", a @ [1.0, 2.0, 3.0], 0.7, observed=Y[:UNITS, 0])


def vector():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=2), 0.6)
    a = pm.Normal("X2", relu(z), 0.5)
    pm.Normal("y", a, 0.7, observed=Y[:, 0])


def binary_activations():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    pm.Bernoulli("X2", logit_p=z)


def activations_that_are_observed():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    pm.Normal("X2", relu(z), 0.5, observed=Y)


@pytest.mark.parametrize(
    ("build", "left_out", "reason"),
    [
        (seen_twice, "Z2", "it is not the pre-activations of exactly one layer of activations"),
        (seen_with_weights, "Z2", "no weights enter it alone"),
        (noise_above_by_weights, "W1", "no weights enter it alone"),
        (transposed, "Z2", "its entries are rearranged"),
        (vector, "Z2", "it is not the pre-activations of exactly one layer of activations"),
        (binary_activations, "X2", "it is not the pre-activations of exactly one layer"),
        (activations_that_are_observed, "Z2", "X2 has no Gaussian conditional"),
        (network, "X2", "X2 has no Gaussian conditional"),
        (network, "W1", "no weights enter it alone"),
    ],
)
def test_what_is_not_as_in_the_derivation(build, left_out, reason):
    """Children that see more than the activations, and variables that are not the step's."""
    model = build() if build is network else built(build)
    without = [left_out, "b1"] if left_out == "W1" else [left_out]
    with pytest.raises(NotConjugate, match=reason):
        matched(model, without=without)


def test_only_short_rows_by_default():
    """Counted with the biases."""
    for n_features, expected in [(LONGEST_ROW - 1, {"W1", "b1", "Z2"}), (LONGEST_ROW, set())]:
        model = network(X=RNG.normal(size=(N, n_features)))
        assert {rv.name for c in moves(sweep_of(model)) for rv in c.draws} == expected
        assert {rv.name for c in moves(sweep_of(model, True)) for rv in c.draws} == {
            "W1", "b1", "Z2"}  # fmt: skip


def test_layers_are_chosen_one_by_one():
    model = network(hidden=(LONGEST_ROW, 2), y=Y[:, 0])
    assert [c.draws[-1].name for c in moves(sweep_of(model))] == ["Z2"]
    assert [c.draws[-1].name for c in moves(sweep_of(model, True))] == ["Z2", "Z3"]


@pytest.mark.parametrize("value", [None, "yes", 1, "AUTO"])
def test_interweave_argument(value):
    with network(), pytest.raises(ValueError, match='interweave must be True, False or "auto"'):
        nns.Gibbs(interweave=value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "three"])
def test_passes_argument(value):
    with network(), pytest.raises(ValueError, match="passes must be"):
        nns.Gibbs(passes=value)


def test_nothing_to_be_interwoven():
    model = network(hidden=())
    assert not moves(sweep_of(model))
    with pytest.raises(ValueError, match="interweave is True, but no pre-activations behind a"):
        sweep_of(model, True)


def test_without_interweaving():
    model = network(hidden=(2, 3))
    combined = sweep_of(model, False)
    assert not any(c.integrates_out for c in combined)
    assert sorted(names(combined)) == sorted(names(find_conditionals(model, model.free_RVs)))


# --- the order of a sweep -------------------------------------------------------------------------


def sweep_of(model, interweave="auto", scan="sequential"):
    options = {"interweave": interweave, "passes": PASSES, "scan": scan}
    return graphs.sweep_of(model, trajectories=False, **options)


def moves(conditionals):
    return [c for c in conditionals if isinstance(c, Interweaving)]


def names(conditionals):
    return [" ".join(rv.name for rv in c.draws) or c.name for c in conditionals]


def compile_check(model, conditionals):
    return chain_draws(model, conditionals, pt.random.rng("rng"), shapes_of(model))


def test_passes_of_a_combination():
    """One number is tuned for each unit, not for each sample."""
    model = network()
    [move] = moves(sweep_of(model))
    assert move.passes == PASSES
    assert move.n_tuned(shapes_of(model)) == UNITS != N


ONE = ["W1 b1", "W1 b1 Z2", "W2", "W1 b1 Z2 W2", "X2", "Z2", "W2 b2"]
TWO = [
    "W1 b1",
    "W1 b1 Z2",
    "X2",
    "Z2",
    "W2 b2",
    "W2 b2 Z3",
    "W3",
    "W2 b2 Z3 W3",
    "X3",
    "Z3",
    "W3 b3",
]
LOGISTIC = ["W1 b1", "Polya-Gamma", "W1 b1 Z2", "w2", "X2", "Z2", "w2"]
BY_SAMPLE = ["W1", "W1 Z2", "X2", "Z2", "W2", "W2 Z3", "W3", "X3", "Z3", "W3"]


@pytest.mark.parametrize(
    ("build", "sequential", "parallel"),
    [
        (network, ONE, ["W1 b1 Z2", "W2", "W1 b1 Z2 W2", "X2", "W1 b1", "W2 b2", "Z2"]),
        (
            lambda: network(hidden=(2, 3)),
            TWO,
            [
                "W1 b1 Z2",
                "X2",
                "W2 b2 Z3",
                "W3",
                "W2 b2 Z3 W3",
                "X3",
                "W1 b1",
                "W2 b2",
                "W3 b3",
                "Z2",
                "Z3",
            ],
        ),
        (
            lambda: built(logistic),
            LOGISTIC,
            ["Polya-Gamma", "W1 b1 Z2", "w2", "X2", "W1 b1", "w2", "Z2"],
        ),
        (
            lambda: built(skip_connection),
            BY_SAMPLE,
            ["W1 Z2", "X2", "W2 Z3", "W3", "X3", "W1", "W2", "W3", "Z2", "Z3"],
        ),
    ],
    ids=["one", "two", "logistic", "skip_connection"],
)
def test_sequence_of_draws(build, sequential, parallel):
    """A move torn from its activations, and variables that are lost."""
    model = build()
    assert names(sweep_of(model, True)) == names(sweep_of(model)) == sequential
    assert names(sweep_of(model, scan="parallel")) == parallel
    for scan, n_moves in [("sequential", sequential), ("parallel", parallel)]:
        chained = compile_check(model, sweep_of(model, True, scan))
        assert set(chained.stored(model)) == set(model.value_vars)
        interwoven = [name for name in n_moves if name.startswith("W") and name[-2] == "Z"]
        assert len(chained.acceptances) == len(interwoven)


@pytest.mark.parametrize("build", HAND_WRITTEN)
@pytest.mark.parametrize("scan", ["sequential", "parallel"])
def test_order_is_valid(build, scan):
    model = built(build)
    combined = sweep_of(model, True, scan)
    assert moves(combined)
    assert set(compile_check(model, combined).stored(model)) == set(model.value_vars)


@pytest.mark.parametrize(
    ("build", "late", "layer"),
    [
        (network, "Z2", 2),
        (network, "W2 b2", 2),
        (lambda: network(hidden=(2, 3)), "Z2", 2),
        (lambda: network(hidden=(2, 3)), "W2 b2", 2),
        (lambda: network(hidden=(2, 3)), "W2 b2 Z3", 2),
        (lambda: network(hidden=(2, 3)), "Z3", 3),
        (lambda: network(hidden=(2, 3)), "W3 b3", 3),
        (lambda: built(hierarchical), "out", 2),
        (lambda: built(logistic), "Polya-Gamma", 2),
        (lambda: built(several_children), "w2", 2),
    ],
)
def test_what_is_given_stale_activations_is_refused(build, late, layer):
    """Pre-activations, weights above, noise or logits' precisions before fresh activations."""
    model = build()
    combined = sweep_of(model)
    moved = combined.pop(names(combined).index(late))
    combined.insert(names(combined).index(f"X{layer}"), moved)
    with pytest.raises(ValueError, match=rf"given X{layer}, which was integrated out of the draw"):
        compile_check(model, combined)


def test_a_move_without_fresh_activations_is_refused():
    model = network()
    combined = [c for c in sweep_of(model) if names([c]) != ["X2"]]
    with pytest.raises(ValueError, match=r"given X2, which was integrated out of the draw of W1"):
        compile_check(model, combined)


def test_a_move_is_not_given_its_activations():
    """A shape or an offset through which they enter: the move itself would be refused."""
    model = network()
    move = next(iter(moves(sweep_of(model))))
    fresh = [c for c in sweep_of(model) if names([c]) == ["X2"]]
    compile_check(model, [move, move, *fresh])


def test_two_layers_behind_one():
    """Both can be moved, but not at once without the activations that they share: one is."""
    with pm.Model() as model:
        z2 = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
        z3 = pm.Normal("Z3", X @ pm.Normal("W3", shape=(2, UNITS)), 0.6)
        output(pm.Normal("X2", relu(z2) + abs(z3), 0.5, shape=(N, UNITS)))
    for z in ("Z2", "Z3"):
        assert matched(model, z).draws[-1].name == z
    for scan in ("sequential", "parallel"):
        chained = compile_check(model, sweep_of(model, "auto", scan))
        assert set(chained.stored(model)) == set(model.value_vars)
    with pytest.raises(ValueError, match="Z3 cannot be interwoven: X2 is moved together with Z2"):
        sweep_of(model, True, "sequential")

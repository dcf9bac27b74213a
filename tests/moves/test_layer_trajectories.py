"""Trajectories of all weights of a layer and above it, against the model's own density.

The kernel runs as plain Python. What it gains between the ends of a trajectory, with the prior of
the response's scale, is what the model's density gains with the activations integrated out. There
and back again it ends where it began, and it preserves volume.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.moves import layer_trajectories
from pymc_nnsteps.moves import layer_trajectories as kernels
from pymc_nnsteps.moves.layer_trajectories import LayerTrajectories
from pymc_nnsteps.moves.loops import layer_density, leapfrog
from pymc_nnsteps.moves.loops.interweaving import ActivationPieces
from pymc_nnsteps.moves.loops.outgoing_weights import GaussianPrior
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights
from tests.laws.graphs import shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.moves.in_python import in_python
from tests.planting import plant

RNG = np.random.default_rng(29)
N, UNITS = 6, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
Y2 = RNG.normal(size=(N, 2))
AVERAGES = {
    1: np.array([0.4, 6.0, 2.0, 4.0, 12.0, 1.0]),
    2: np.array([0.4, *np.outer([6, 2, 4, 12], [1, 0.2, 0.8]).ravel(), 1.0]),
    3: np.array([0.4, *np.outer([6, 2, 4, 12], [1, 0, 0.1, 1, 0, 0.8]).ravel(), 1.0]),
}
"""Numbers of a metric, by the number of outputs; the last is that of each scale."""
KERNELS = layer_density, kernels, leapfrog


def network(y=Y, **options):
    nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), noise=0.3, **options)


def learnt():
    """An inverse gamma variance of the response, and a bias of the output."""
    noise = {"pre": 0.1, "post": 0.2, "output": "learnt"}
    nns.intermediate_noise_mlp(X, Y, hidden=(UNITS,), noise=noise)


def layer(activation=abs):
    W = pm.Normal("W1", [[0.5], [-0.3]], [[0.7, 1.2, 0.4]], shape=(2, UNITS))
    return pm.Normal("X2", activation(pm.Normal("Z2", X @ W, 0.6)), [0.5, 0.9, 0.4])


def half_normal():
    """Beside effects, with prior means, and a bias of the shape of one number."""
    v, sigma = pm.Normal("v", 0.4, [0.3, 1.2, 0.8], shape=UNITS), pm.HalfNormal("sigma", 0.9)
    effects = pm.Normal("a", shape=2)[np.arange(N) % 2]
    pm.Normal("y", layer() @ v + effects + pm.Normal("c", 0.7, 0.6), sigma, observed=Y)


def precision():
    """No number that all see with the factor one."""
    v, tau = pm.Normal("v", shape=UNITS), pm.Gamma("tau", 2, 1)
    pm.Normal("y", layer() @ v + 2 * pm.Normal("c"), tau=tau, observed=Y)


def of_each_sample():
    """Knots beside zero, and noise that differs between samples."""
    v = pm.Normal("v", shape=UNITS)
    clipped = layer(lambda z: pt.clip(z, -0.4, 0.7)) @ v
    pm.Normal("y", clipped + pm.Normal("c"), np.linspace(0.5, 2, N), observed=Y)


def times_a_factor():
    """The number that all see is not seen so by what is divided by the factor."""
    v = pm.Normal("v", shape=UNITS)
    mean = np.linspace(0.5, 2, N) * (layer() @ v) + pm.Normal("c")
    pm.Normal("y", mean, 0.7, observed=Y)


def of_weights_too():
    """The response's scale is that of the outgoing weights as well: it stays."""
    sigma = pm.HalfNormal("sigma")
    v = pm.Normal("v", 0, sigma, shape=UNITS)
    pm.Normal("y", layer() @ v, sigma, observed=Y)


def two_columns(scale=None):
    noise = {"pre": 0.2, "post": 0.7, "output": 0}
    f = nns.blocks.intermediate_noise(X, hidden=(UNITS,), outputs=2, noise=noise)
    pm.Normal("y", f, pm.HalfNormal("sigma", 0.9) if scale is None else scale, observed=Y2)


def entries_missing():
    """Of one variable, which PyMC makes two of."""
    y, noise = Y2.copy(), {"pre": 0.1, "post": 0.2, "output": "learnt"}
    y[[1, 3, 4], 1] = np.nan
    with pytest.warns(pm.exceptions.ImputationWarning):
        nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), noise=noise)


def two_variables(rows=slice(None), scaled=lambda i: pm.HalfNormal(f"sigma{i}", 0.9)):
    """With prior means; the second one has some of the samples."""
    x = layer()
    for i, some in enumerate([slice(None), rows]):
        v = pm.Normal(f"v{i}", 0.4, [0.3, 1.2, 0.8], shape=UNITS)
        mean = x @ v + pm.Normal(f"c{i}", 0.7, 0.6)
        pm.Normal(f"y{i}", mean[some], scaled(i), observed=Y2[some, i])


def entries_of_scales():
    """Scales that are entries of a vector, and outputs that pick entries of a bias."""
    s = pm.HalfNormal("s", 0.9, shape=3)
    mean = layer() @ pm.Normal("V", 0.1, [[1.0], [2.0], [0.5]], shape=(3, UNITS)).T + pm.Normal(
        "c", 0.3, [0.5, 1, 2], shape=3
    )
    pm.Normal("y1", mean[:, 2], s[1], observed=Y)
    pm.Normal("y2", mean[[0, 2, 5], 0], s[0], observed=Y[:3])
    pm.Normal("y3", mean[:, 1], s[2], observed=Y2[:, 0])


def one_bias_for_two():
    """Both outputs see one number, and their scale is the scale of one of them times two."""
    s, c, x = pm.HalfNormal("s"), pm.Normal("c"), layer()
    pm.Normal("y1", x @ pm.Normal("v1", shape=UNITS) + c, s, observed=Y)
    pm.Normal("y2", x @ pm.Normal("v2", shape=UNITS) + c, 2 * s, observed=Y2[:, 0])


CASES = {
    "relu": (network, {}, ["b2"], []),
    "leaky": (network, {"activation": "leaky_relu", "bias": False}, [], []),
    "precisions": (network, {"weight_precision": [0.6, 1.7]}, ["b2"], []),
    "probit": (network, {"y": np.arange(N) % 2, "likelihood": "probit"}, ["b2"], []),
    "learnt": (learnt, {}, ["b2"], ["noise_y"]),
    "half-Normal": (half_normal, {}, ["c"], ["sigma"]),
    "precision": (precision, {}, [], ["tau"]),
    "of each sample": (of_each_sample, {}, ["c"], []),
    "times a factor": (times_a_factor, {}, [], []),
    "of weights too": (of_weights_too, {}, [], []),
    "two columns": (two_columns, {}, ["f::b2"], ["sigma"]),
    "entries missing": (entries_missing, {}, ["b2"], ["noise_y"]),
    "known scales": (two_columns, {"scale": [0.4, 1.3]}, ["f::b2"], []),
    "two variables": (two_variables, {}, ["c0", "c1"], ["sigma0", "sigma1"]),
    "few rows": (two_variables, {"rows": slice(2, 5)}, ["c0", "c1"], ["sigma0", "sigma1"]),
    "entries of scales": (entries_of_scales, {}, ["c"], ["s", "s", "s"]),
    "one bias for two": (one_bias_for_two, {}, [], ["s"]),
}
"""Model, its options, the biases and the scales that are moved."""


def trajectory_of(model, **options):
    found = [d for d in sweep_of(model, **options) if isinstance(d, LayerTrajectories)]
    return found[0] if found else None


def compiled(model, outputs, inputs=()):
    inputs = [*inputs, *model.value_vars]
    return pytensor.function(inputs, outputs, mode=ONCE, on_unused_input="ignore")


class Moved:
    """One move of a model: what the kernel is given at a point, and the point after it."""

    def __init__(self, case):
        build, options, self.biases, self.scales = CASES[case]
        self.model = built(build, **options)
        self.move = trajectory_of(self.model)
        self.rng = pt.random.rng("rng")
        draw = self.move.draw(self.rng, shapes_of(self.model))
        ops = [v.owner for v in ancestors([draw.acceptance]) if v.owner is not None]
        [self.node] = {node for node in ops if getattr(node.op, "name", "") == "move_layer"}
        self.natural = natural_values(self.model)
        self.draw = draw
        given = substitute(self.node.inputs[:-2], self.natural)
        self._given = compiled(self.model, given, [self.move.averages, self.move.tuning])

    def given(self, point, *, averages=None, rho=0.7):
        """Arguments of the kernel but for its random numbers; activations are not seen."""
        unseen = point | {self.move.integrates_out[0].name: np.full((N, UNITS), np.nan)}
        if averages is None:
            n_scales, m = self.move.scaled.shape
            averages = np.append(AVERAGES[m], np.ones(n_scales - 1))
        values = [unseen[v.name] for v in self.model.value_vars]
        a = self._given(averages, [rho], *values)
        return [
            LayerWeights(*a[:4]), a[4], ActivationPieces(*a[5:8]),
            GaussianPrior(*a[8:10]), Above(*a[10:14]), *a[14:]
        ]  # fmt: skip

    def after(self, point, end):
        """The point after an end that is accepted, and the log ratio of the scale's prior."""
        certain = end._replace(log_ratio=np.array([1e6]))
        unlikely = end._replace(log_ratio=np.array([-99.0]))
        outputs = self._at(self.draw.values.values(), certain) + self._at(
            [self.draw.acceptance], unlikely
        )
        *values, chance = compiled(self.model, outputs, [self.rng])(
            np.random.default_rng(0), *(point[v.name] for v in self.model.value_vars)
        )
        new = dict(point)
        for rv, value in zip(self.draw.values, values, strict=True):
            is_scale = self.model.rvs_to_transforms[rv] is not None
            new[self.model.rvs_to_values[rv].name] = np.log(value) if is_scale else value
        return new, np.log(chance[0]) + 99

    def _at(self, graphs, end):
        ends = {o: pt.as_tensor(x) for o, x in zip(self.node.outputs, end, strict=True)}
        return substitute(list(graphs), {**self.natural, **ends})


@cache
def moved_in(case):
    """What the tests of a case share."""
    return Moved(case)


def random_numbers(given, rng, steps):
    """Of a trajectory of some steps."""
    (units, d), (n_scales, m) = given[0].rows.shape, given[5].shape
    n_normal = units * d + m * (units + 1) + n_scales
    return rng.normal(size=n_normal), np.array([(steps - 0.5) / kernels.MOST_STEPS])


def ends_of(moved, monkeypatch, steps=4, seed=0):
    """What the density gains in the kernel with the prior's ratio, and what it does."""
    rng = np.random.default_rng(seed)
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, leapfrog, "fill_velocity", lambda right, *args: 0.0 * right(*args))
    start = random_point(moved.model, seed)
    given = moved.given(start)
    end = kernels.move_layer(*given, *random_numbers(given, rng, steps))
    new, prior_ratio = moved.after(start, end)
    names = {v.name for v in moved.model.value_vars if not np.allclose(new[v.name], start[v.name])}
    assert names == {moved.model.rvs_to_values[rv].name for rv in moved.move.draws}
    density = integrated_density(moved.model, moved.move.integrates_out[0].name, {})
    return end.log_ratio[0] + prior_ratio, density(new) - density(start)


@pytest.mark.parametrize("case", CASES)
def test_density_is_the_models(case, monkeypatch):
    """A lost prior, a part of the response's variance, a piece, noise that is not kept."""
    moved = moved_in(case)
    biases = moved.move.biases.rvs if moved.move.biases else ()
    assert [rv.name for rv in biases] == moved.biases
    assert [rv.name for scale in moved.move.scales for rv in scale.draws] == moved.scales
    gained, expected = ends_of(moved, monkeypatch)
    assert abs(gained - expected) < 1e-7 * max(1, abs(expected))


def no_determinants(right, *args):
    return 0.0 * right(*args)


def noise_of_one_sample(right, place, scene, noise):
    return right(place, scene._replace(weight=0 * scene.weight + scene.weight[0]), noise)


def noise_of_the_layer_lost(right, place, scene, spread):
    right(place, scene, spread)
    spread[:] = 0.0


def common_noise_lost(right, place, scene, spread):
    right(place, scene, spread)
    spread[:] = np.diag(np.diag(spread))


def noise_of_one_output_lost(right, scene, shift, n, noise):
    right(scene, shift, n, noise)
    noise.own[1] = noise.own[0]


def one_pattern(right, weight, first, n_obs):
    return n_obs


def density_of_the_scale_lost(right, density, q, slope):
    shift = layer_density.place_in(q, density).shift
    return right(density, q, slope) - 0.5 * density.noise.moves[0] * shift[0]


PLANTS = {
    "no determinant": ("relu", layer_density, "know", no_determinants),
    "no determinants": ("few rows", layer_density, "know", no_determinants),
    "noise of one sample": (
        "of each sample",
        layer_density,
        "log_likelihood_of_one",
        noise_of_one_sample,
    ),
    "noise of the layer": ("relu", layer_density, "fill_spread", noise_of_the_layer_lost),
    "common noise": ("two columns", layer_density, "fill_spread", common_noise_lost),
    "noise of an output": ("known scales", layer_density, "fill_own", noise_of_one_output_lost),
    "one pattern for all": ("few rows", layer_density, "end_of_run", one_pattern),
    "prior means": (
        *("half-Normal", layer_density, "add_prior"),
        lambda right, value, prior, linear, slope: right(value, prior, 0 * linear, slope),
    ),
    "density of the scale": ("half-Normal", kernels, "evaluate_layer", density_of_the_scale_lost),
    "of one of two": ("two variables", kernels, "evaluate_layer", density_of_the_scale_lost),
}
"""Parts of the kernel, and what stands in their place."""


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, *planted)
    gained, expected = ends_of(moved_in(case), monkeypatch)
    assert abs(gained - expected) > 1e-3


def test_lost_prior_of_the_scale_is_seen(monkeypatch):
    monkeypatch.setattr(
        layer_trajectories, "prior_ratio", lambda scale, shift: pt.zeros_like(shift)
    )
    gained, expected = ends_of(Moved("half-Normal"), monkeypatch)
    assert abs(gained - expected) > 1e-3


# --- leapfrog steps -------------------------------------------------------------------------------


def flow(case, monkeypatch, steps=3, seed=1):
    """The map of places and momenta, as a function of one vector, and where it begins."""
    moved = moved_in(case)
    start = random_point(moved.model, seed)
    given = moved.given(start)
    held = []

    def begin(metric, normal, momenta):
        momenta[:] = held.pop()
        held.append(momenta)

    in_python(monkeypatch, *KERNELS)
    monkeypatch.setattr(kernels, "draw_momenta", begin)
    layer, pre, pieces, prior, above, scaled, *rest = given
    noise, weight = pre - layer.rows @ layer.inputs.T, above.weight
    sizes = np.cumsum([layer.rows.size, above.design.size, len(scaled)])
    _, level = random_numbers(given, np.random.default_rng(seed), steps)

    def parts(vector):
        rows, outgoing, shift = np.split(vector, sizes[:2])
        return rows.reshape(layer.rows.shape), outgoing, shift

    def run(vector):
        place, momenta = np.split(vector, 2)
        rows, outgoing, shift = parts(place)
        held.append(momenta)
        end = kernels.move_layer(
            layer._replace(rows=rows),
            noise + rows @ layer.inputs.T,
            pieces,
            prior,
            above._replace(
                design=outgoing.reshape(above.design.shape),
                weight=weight * np.exp(-shift @ scaled),
            ),
            scaled,
            *rest,
            np.zeros(0),
            level,
        )
        ends = (end.rows, end.above, shift + end.shift, held.pop())
        return np.concatenate([each.ravel() for each in ends]), end.log_ratio[0]

    rng = np.random.default_rng(seed)
    moves = np.append(np.ones(sizes[1]), scaled.max(1))
    momenta = 0.5 * rng.normal(size=sizes[-1]) * moves
    place = np.concatenate([layer.rows.ravel(), above.design.ravel(), np.zeros(len(scaled))])
    return run, np.concatenate([place, momenta])


def way_back(case, monkeypatch):
    run, start = flow(case, monkeypatch)
    half = len(start) // 2
    turn = np.append(np.ones(half), -np.ones(half))
    end, ratio = run(start)
    back, ratio_back = run(turn * end)
    assert not np.allclose(end, start)
    return np.abs(turn * back - start).max() + abs(ratio + ratio_back)


@pytest.mark.parametrize("case", ["relu", "half-Normal", "of each sample", "few rows"])
def test_the_way_back_is_the_same(case, monkeypatch):
    """A step that depends on where it begins, a kick that is too long."""
    assert way_back(case, monkeypatch) < 1e-8


def kick_is_too_long(right, evaluate, density, metric, size, q, p, slope, velocity):
    log_density = right(evaluate, density, metric, size, q, p, slope, velocity)
    p += 0.5 * size * slope
    return log_density


def test_a_kick_that_is_too_long_is_seen(monkeypatch):
    plant(monkeypatch, leapfrog, "leapfrog", kick_is_too_long)
    assert way_back("half-Normal", monkeypatch) > 1e-3


def test_volume_is_preserved(monkeypatch):
    """A step whose size depends on the place."""
    run, start = flow("half-Normal", monkeypatch)
    steps = 1e-6 * np.eye(len(start))
    jacobian = np.stack([(run(start + s)[0] - run(start - s)[0]) / 2e-6 for s in steps])
    moved = np.flatnonzero(np.abs(jacobian - np.eye(len(start))).sum(0) + 1)
    assert abs(np.linalg.slogdet(jacobian[np.ix_(moved, moved)])[1]) < 1e-4


def energy_error(case, monkeypatch):
    """Change of the energy along a trajectory of short steps."""
    moved = moved_in(case)
    given = moved.given(random_point(moved.model, 2), rho=0.999)
    in_python(monkeypatch, *KERNELS)
    numbers = random_numbers(given, np.random.default_rng(2), 8)
    return abs(kernels.move_layer(*given, *numbers).log_ratio[0])


@pytest.mark.parametrize("case", CASES)
def test_short_steps_keep_the_energy(case, monkeypatch):
    """A slope of another density."""
    assert energy_error(case, monkeypatch) < 1e-4


def slope_of_bias_lost(right, density, q, slope):
    log_density = right(density, q, slope)
    layer_density.place_in(slope, density).above[-1] = 0.0
    return log_density


def slope_in_spread_lost(right, place, scene, noise):
    density = right(place, scene, noise)
    noise.by_covariance[-1] = 0.0
    return density


def slope_of_the_scales_density_lost(right, density, q, slope):
    log_density = right(density, q, slope)
    layer_density.place_in(slope, density).shift[:] -= 0.5 * density.noise.moves
    return log_density


SLOPES = {
    "of the bias": (kernels, "evaluate_layer", slope_of_bias_lost),
    "in the layer's noise": (layer_density, "log_likelihood", slope_in_spread_lost),
    "of the scale's density": (kernels, "evaluate_layer", slope_of_the_scales_density_lost),
}


@pytest.mark.parametrize("case", ["half-Normal", "few rows"])
@pytest.mark.parametrize("lost", SLOPES)
def test_lost_slopes_are_seen(lost, case, monkeypatch):
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, *SLOPES[lost])
    assert energy_error(case, monkeypatch) > 1e-3


# --- the metric -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["half-Normal", "two variables"])
def test_momenta_have_the_energy_of_their_metric(case, monkeypatch):
    """Momenta that are drawn by one metric and weighed by another."""
    moved, energies = moved_in(case), []
    given = moved.given(random_point(moved.model, 3))
    in_python(monkeypatch, *KERNELS)
    weigh = leapfrog.fill_velocity
    monkeypatch.setattr(
        leapfrog, "fill_velocity", lambda *args: energies.append(weigh(*args)) or energies[-1]
    )
    normal, level = random_numbers(given, np.random.default_rng(3), 1)
    kernels.move_layer(*given, normal, level)
    assert energies[0] == pytest.approx(normal @ normal / 2)


@pytest.mark.parametrize("case", ["half-Normal", "two variables", "few rows"])
def test_numbers_of_the_metric_are_averages_of_the_information(case, monkeypatch):
    """Means over units and pairs of J' V^{-1} J, J the slope of the response's mean."""
    moved = moved_in(case)
    point = random_point(moved.model, 4)
    _, pre, _, _, above, scaled, *_ = given = moved.given(point)
    in_python(monkeypatch, *KERNELS)
    numbers = kernels.move_layer(*given, *random_numbers(given, RNG, 1)).averages
    v, active, slope = above.design[:, :UNITS], np.abs(pre), np.sign(pre)
    m, units = len(v), np.eye(UNITS, dtype=bool)
    weight = np.broadcast_to(above.weight, (N, m))
    expected = np.zeros_like(numbers)
    for n in range(N):
        own = np.diag(1 / np.maximum(weight[n], 1e-9))
        known = np.linalg.inv(own + v * above.variance @ v.T) * np.outer(
            weight[n] > 0, weight[n] > 0
        )
        cross = np.outer(active[:, n], active[:, n])
        means = [cross[units].mean(), cross[~units].mean(), active[:, n].mean(), 1.0]
        scales = [np.trace((known @ (own * of)) @ (known @ (own * of))) / 2 for of in scaled]
        expected[0] += np.mean(slope[:, n] ** 2 * np.diag(v.T @ known @ v)) / N
        expected[1:] += np.concatenate([np.outer(means, known[np.triu_indices(m)]).ravel(), scales])
    np.testing.assert_allclose(numbers, expected, rtol=1e-6)


@pytest.mark.parametrize("still", [{"averages": np.zeros(6)}, {"rho": 1.0}])
def test_nothing_moves(still, monkeypatch):
    """Before anything is known of the metric, and in sweeps without a trajectory."""
    moved = moved_in("learnt")
    given = moved.given(random_point(moved.model, 5), **still)
    in_python(monkeypatch, *KERNELS)
    end = kernels.move_layer(*given, *random_numbers(given, RNG, 3))
    for after, before in ((end.rows, given[0].rows), (end.pre, given[1]), (end.shift, 0)):
        np.testing.assert_array_equal(after, before)
    assert end.averages[4] > 0


def test_a_variance_of_the_response_that_is_hardly_seen_stays(monkeypatch):
    """Trajectories from there or to there, where other draws lose digits."""
    moved = moved_in("half-Normal")
    start = random_point(moved.model, 6)
    start["sigma_log__"] = np.array(-12.0)
    given = moved.given(start)
    in_python(monkeypatch, *KERNELS)
    end = kernels.move_layer(*given, *random_numbers(given, RNG, 3))
    np.testing.assert_array_equal(end.rows, given[0].rows)
    given = moved.given(random_point(moved.model, 6))
    monkeypatch.setattr(kernels, "is_tiny", lambda scene, noise, place: place.shift[0] != 0.0)
    end = kernels.move_layer(*given, *random_numbers(given, RNG, 3))
    assert end.log_ratio[0] == -np.inf


# --- where there is a trajectory ------------------------------------------------------------------


def many_outputs(m):
    v = pm.Normal("v", shape=(UNITS, m))
    pm.Normal("y", layer() @ v, 0.7, observed=RNG.normal(size=(N, m)))


def test_where_there_is_none():
    model = built(many_outputs, m=140)
    assert trajectory_of(model) is None
    assert "not along trajectories: 140 outputs of 3 units have more" in str(
        nns.explain(model, details=True)
    )
    assert trajectory_of(built(network), trajectories=False) is None
    assert trajectory_of(built(network), interweave=False) is None


def wide(d):
    nns.intermediate_noise_mlp(RNG.normal(size=(N, d)), Y, hidden=(2,), noise=0.3)


@pytest.mark.parametrize(("d", "every"), [(15, 1), (16, 2), (40, 3)])
def test_long_rows_have_fewer(d, every):
    """Of a unit's weights and its bias."""
    assert trajectory_of(built(wide, d=d)).every == every

"""Trajectories of all weights behind gates, against the model's own density.

The kernel runs as plain Python. What it accepts an end by is what the model's density gains with
activations and local scales integrated out, over the chances of the gates that are drawn, which
are written out here once more. There and back again it ends where it began.
"""

import math
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.moves.gated_trajectories import GatedTrajectories, passes_beside
from pymc_nnsteps.moves.loops import gated_density, gated_trajectories, layer_density, leapfrog
from pymc_nnsteps.moves.loops.gated_density import Laws, Tails
from pymc_nnsteps.moves.loops.interwoven_gates import GatedUnits
from pymc_nnsteps.moves.loops.rows import Above, LayerWeights
from tests.laws.graphs import shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.moves.in_python import in_python
from tests.planting import plant

KERNELS = gated_density, gated_trajectories, layer_density, leapfrog
RNG = np.random.default_rng(31)
N, UNITS, D = 6, 3, 3
X, Y = RNG.normal(size=(N, D - 1)), RNG.normal(size=N)
Y[0] = 6.0
Y2 = RNG.normal(size=(N, 2)) + np.append([3.0], np.zeros(N - 1))[:, None]
WIDTH = 0.1 * math.sqrt(0.6)


def averages_of(m, n_scales):
    """Numbers of a metric."""
    of_outputs = [*[9.0] * m, *[6.0] * m]
    return np.array([2.0, *[9.0] * D, *of_outputs, 1.0, *[2.0] * n_scales, 1.0, 1.0, 0.6, 1.0])


AVERAGES = averages_of(1, 1)


def bow_tie(**options):
    options = {"temperature": 0.9, "start": "prior", "hidden": (UNITS,)} | options
    nns.bow_tie(X, options.pop("y", Y), **options)


def gated(W, noise, level=lambda z: z, closed=None):
    z = X @ W + pm.Normal("b1", -0.4, 0.7, shape=UNITS)
    gamma = pm.Bernoulli("gamma1", logit_p=1.4 * z - 0.2)
    mean = gamma * level(z)
    return pm.Normal("a1", mean if closed is None else mean + closed, noise)


def by_hand():
    """Standard deviations, precisions, prior means, levels of their own, and effects."""
    local, total = pm.Gamma("lam", 2, 1.5, shape=(2, UNITS)), pm.HalfNormal("total", 0.8)
    W = pm.Normal("W1", 0, total / pt.sqrt(local))
    a = gated(W, pm.HalfNormal("noise", 0.7, shape=UNITS), lambda z: 2 * z - 0.7)
    v = pm.Normal("v", [0.4, -0.2, 0.3], [0.5, 1.0, 0.8])
    effects = pm.Normal("effects", shape=2)[np.arange(N) % 2]
    precision = pm.Gamma("precision", 2, 1)
    pm.Normal("y", a @ v + effects + pm.Normal("c", 0.7, 0.6), tau=precision, observed=Y)


def with_held_local_scales():
    """Biases that have local scales and do not share the global one of the other weights."""
    local, total = pm.InverseGamma("psi1", 2, 1.5, shape=(2, UNITS)), pm.InverseGamma("total", 2, 1)
    own = pm.InverseGamma("own", 3, 2, shape=UNITS)
    z = X @ pm.Normal("W1", 0, pt.sqrt(total * local)) + pm.Normal("b1", 0, pt.sqrt(own))
    a = pm.Normal("a1", pm.Bernoulli("gamma1", logit_p=2 * z) * z, 0.5)
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), 0.5, observed=Y)


def of_each_sample():
    """Known noise, and no number that all see."""
    a = gated(pm.Normal("W1", 0.3, 0.8, shape=(2, UNITS)), [0.5, 0.3, 0.4])
    v = pm.Normal("v", shape=UNITS)
    pm.Normal("y", a @ v + 2 * pm.Normal("c"), np.linspace(0.5, 2, N), observed=Y)


def logistic():
    """Seen by Polya-Gamma variables, which stay."""
    a = gated(pm.Normal("W1", 0.3, 0.8, shape=(2, UNITS)), pm.HalfNormal("noise", shape=UNITS))
    v = pm.Normal("v", shape=UNITS)
    pm.Bernoulli("y", logit_p=a @ v + pm.Normal("c"), observed=np.arange(N) % 2)


def held():
    """Scales with other children, mixtures, and local scales that are no inverse gammas: held."""
    sigma, local = pm.HalfCauchy("sigma", 1), pm.Exponential("local", 2, shape=(2, UNITS))
    W = pm.Normal("W1", 0, pm.Gamma("total", 2, 1) ** 0.5 * local**0.5)
    a = gated(W, pm.HalfNormal("noise", 0.7))
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS) + pm.Normal("c"), sigma, observed=Y)


def two_variables(rows=slice(None), *, is_shared=False):
    """With weights and biases of their own, and precisions; the second has some of the samples."""
    shared = pm.Gamma("tau", 2, 1) if is_shared else None
    a = gated(pm.Normal("W1", 0.3, 0.8, shape=(2, UNITS)), [0.5, 0.3, 0.4])
    for i, some in enumerate([slice(None), rows]):
        mean = a @ pm.Normal(f"v{i}", 0.2, 0.9, shape=UNITS) + pm.Normal(f"c{i}", 0.7, 0.6)
        tau = pm.Gamma(f"tau{i}", 2, 1) if shared is None else shared
        pm.Normal(f"y{i}", mean[some], tau=tau, observed=Y2[some, i])


ALL = ("W1", "b1", "gamma1", "W2", "b2", "tau1", "tau2", "eta_sq1", "eta_sq2")
CASES = {
    "student_t": (bow_tie, {}, ALL, ("psi1", "psi2")),
    "laplace": (bow_tie, {"shrinkage": "laplace"}, (*ALL[:5], *ALL[7:]), ()),
    "by hand": (
        *(by_hand, {}),
        ("W1", "b1", "gamma1", "v", "c", "total", "noise", "precision"),
        ("lam",),
    ),
    "held local scales": (
        *(with_held_local_scales, {}),
        ("W1", "b1", "gamma1", "v", "total"),
        ("psi1",),
    ),
    "of each sample": (of_each_sample, {}, ("W1", "b1", "gamma1", "v"), ()),
    "logistic": (logistic, {}, ("W1", "b1", "gamma1", "v", "c", "noise"), ()),
    "two columns": (bow_tie, {"y": Y2}, ALL[:-1], ("psi1", "psi2")),
    "two variables": (
        *(two_variables, {}),
        ("W1", "b1", "gamma1", "v0", "v1", "c0", "c1", "tau0", "tau1"),
        (),
    ),
    "few rows": (
        *(two_variables, {"rows": [1, 3, 4]}),
        ("W1", "b1", "gamma1", "v0", "v1", "c0", "c1", "tau0", "tau1"),
        (),
    ),
    "one precision": (
        *(two_variables, {"rows": [1, 3, 4], "is_shared": True}),
        ("W1", "b1", "gamma1", "v0", "v1", "c0", "c1", "tau"),
        (),
    ),
    "held": (held, {}, ("W1", "b1", "gamma1", "v", "c"), ()),
}
"""Model, its options, what is moved, and local scales that are integrated out."""


def trajectory_of(model, **options):
    found = [d for d in sweep_of(model, **options) if isinstance(d, GatedTrajectories)]
    return found[0] if found else None


class Moved:
    """One move of a model: what the kernel is given at a point, and the point after it."""

    def __init__(self, case):
        build, options, self.names, self.local = CASES[case]
        self.model = built(build, **options)
        self.move = trajectory_of(self.model)
        self.draw = self.move.draw(pt.random.rng("rng"), shapes_of(self.model))
        ops = [v.owner for v in ancestors([self.draw.acceptance]) if v.owner is not None]
        [self.node] = {n for n in ops if getattr(n.op, "name", "") == "move_gated_layer"}
        self.natural = natural_values(self.model)
        self.omegas = {}
        for before in self.move.rows.likelihood.before:
            for omega, child in before.fixed.items():
                given = RNG.uniform(0.1, 0.4, size=N)
                self.natural[omega] = pt.constant(given)
                self.omegas[child.child] = pt.constant(given)
        unlike = [substitute([each], self.natural)[0] for each in self.node.inputs[:-3]]
        self._given = self._compiled(unlike, [self.move.averages, self.move.tuning])

    def _compiled(self, outputs, inputs=()):
        inputs = [*inputs, *self.model.value_vars]
        return pytensor.function(inputs, outputs, mode=ONCE, on_unused_input="ignore")

    def given(self, point, *, averages=None, rho=0.95):
        """Arguments of the kernel but for random numbers; what is integrated out is not seen."""
        n_scales, m = self.move.scaled.shape
        averages = averages_of(m, n_scales) if averages is None else averages
        unseen = point | {"a1": np.full((N, UNITS), np.nan)}
        for local in self.local:
            name = self.model.rvs_to_values[self.model[local]].name
            unseen[name] = RNG.normal(size=point[name].shape)
        values = [unseen[v.name] for v in self.model.value_vars]
        a = self._given(averages, [rho], *values)
        return [
            LayerWeights(*a[:4]), GatedUnits(*a[4:9]), Tails(*a[9:13]), a[13], Tails(*a[14:18]),
            Above(*a[18:22]), a[22], Laws(*a[23:27]), *a[27:],
        ]  # fmt: skip

    def after(self, point, end):
        """The point after an end that is accepted."""
        ends = {o: pt.as_tensor(x) for o, x in zip(self.node.outputs, end, strict=True)}
        drawn = {rv: x for rv, x in self.draw.values.items() if rv.name not in self.local}
        values = self._compiled(substitute(drawn.values(), {**self.natural, **ends}))(
            *(point[v.name] for v in self.model.value_vars)
        )
        new = dict(point)
        for rv, value in zip(drawn, values, strict=True):
            is_scale = self.model.rvs_to_transforms[rv] is not None
            new[self.model.rvs_to_values[rv].name] = np.log(value) if is_scale else value
        return new

    def log_density(self, point):
        """With activations and local scales integrated out, up to a constant."""
        total = integrated_density(self.model, "a1", self.omegas)(point)
        for rv in self.local:
            total += self.without(rv, point)
        return total

    def without(self, name, point):
        """What the log density gains as local scales are integrated out."""
        rv, weights = self.model[name], self.model[{"psi2": "W2"}.get(name, "W1")]
        inputs = substitute(
            [*rv.owner.op.dist_params(rv.owner), weights.owner.inputs[-1]], self.natural
        )
        alpha, scale, sd = self._compiled(inputs)(*(point[v.name] for v in self.model.value_vars))
        psi = np.exp(point[f"{name}_log__"])
        if name == "lam":
            beta, per_unit = 1 / scale, sd * np.sqrt(psi)
            own = stats.gamma(alpha, scale=scale).logpdf(psi)
        else:
            beta, per_unit = scale, sd / np.sqrt(psi)
            own = stats.invgamma(alpha, scale=scale).logpdf(psi)
        w = point[weights.name]
        t = stats.t(2 * alpha, scale=per_unit * np.sqrt(beta / alpha))
        return np.sum(t.logpdf(w) - stats.norm(0, sd).logpdf(w) - own - np.log(psi))


@cache
def moved_in(case):
    """What the tests of a case share."""
    return Moved(case)


def random_numbers(given, rng, steps):
    """Of a trajectory of some steps."""
    (n_scales, m), units = given[6].shape, len(given[0].rows)
    level = np.array([(steps - 0.5) / gated_trajectories.MOST_STEPS, 0.0, 0.0])
    n_normal = units * (D + m + 1) + n_scales + 2 + m
    return rng.normal(size=n_normal), rng.uniform(size=(units, N)), level


def log_chance_of_gates(given, rows, v, b, shifts, gates):
    """Log of the probability by which gates are drawn at weights, row by row and unit by unit."""
    layer, before, _, _, _, above, scaled, *_ = given
    change = (rows - layer.rows) @ layer.inputs.T
    logit = before.logit + before.logit_factor * change
    level = before.level + before.level_factor * change
    chance = 1 / (1 + np.exp(-logit))
    noise = above.variance * np.exp(shifts[:UNITS])
    weight = above.weight * np.exp(-shifts[UNITS:-2] @ scaled)
    weight = np.broadcast_to(weight, (N, len(v)))
    total, each = 0.0, np.empty((UNITS, N))
    left_open = (chance * (1 - chance) * level**2).sum(1) * (v**2).sum(0)
    order = np.argsort(-left_open)
    for n in range(N):
        is_seen = weight[n] > 0
        for i, a in enumerate(order):
            seen, drawn, behind = (v * level[:, n])[is_seen], order[:i], order[i + 1 :]
            p = chance[behind, n]
            mean = b[is_seen] + seen[:, drawn] @ gates[drawn, n] + seen[:, behind] @ p
            spread = np.diag(1 / weight[n][is_seen]) + v[is_seen] * noise @ v[is_seen].T
            spread += seen[:, behind] * (p * (1 - p)) @ seen[:, behind].T
            open_, closed = (
                stats.multivariate_normal(place, spread) for place in (mean + seen[:, a], mean)
            )
            y = above.response[n][is_seen]
            after = logit[a, n] + open_.logpdf(y) - closed.logpdf(y)
            each[a, n] = 1 / (1 + np.exp(-after))
            total -= np.logaddexp(0, -after if gates[a, n] else after)
    return total, each


def log_ratios(monkeypatch):
    """Let all ends be accepted; returns the logs of what they would have been accepted by."""
    logs = []
    in_python(monkeypatch, *KERNELS)
    monkeypatch.setattr(
        gated_trajectories, "acceptance_probability", lambda log: logs.append(log) or 1.0
    )
    return logs


def ends_of(case, monkeypatch, *, is_right=True, steps=4, seed=0):
    """What an end is accepted by, and what it should be."""
    rng, moved = np.random.default_rng(seed), moved_in(case)
    logs = log_ratios(monkeypatch)
    plant(monkeypatch, leapfrog, "fill_velocity", lambda right, *args: 0 * right(*args))
    start = random_point(moved.model, seed)
    given = moved.given(start)
    numbers = random_numbers(given, rng, steps)
    end = gated_trajectories.move_gated_layer(*given, *numbers)
    new = moved.after(start, end)
    same = [v.name for v in moved.model.value_vars if np.array_equal(new[v.name], start[v.name])]
    names = {
        moved.model.values_to_rvs[v].name for v in moved.model.value_vars if v.name not in same
    }
    assert names | {"gamma1"} == set(moved.names)
    assert {rv.name for rv in moved.move.draws} == {*moved.names, *moved.local}
    log_r, chance = log_chance_of_gates(
        given, end.rows, end.outgoing, end.bias, end.scales, end.gates
    )
    if is_right:
        np.testing.assert_array_equal(end.gates, numbers[1] < chance)
    v, b = given[3][:, :UNITS], given[3][:, UNITS]
    log_back, _ = log_chance_of_gates(
        given, given[0].rows, v, b, np.zeros_like(end.scales), given[1].gates
    )
    expected = moved.log_density(new) - moved.log_density(start)
    return logs[-1], expected + log_back - log_r + log_volume(end.outgoing) - log_volume(v)


def log_volume(v):
    """Log of the volume of weights by coordinates."""
    own, stretch = v**2 + WIDTH**2, (v**2).sum(0) + WIDTH**2
    return (np.log(own).sum() - D * np.log(stretch).sum()) / 2


@pytest.mark.parametrize("case", CASES)
def test_ends_are_accepted_by_the_models_density(case, monkeypatch):
    """A lost prior, a determinant, a moment that is not that of the draw, a Jacobian."""
    assert [rv.name for rv in moved_in(case).move.integrates_out] == ["a1"]
    gained, expected = ends_of(case, monkeypatch)
    assert abs(gained - expected) < 1e-7 * max(1, abs(expected))


def no_jacobian(right, *args):
    log_density, [density, *_] = right(*args), args
    return log_density - log_volume(density.weights.outgoing)


def noise_of_the_layer_lost(right, weights, scene, unit):
    return 0.0


def common_noise_lost(right, weights, scene, total):
    right(weights, scene, total)
    total[1] = 0.0


def noise_of_one_output_lost(right, scaled, shift, i):
    return right(scaled, 0 * shift if i else shift, i)


def scale_of_tails_lost(right, value, tails, i, shift, slope):
    density, by_shift = right(value, tails, i, shift, slope)
    return density + 0.5 * shift * (tails.order[i] > 0).sum(), by_shift


def orders_lost(right, weights, rows, outgoing, laws, slope):
    return right(weights, rows, outgoing, laws._replace(order=0 * laws.order), slope)


PLANTS = {
    "no Jacobian": ("student_t", gated_trajectories, "evaluate_gated", no_jacobian),
    "gates of one end": (
        *("student_t", gated_trajectories, "log_ratio_gates"),
        lambda right, *args: right(*args) if args[-1] else 0.0,
    ),
    "scale of tails": ("student_t", gated_density, "add_prior", scale_of_tails_lost),
    "orders of scales": ("student_t", gated_density, "add_priors", orders_lost),
    "noise of the layer": ("by hand", gated_density, "noise_of", noise_of_the_layer_lost),
    "common noise": ("two variables", gated_trajectories, "fill_noise", common_noise_lost),
    "noise of an output": ("few rows", gated_density, "change_of", noise_of_one_output_lost),
}
"""Parts of the kernel, and what stands in their place."""


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, *planted)
    gained, expected = ends_of(case, monkeypatch, is_right=False)
    assert abs(gained - expected) > 1e-3


# --- leapfrog steps -------------------------------------------------------------------------------


def flow(case, monkeypatch, steps=3, seed=1):
    """The map of coordinates and momenta, as a function of one vector, and where it begins."""
    moved = moved_in(case)
    given = moved.given(random_point(moved.model, seed))
    n_scales, m = given[6].shape
    sizes = np.cumsum([UNITS * (D + m), UNITS + n_scales + 2, m])
    place, held, ends = None, [], []

    def begin(weights, width, coordinates):
        parts = gated_density.place_in(place, given[6], UNITS)
        for target, source in zip(coordinates, parts, strict=True):
            target[...] = source
        held.append(coordinates)

    def momenta_at(metric, normal, momenta):
        momenta[:] = ends.pop()
        ends.append(momenta)

    in_python(monkeypatch, *KERNELS)
    monkeypatch.setattr(gated_trajectories, "to_coordinates", begin)
    monkeypatch.setattr(gated_trajectories, "draw_momenta", momenta_at)

    def run(vector):
        nonlocal place
        place, momenta = np.split(vector, 2)
        ends.append(momenta)
        numbers = random_numbers(given, np.random.default_rng(seed), steps)
        gated_trajectories.move_gated_layer(*given, *numbers)
        rows, outgoing, bias, scales = map(np.ravel, held.pop())
        return np.concatenate([rows, outgoing, scales, bias, ends.pop()])

    rng = np.random.default_rng(seed)
    start = rng.normal(size=2 * sizes[2])
    start[sizes[0] : sizes[1]] = 0
    start[sizes[2] :] *= 0.5 * np.append(np.ones(sizes[0]), given[7].moves)
    return run, start


def way_back(case, monkeypatch):
    run, start = flow(case, monkeypatch)
    half = len(start) // 2
    turn = np.append(np.ones(half), -np.ones(half))
    end = run(start)
    assert not np.allclose(end, start)
    return np.abs(turn * run(turn * end) - start).max()


@pytest.mark.parametrize("case", ["student_t", "of each sample", "few rows"])
def test_the_way_back_is_the_same(case, monkeypatch):
    """A step that depends on where it begins, a kick that is too long."""
    assert way_back(case, monkeypatch) < 1e-8


def test_volume_is_preserved(monkeypatch):
    """A step whose size depends on the place."""
    run, start = flow("by hand", monkeypatch)
    steps = 1e-6 * np.eye(len(start))
    jacobian = np.stack([(run(start + s) - run(start - s)) / 2e-6 for s in steps])
    moved = np.flatnonzero(jacobian.any(axis=1))  # momenta of coordinates that stay are dropped
    assert len(moved) > len(start) // 2
    assert abs(np.linalg.slogdet(jacobian[np.ix_(moved, moved)])[1]) < 1e-4


def energy_error(case, monkeypatch):
    """Change of the energy along a trajectory of short steps."""
    moved = moved_in(case)
    given = moved.given(random_point(moved.model, 2), rho=0.999)
    logs = log_ratios(monkeypatch)
    numbers = random_numbers(given, np.random.default_rng(2), 8)
    gated_trajectories.move_gated_layer(*given, *numbers)
    return abs(logs[0])


@pytest.mark.parametrize("case", CASES)
def test_short_steps_keep_the_energy(case, monkeypatch):
    """A slope of another density."""
    assert energy_error(case, monkeypatch) < 1e-5


def slope_of_bias_lost(right, weights, scene, slope):
    right(weights, scene, slope)
    slope.bias[-1] = 0.0


def slope_in_chances_lost(right, weights, scene, slope):
    right(weights, scene._replace(logit_factor=0 * scene.logit_factor), slope)


def slope_in_total_doubled(right, scene):
    density = right(scene)
    scene.by_total[:] *= 2
    return density


def slope_of_jacobian_lost(right, density, q, gradient):
    log_density, v = right(density, q, gradient), density.weights.outgoing
    slope = gated_density.place_in(gradient, density.scene.scaled, UNITS)
    own = np.sqrt(v**2 + WIDTH**2)
    slope.outgoing[:] -= v / own - D * v * own / density.scene.stretch**2
    return log_density


def slope_in_global_scale_lost(right, *args):
    density, _ = right(*args)
    return density, 0.0


SLOPES = {
    "of the bias": (gated_density, "pull_back", slope_of_bias_lost),
    "in the chances of gates": (gated_density, "pull_back", slope_in_chances_lost),
    "in the total variance": (gated_density, "log_likelihood", slope_in_total_doubled),
    "of the Jacobian": (gated_trajectories, "evaluate_gated", slope_of_jacobian_lost),
    "in a global scale": (gated_density, "add_prior", slope_in_global_scale_lost),
}


@pytest.mark.parametrize("case", ["by hand", "two columns"])
@pytest.mark.parametrize("wrong", SLOPES)
def test_wrong_slopes_are_seen(wrong, case, monkeypatch):
    in_python(monkeypatch, *KERNELS)
    plant(monkeypatch, *SLOPES[wrong])
    assert energy_error(case, monkeypatch) > 5e-5


# --- the metric -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["student_t", "two variables"])
def test_momenta_have_the_energy_of_their_metric(case, monkeypatch):
    """Momenta that are drawn by one metric and weighed by another."""
    moved, energies = moved_in(case), []
    given = moved.given(random_point(moved.model, 3))
    in_python(monkeypatch, *KERNELS)
    weigh = leapfrog.fill_velocity
    monkeypatch.setattr(
        leapfrog,
        "fill_velocity",
        lambda *args: energies.append(weigh(*args)) or energies[-1],
    )
    normal, *rest = random_numbers(given, np.random.default_rng(3), 1)
    moves = given[7].moves
    normal[-len(moves) :] *= moves
    gated_trajectories.move_gated_layer(*given, normal, *rest)
    assert energies[0] == pytest.approx(normal @ normal / 2)


@pytest.mark.parametrize("still", [{"averages": np.zeros(D + 9)}, {"rho": 1.0}])
def test_nothing_moves(still, monkeypatch):
    """Before anything is known of the metric, and in sweeps without a trajectory."""
    moved = moved_in("student_t")
    given = moved.given(random_point(moved.model, 5), **still)
    in_python(monkeypatch, *KERNELS)
    end = gated_trajectories.move_gated_layer(*given, *random_numbers(given, RNG, 3))
    for after, before in (
        (end.rows, given[0].rows),
        (end.gates, given[1].gates),
        (end.scales, 0),
        (np.append(end.outgoing[0], end.bias), given[3][0]),
    ):
        np.testing.assert_array_equal(after, before)
    assert end.averages[0] > 0


# --- where there is a trajectory ------------------------------------------------------------------


def behind_closed_gates():
    """What outgoing weights see beside the gates."""
    a = gated(pm.Normal("W1", shape=(2, UNITS)), 0.4, closed=0.5)
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), 0.7, observed=Y)


def test_where_there_is_none():
    assert trajectory_of(built(behind_closed_gates)) is None
    model = built(bow_tie, y=RNG.normal(size=(N, 7)))
    assert trajectory_of(model) is None
    assert "not along trajectories: more than 6 outputs" in str(nns.explain(model, details=True))
    assert trajectory_of(built(bow_tie), trajectories=False) is None
    assert trajectory_of(built(bow_tie), interweave=False) is None


def of_one_unit():
    """One weight, whose own scale is a number as a global scale is."""
    z = X @ pm.Normal("W1", shape=(2, 1))
    a = pm.Normal("a1", pm.Bernoulli("gamma1", logit_p=2 * z) * z, 0.5)
    v = pm.Normal("v", 0, pt.sqrt(pm.InverseGamma("psi", 3, 2, shape=1)))
    pm.Normal("y", a @ v, 0.5, observed=Y)


def test_what_is_integrated_out_is_not_moved():
    move = trajectory_of(built(of_one_unit))
    [outgoing] = move.outgoing
    assert (outgoing.local.rv.name, outgoing.total) == ("psi", None)
    assert [rv.name for rv in move.draws] == ["W1", "gamma1", "v", "psi"]


def test_local_scales_are_drawn_by_what_has_moved():
    """Their law, given the weights and the global scale at the end, after one trajectory."""
    model = built(bow_tie)
    move = trajectory_of(model)
    draw = move.draw(pt.random.rng("rng"), shapes_of(model))
    for psi, weights, total in (("psi1", "W1", "tau1"), ("psi2", "W2", "tau2")):
        given = {model[name]: draw.values[model[name]] for name in (weights, total)}
        seen = set(ancestors([draw.values[model[psi]]]))
        assert seen.issuperset(given.values())
    nodes = {v.owner for v in ancestors([draw.rng, *draw.values.values()]) if v.owner is not None}
    assert [getattr(node.op, "name", "") for node in nodes].count("move_gated_layer") == 1


def test_the_last_of_two_layers_has_one():
    move = trajectory_of(built(bow_tie, hidden=(2, UNITS)))
    assert {rv.name for rv in move.draws} >= {"W2", "W3", "gamma2"}


def test_rows_are_moved_less_often_beside_trajectories():
    """By the acceptance of ends in tuning, which is known once the metric is."""
    for known, acceptance, passes in ((0, 0.9, 5), (1, 0.9, 3), (1, 0.3, 4), (1, 0.05, 5)):
        assert passes_beside(pt.constant([known, acceptance]), 5).eval() == passes
    assert passes_beside(pt.constant([1.0, 0.9]), 1).eval() == 1
    sweep = sweep_of(built(bow_tie))
    [move] = [draw for draw in sweep if isinstance(draw, GatedTrajectories)]
    assert any(draw is move.rows for draw in sweep)
    assert move.rows.passes.eval({move.averages: AVERAGES}) == 3

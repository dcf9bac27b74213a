"""Moves of weights with their gates summed out, against the model's own density.

The oracle of the target is the model's log density: activations are integrated out as an exact
quadratic, and then all patterns of a row's gates are summed.
With the arrays that the kernel is given shown to state this target, the move is done again,
slowly: open gates by all patterns and the normal law of what is seen, gradients by differences of
the target, proposals with the densities of SciPy. Activations themselves are NaN in the draw.
"""

from functools import cache
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from scipy import linalg, special, stats

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import interwoven_gates as moves_of_gates
from pymc_nnsteps.moves.interweaving import LONGEST_ROW
from pymc_nnsteps.moves.interwoven_gates import InterwovenGates, match_interwoven_gates
from pymc_nnsteps.moves.loops import interwoven_gates as kernels
from pymc_nnsteps.steps.sweep import chain_draws
from tests.cases import quick
from tests.laws import graphs
from tests.laws.graphs import integrand_of, random_nodes, shapes_of
from tests.moves import gated_layers
from tests.moves.gated_layers import SPREAD, N, X, Y, bow_tie, built, named, names, network
from tests.moves.in_python import in_python, of_arrays
from tests.planting import plant

PASSES = 2


WITH_SHRINKAGE = {
    "gaussian-layer1": (network(2, y=Y[:, 0], shrinkage="gaussian", hidden_beta=1e-4), 1),
    "laplace-layer1": (network(3, 1, y=Y[:, 0], shrinkage="laplace"), 1),
    "laplace-layer2": (network(3, 1, y=Y[:, 0], shrinkage="laplace"), 2),
    "normal_gamma-layer1": (network(2, shrinkage="normal_gamma"), 1),
    "nig-layer2": (network(2, 2, shrinkage="nig"), 2),
}
CASES = gated_layers.LAYERS | WITH_SHRINKAGE
CASES |= {
    build.__name__: (build, 1)
    for build in (
        gated_layers.signs_turned,
        gated_layers.factors_of_each_entry,
        gated_layers.gates_by_chance,
    )
}
QUICK = {
    "bow_tie_3-layer1", "bow_tie_3_2-layer1", "bow_tie_1_2_2-layer2", "bow_tie_1_2-layer1",
    "bow_tie_2_1-layer2", "no_biases-layer1", "seen_twice-layer1", "closed_gates_free-layer1",
    "signs_turned", "gates_by_chance", "laplace-layer1", "normal_gamma-layer1",
}  # fmt: skip


class Layer(gated_layers.Layer):
    """A layer whose rows can be moved."""

    def __init__(self, build, index):
        super().__init__(build, index, PASSES)
        *weights, gates = self.move.draws
        self.weights, self.gates = [rv.name for rv in weights], gates.name
        self.density = integrand_of(self.model, self.children_above)
        self.curvature = self._curvature()
        rng = pt.random.rng("rng")
        draw = self.move.draw(rng, shapes_of(self.model))
        fixed = {omega: pt.as_tensor(value) for omega, value in self.above.items()}
        results = [draw.rng, *(draw.values[rv] for rv in self.move.draws), draw.acceptance]
        next_rng, *self.results = substitute(results, fixed | natural_values(self.model))
        self.noises = [node.outputs[1] for node in random_nodes(rng, next_rng, self.results)]

    def _at(self, point, vector):
        return self.density(point | {self.a: vector.reshape(point[self.a].shape)})

    def _curvature(self):
        """Second derivative of the log density by activations; no weight or gate changes it."""
        units = np.eye(self.point[self.a].size)
        start, up = self._at(self.point, 0 * units[0]), [self._at(self.point, u) for u in units]
        both = [[self._at(self.point, u + v) for v in units] for u in units]
        return start + np.array(both) - np.add.outer(up, up)

    def without_activations(self, point):
        """Log density with the activations integrated out, up to a constant."""
        units = np.eye(len(self.curvature))
        start = self._at(point, 0 * units[0])
        gradient = [self._at(point, u) - start for u in units] - np.diag(self.curvature) / 2
        return start - gradient @ np.linalg.solve(self.curvature, gradient) / 2

    def arguments(self):
        """What the kernel is given."""
        [node] = {v.owner for v in ancestors(self.results) if v.owner and v.owner.op == MOVE}
        function = pytensor.function(
            list(self.model.value_vars),
            node.inputs[: len(ARGUMENTS)],
            mode=ONCE,
            on_unused_input="ignore",
        )
        arrays = function(*(self.blind[v.name] for v in self.model.value_vars))
        return dict(zip(ARGUMENTS, arrays, strict=True))

    def draw(self, rho, *noises):
        """The point and the acceptance."""
        inputs = [noise.type() for noise in self.noises]
        results = graph_replace(
            self.results, dict(zip(self.noises, inputs, strict=True)), strict=False
        )
        function = pytensor.function(
            [*self.model.value_vars, self.move.tuning, *inputs],
            results,
            mode=ONCE,
            on_unused_input="ignore",
        )
        given = [np.asarray(n, v.dtype) for n, v in zip(noises, inputs, strict=True)]
        point = [self.blind[v.name] for v in self.model.value_vars]
        *values, acceptance = function(*point, rho, *given)
        return dict(zip([rv.name for rv in self.move.draws], values, strict=True)), acceptance

    def put_rows(self, rows):
        """Weights of the layer whose units have these rows."""
        rvs = self.move.draws[:-1]
        values, start = {}, 0
        for rv, member in zip(rvs, self.move.members, strict=True):
            old = self.point[rv.name]
            size = old.size // len(rows)
            part = rows[:, start : start + size]
            start += size
            unit_last = member.labels == (1,)
            values[rv.name] = (part.T if unit_last else part).reshape(old.shape)
        return values

    def target(self, rows, unit):
        """Log density of a row without its gates and without activations."""
        gates = self.point[self.gates]
        total = []
        for pattern in product((0, 1), repeat=N):
            tried = gates.copy()
            tried[:, unit] = pattern
            point = self.point | self.put_rows(rows) | {self.gates: tried}
            total.append(self.without_activations(point))
        return special.logsumexp(total)


MOVE = as_op(kernels.move_gated_rows, 2, 2, 1)
ARGUMENTS = (
    "inputs", "rows", "prior", "prior_linear", "gates", "logit", "logit_factor", "level",
    "level_factor", "design", "weight", "response", "variance",
)  # fmt: skip


@cache
def layer_of(build, index):
    return Layer(build, index)


@pytest.fixture(params=quick(CASES, QUICK))
def layer(request):
    return layer_of(*CASES[request.param])


# --- the slow move --------------------------------------------------------------------------------


class Row:
    """The law of a unit's row, of the arrays that the kernel is given."""

    def __init__(self, p, gates, unit):
        self.p, self.gates, self.unit = p, gates, unit

    def _coefficients(self):
        """``c`` and ``g`` of each sample."""
        p, unit = self.p, self.unit
        n_obs = len(p["inputs"])
        c, g = np.empty(n_obs), np.empty(n_obs)
        others = np.arange(len(self.gates)) != unit
        for n in range(n_obs):
            weight = p["weight"][n if len(p["weight"]) > 1 else 0]
            V = np.diag(1 / weight) + p["design"] @ np.diag(p["variance"]) @ p["design"].T
            gain = np.linalg.solve(V, p["design"][:, unit])
            mean = p["design"][:, others] @ (self.gates * p["level"])[others, n]
            c[n], g[n] = gain @ p["design"][:, unit], gain @ (p["response"][n] - mean)
        return c, g

    def _at(self, row):
        """Log odds before, and level, of open gates."""
        p, unit = self.p, self.unit
        shift = p["inputs"] @ (row - p["rows"][unit])
        logit = p["logit"][unit] + p["logit_factor"][unit] * shift
        return logit, p["level"][unit] + p["level_factor"][unit] * shift

    def patterns(self, row):
        """Log density of each pattern of the gates with the row, and the patterns."""
        (logit, level), (c, g) = self._at(row), self._coefficients()
        unit, p = self.unit, self.p
        by_prior = p["prior_linear"][unit] @ row - row**2 @ p["prior"][unit] / 2
        all_patterns = np.array(list(product((0, 1), repeat=len(logit))))
        by_gates = np.where(all_patterns, special.log_expit(logit), special.log_expit(-logit))
        seen = all_patterns * (g * level - c * level**2 / 2)
        return by_prior + (by_gates + seen).sum(1), all_patterns

    def target(self, row):
        return special.logsumexp(self.patterns(row)[0])

    def open_gates(self, row):
        densities, patterns = self.patterns(row)
        return np.exp(densities - special.logsumexp(densities)) @ patterns

    def gradient(self, row):
        """Differences of the target, extrapolated."""

        def slopes(h):
            units = h * np.eye(len(row))
            return np.array([self.target(row + u) - self.target(row - u) for u in units]) / (2 * h)

        h = 3e-4
        coarse, middle, fine = slopes(4 * h), slopes(2 * h), slopes(h)
        one, two = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
        return (16 * two - one) / 15

    def precision(self, row):
        p, (c, _) = self.p, self._coefficients()
        chance = self.open_gates(row)
        weight = (chance >= kernels.LEAST_PROB) * chance * c * p["level_factor"][self.unit] ** 2
        return np.diag(p["prior"][self.unit]) + (p["inputs"].T * weight) @ p["inputs"]

    def transition(self, start, rho):
        """The law of the proposal."""
        covariance = np.linalg.inv(self.precision(start))
        mean = start + (1 - rho) * covariance @ self.gradient(start)
        return stats.multivariate_normal(mean, (1 - rho**2) * covariance)

    def propose(self, row, rho, normal):
        """The row proposed, and the probability that it is accepted."""
        ahead = self.transition(row, rho)
        root = linalg.cholesky(self.precision(row))
        new = ahead.mean + np.sqrt(1 - rho**2) * linalg.solve_triangular(root, normal)
        log_ratio = self.target(new) - self.target(row)
        log_ratio += self.transition(new, rho).logpdf(row) - ahead.logpdf(new)
        return new, np.exp(min(0.0, log_ratio))


def slow_moves(p, rho, normal, refresh, uniform):
    """Rows, gates, acceptance, and the gates' probabilities, in the order of the moves."""
    p = {name: array.copy() for name, array in p.items()}
    gates, acceptance, chances = p["gates"].copy(), np.empty(uniform.shape), []
    for i, unit in np.ndindex(uniform.shape):
        law = Row(p, gates, unit)
        new, acceptance[i, unit] = law.propose(p["rows"][unit], rho[unit], normal[i, unit])
        row = new if uniform[i, unit] < acceptance[i, unit] else p["rows"][unit].copy()
        logit, level = law._at(row)
        chances.append(law.open_gates(row))
        gates[unit] = refresh[i, unit] < chances[-1]
        p["rows"][unit], p["logit"][unit], p["level"][unit] = row, logit, level
    return p["rows"], gates, acceptance.mean(0), np.array(chances)


def noises(p, seed, passes=PASSES):
    rng = np.random.default_rng(seed)
    units, d = p["rows"].shape
    rho = np.linspace(0.0, 0.8, units)
    shape = (passes, units)
    normal = rng.normal(size=(*shape, d))
    return rho, normal, rng.random((*shape, len(p["inputs"]))), rng.random(shape)


# --- what is drawn --------------------------------------------------------------------------------


def test_target(layer):
    """A lost prior mean or offset, a factor of the other kind, units or samples exchanged."""
    p, rng = layer.arguments(), np.random.default_rng(5)
    for unit in range(len(p["rows"])):
        law = Row(p, p["gates"], unit)
        ours, theirs = law.target(p["rows"][unit]), layer.target(p["rows"], unit)
        rows = p["rows"].copy()
        rows[unit] += rng.normal(size=rows.shape[1])
        np.testing.assert_allclose(
            law.target(rows[unit]) - ours,
            layer.target(rows, unit) - theirs,
            rtol=1e-8,
            atol=1e-8,
        )


def test_moves(layer):
    """Other proposals or ratios, gates not drawn afresh or not at their probability.

    Also an order in which a row is given gates or rows that are not up to date.
    """
    p = layer.arguments()
    for seed in range(3):
        given = noises(p, seed)
        rows, gates, acceptance, _ = slow_moves(p, *given)
        found, accepted = layer.draw(*given)
        np.testing.assert_allclose(accepted, acceptance, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(found[layer.gates], gates.T)
        for name, value in layer.put_rows(rows).items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-6)


def kernel_problem(seed, n_obs, units, d, m, samples, sharp=1.0):
    """Arrays without a model."""
    rng = np.random.default_rng(seed)
    inputs, rows = rng.normal(size=(n_obs, d)), rng.normal(size=(units, d))
    factors = {name: np.exp(rng.normal(size=(units, n_obs)) / 2) for name in ("logit", "level")}
    factors["logit"] *= sharp
    prior = np.exp(rng.normal(size=(units, d)))
    p = {
        "inputs": inputs,
        "rows": rows,
        "prior": prior,
        "prior_linear": prior * rng.normal(size=(units, d)),
        "gates": rng.integers(2, size=(units, n_obs)).astype(float),
    }
    for name, factor in factors.items():
        p[name] = factor * (rows @ inputs.T) + 0.2 * rng.normal(size=(units, n_obs))
        p[f"{name}_factor"] = factor
    return p | {
        "design": rng.normal(size=(m, units)),
        "weight": np.exp(rng.normal(size=(samples, m))),
        "response": rng.normal(size=(n_obs, m)),
        "variance": np.exp(rng.normal(size=units)) / 20,
    }


def kernel_draw(p, given):
    return kernels.move_gated_rows(*(p[name] for name in ARGUMENTS), *given)


SIZES = [(5, 3, 2, 1, 1, 1.0), (4, 1, 1, 2, 4, 1.0), (6, 2, 3, 3, 6, 1.0), (5, 2, 2, 2, 1, 8.0)]


@cache
def problems(size):
    """Arrays of some problems, random numbers, and what the slow move does with them."""
    found = []
    for seed in range(6):
        p = kernel_problem(seed, *size)
        given = noises(p, seed, passes=3)
        found.append((p, given, slow_moves(p, *given)))
    return found


def assert_as_slow(size):
    """Fail unless the kernel moves rows and gates as the slow move does."""
    probabilities = []
    for p, given, (rows, gates, acceptance, _) in problems(size):
        found = kernel_draw(p, given)
        np.testing.assert_allclose(found[0], rows, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[1], gates)
        np.testing.assert_allclose(found[2], acceptance, rtol=0, atol=1e-5)
        probabilities.extend(acceptance)
    assert np.ptp(probabilities) > 0.1


@pytest.mark.parametrize("size", SIZES)
def test_kernel(size):
    """The same, at sizes, factors and weights of each sample that models here do not have."""
    assert_as_slow(size)


def score_of_gates_lost(right, gate, *args):
    return right(gate._replace(logit_factor=0 * gate.logit_factor), *args)


def no_determinants(right, factor, new_factor, *args):
    ratios = np.diag(new_factor) / np.diag(factor)
    return right(factor, new_factor, *args) - np.log(ratios).sum()


def one_way(right, here, there, *args):
    return right(here, there._replace(step=0 * there.step), *args)


PLANTS = {
    "score of the gates lost": ("gated_log_likelihood", score_of_gates_lost),
    "no determinants": ("log_ratio_proposals", no_determinants),
    "one way": ("log_ratio_back", one_way),
    "gates of the old row": (
        "keep",
        lambda right, new, gate: right(new._replace(prob=gate.prob), gate),
    ),
    "gates not redrawn": (
        "redraw",
        lambda right, gate, uniform, mean, gates: gates * gate.level - mean,
    ),
    "own activations not removed": ("leave_out", lambda right, *args: None),
}
"""Parts of the kernel, and what stands in their place."""


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    in_python(monkeypatch, kernels)
    plant(monkeypatch, kernels, *PLANTS[error])
    with pytest.raises(AssertionError):
        assert_as_slow(SIZES[0])


def test_few_units_are_held_at_a_time(monkeypatch):
    """Whitened designs of other units, or residuals that are whitened again."""
    p = kernel_problem(0, 5, 5, 2, 3, 5)
    given = noises(p, 0, passes=3)
    expected = kernel_draw(p, given)
    for held in (1, 2):
        room = np.empty((len(p["design"]), held, len(p["weight"])))
        monkeypatch.setattr(kernels, "empty_whitened", lambda above, room=room: room)
        in_groups = of_arrays(MOVE.kernel.__wrapped__)
        found = in_groups(*(p[name] for name in ARGUMENTS), *given)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_gates_are_drawn_at_their_probability():
    """On both sides of it, where all other random numbers are the same."""
    p = kernel_problem(0, 5, 2, 2, 1, 1)
    rho, normal, refresh, uniform = noises(p, 0, passes=1)
    *_, chances = slow_moves(p, rho, normal, refresh, uniform)
    for factor, expected in [(1 - 1e-5, 1), (1 + 1e-5, 0)]:
        bounded = refresh.copy()
        bounded[0, -1] = chances[-1] * factor
        _, gates, _ = kernel_draw(p, (rho, normal, bounded, uniform))
        np.testing.assert_array_equal(gates[-1], expected)


def test_extreme_odds():
    """Overflow of an exponential: gates that are certain, on many samples."""
    p = kernel_problem(0, 2000, 2, 2, 1, 1, sharp=1e4)
    p["response"] *= 1e3
    rows, gates, acceptance = kernel_draw(p, noises(p, 0))
    assert np.isfinite(rows).all()
    assert set(np.unique(gates)) <= {0.0, 1.0}
    assert ((acceptance >= 0) & (acceptance <= 1)).all()


def test_rows_that_are_not_moved():
    p = kernel_problem(0, 5, 3, 2, 1, 1)
    _, *given = noises(p, 0)
    rows, gates, acceptance = kernel_draw(p, (np.array([1.0, 0.5, 1.0]), *given))
    np.testing.assert_array_equal(rows[[0, 2]], p["rows"][[0, 2]])
    np.testing.assert_array_equal(gates[[0, 2]], p["gates"][[0, 2]])
    np.testing.assert_array_equal(acceptance[[0, 2]], 1)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_nan_is_told(name):
    """A NaN that is taken for a certain acceptance, for a refusal, or stops the sweep."""
    p = kernel_problem(3, 6, 2, 3, 2, 1)
    p[name].flat[0] = np.nan
    rows, _, _ = kernel_draw(p, noises(p, 0))
    assert np.isnan(rows).any()


# --- what can be moved ----------------------------------------------------------------------------


def seen_behind_closed_gates():
    z = X @ pm.Normal("W1", shape=(2, 2))
    gamma = pm.Bernoulli("gamma1", logit_p=z)
    a = pm.Normal("a1", (0.1 + gamma) * z, 0.5)
    pm.Normal("y", a @ pm.Normal("w2", shape=2), 0.7, observed=Y[:, 0])


def noise_of_each_entry():
    z = X @ pm.Normal("W1", shape=(2, 2))
    a = pm.Normal("a1", pm.Bernoulli("gamma1", logit_p=z) * z, SPREAD[:, :2])
    pm.Normal("y", a @ pm.Normal("w2", shape=2), 0.7, observed=Y[:, 0])


REFUSED = [
    (gated_layers.weights_with_other_children, "W1 enters u besides gamma1 and a1"),
    (seen_behind_closed_gates, "a1 depends on W1 even where its gates are closed"),
    (noise_of_each_entry, "the noise of a1 differs between samples"),
]


def sweep_of(model, interweave="auto", **options):
    return graphs.sweep_of(model, interweave=interweave, passes=PASSES, rays=False, **options)


def moves(conditionals):
    return [c for c in conditionals if isinstance(c, InterwovenGates)]


@pytest.mark.parametrize(("build", "reason"), REFUSED, ids=[b.__name__ for b, _ in REFUSED])
def test_layers_that_cannot_be_moved(build, reason):
    model = built(build)
    conditionals = find_conditionals(model, model.free_RVs)
    with pytest.raises(NotConjugate, match=reason):
        match_interwoven_gates(named(conditionals, "a1"), conditionals, PASSES)
    assert not moves(sweep_of(model))
    with pytest.raises(
        ValueError, match=f"interweave is True, but gamma1 cannot be interwoven: {reason}"
    ):
        sweep_of(model, True)


def test_only_short_rows_of_large_layers_by_default(monkeypatch):
    model = bow_tie(2, X=np.random.default_rng(0).normal(size=(N, LONGEST_ROW)), y=Y[:, 0])
    assert len(moves(sweep_of(model))) == 1
    monkeypatch.setattr(moves_of_gates, "SMALL_LAYER", 2 * LONGEST_ROW)
    X_wide = np.random.default_rng(0).normal(size=(N, LONGEST_ROW))
    for columns, expected in [(LONGEST_ROW - 1, 1), (LONGEST_ROW, 0)]:
        model = bow_tie(2, X=X_wide[:, :columns], y=Y[:, 0])
        assert len(moves(sweep_of(model))) == expected
        assert len(moves(sweep_of(model, True))) == 1
        assert not moves(sweep_of(model, False))


ALONG = "W1 b1 gamma1 W2 b2 eta_sq1"
"""Draws of a trajectory of all weights of a layer."""

ONE = ["eta_sq1", "W1 b1 gamma1", ALONG, "eta_sq2", "a1", "W2 b2"]
TWO = ["eta_sq1", "Polya-Gamma", "W1 b1 gamma1", "a1", "eta_sq2", "W2 b2 gamma2",
       "W2 b2 gamma2 W3 b3 eta_sq2", "eta_sq3", "a1 a2", "W3 b3"]  # fmt: skip
MOVED = ["eta_sq1", "W1 b1 gamma1", ALONG, "a1", "W2 b2", "eta_sq2"]


@pytest.mark.parametrize(
    ("hidden", "collapse", "expected"),
    [((2,), "auto", ONE), ((3, 2), "auto", TWO), ((2,), False, MOVED)],
)
def test_sequence_of_draws(hidden, collapse, expected):
    """A move torn from its activations, and variables that are lost."""
    model = bow_tie(*hidden)
    for scan in ("sequential", "parallel"):
        sweep = sweep_of(model, True, scan=scan, collapse=collapse)
        assert sorted(names(sweep)) == sorted(expected)
        if scan == "sequential":
            assert names(sweep) == expected
        shapes = shapes_of(model)
        chained = chain_draws(model, sweep, pt.random.rng("rng"), shapes)
        assert set(chained.stored(model)) == set(model.value_vars)
        assert len(chained.acceptances) == len(hidden) + 1
        assert [move.n_tuned(shapes) for move in moves(sweep)] == list(hidden)


def test_a_move_without_fresh_activations_is_refused():
    model = bow_tie(2)
    sweep = [c for c in sweep_of(model, collapse=False) if names([c]) != ["a1"]]
    with pytest.raises(ValueError, match=r"given a1, which was integrated out of the draw of W1"):
        chain_draws(model, sweep, pt.random.rng("rng"), shapes_of(model))

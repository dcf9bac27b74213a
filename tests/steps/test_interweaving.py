"""Weights moved with their pre-activations: exactness, adaptation, options.

The joint distribution tests are at little noise, where the move decides what becomes of the
weights: at unit noise the draws given all else hide errors of it.
"""

import functools
import math
import types
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import compile as compile_graph
from pytensor.tensor.random.basic import NormalRV

import pymc_nnsteps as nns
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.laws import scales
from pymc_nnsteps.moves import interweaving, plan
from pymc_nnsteps.moves.interweaving import Interweaving
from pymc_nnsteps.moves.loops import interweaving as kernels
from pymc_nnsteps.steps import sweep
from pymc_nnsteps.steps.tuning import DualAveraging
from tests.cases import in_suite, release, slow
from tests.moves.in_python import of_arrays
from tests.steps.cases import assert_same, run
from tests.steps.joint import assert_joint
from tests.zoo import deep_network, regression, relu_network

X = np.random.default_rng(8).normal(size=(4, 2))
SHORT, LONG, RESTART = 5_000, 10_000, 50
MOVES = {"interweaving_acceptance", "interweaving_rho"}
FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


def network(n_outputs=None, **options):
    y = X[:, 0] if n_outputs is None else np.resize(X[:, 0], (n_outputs, 4)).T
    options = {"hidden": (2,), "noise": 0.05, "weight_precision": 0.5} | options
    return nns.intermediate_noise_mlp(X, y, **options)


def classifier(likelihood, labels):
    return nns.intermediate_noise_mlp(
        X, labels, hidden=(2,), noise=0.1, activation="leaky_relu", likelihood=likelihood
    )


def hard_tanh():
    """Kinks that are crossed often, which is what ratios of proposals' densities are about."""
    return network(3, activation="hard_tanh", weight_precision=None)


def learnt_noise():
    """Variances that the move is given, and that are drawn given what it has moved."""
    variance = nns.Prior(0.25, 10)
    return network(3, noise={"pre": variance, "post": variance, "output": variance})


def two_layers(n_outputs=None, **options):
    return network(n_outputs, hidden=(2, 2), **options)


# --- joint distributions -------------------------------------------------------------------


def by_hand():
    """Prior means, noise per unit and per sample, and a part of the mean that is not moved."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", [[0.6, -0.5], [0.8, 0.2]], [[0.8, 1.0], [0.5, 0.7]], shape=(2, 2))
        b1 = pm.Normal("b1", [0.4, -0.7], [0.5, 0.8], shape=2)
        skip = pm.Normal("skip", 0.3, 0.5, shape=2)
        Z = pm.Normal("Z", X @ W1 + b1, [0.3, 0.5], shape=(4, 2))
        A = pm.Normal("A", pt.clip(Z, -0.5, np.inf) - 0.5 + X * skip, [0.4, 0.2])
        W2 = pm.Normal("W2", 1.0, 0.5, shape=2)
        sigma = np.array([0.2, 0.5, 0.1, 0.8])
        pm.Normal("y", (A * W2).sum(axis=-1), sigma, observed=pm.Data("targets", np.zeros(4)))
    return model


def transposed():
    """Units before samples, and weights without an axis for the only unit."""
    with pm.Model() as model:
        w = pm.Normal("w", 0.5, 0.8, shape=2)
        Z = pm.Normal("Z", (X @ w)[None, :], 0.4, shape=(1, 4))
        A = pm.Normal("A", pt.switch(Z > 0.2, 1.5 * Z, 0.5 * Z), 0.3)
        v = pm.Normal("v", 1.0, 0.3, shape=2)
        pm.Normal("y", v[:, None] * A, 0.3, observed=pm.Data("targets", np.zeros((2, 4))))
    return model


def seen_twice():
    """Activations that another layer and the output see."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.2, 0.8, shape=(2, 2))
        Z1 = pm.Normal("Z1", X @ W1.T, 0.3)
        A1 = pm.Normal("A1", pt.maximum(Z1, 0), 0.3)
        W2 = pm.Normal("W2", 0.2, 0.8, shape=(2, 2))
        Z2 = pm.Normal("Z2", A1 @ W2.T, 0.3)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.3)
        w1 = pm.Normal("w1", 0.5, 0.8, shape=2)
        w2 = pm.Normal("w2", -0.5, 0.8, shape=2)
        pm.Normal("y", A1 @ w1 + A2 @ w2, 0.3, observed=pm.Data("targets", np.zeros(4)))
    return model


def logistic():
    """A likelihood that is Gaussian given Polya-Gamma variables, which the move must keep."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0.5, 0.8, shape=(2, 2))
        Z = pm.Normal("Z", X @ W1.T, 0.4)
        A = pm.Normal("A", pt.maximum(Z, 0), 0.3)
        W2 = pm.Normal("W2", 1.0, 3.0, shape=2)
        targets = pm.Data("targets", np.zeros(4, dtype=int))
        pm.Bernoulli("y", logit_p=A @ W2 - 1, observed=targets)
    return model


PARALLEL = {"scan": "parallel"}
JOINT = {
    "relu": (lambda: network(3), {}, {}),
    "relu, independent proposals": (network, {"rho": 1e-12}, {}),
    "hard tanh, independent proposals": (hard_tanh, {"rho": 1e-12}, {}),
    "abs, 3 outputs": (lambda: network(3, activation="abs"), {"rho": 1e-12}, {}),
    "leaky relu, short proposals": (
        lambda: network(activation="leaky_relu"),
        {"rho": 0.9, "passes": 1},
        {},
    ),
    "hard tanh, one unit": (
        lambda: network(3, activation="hard_tanh", hidden=(1,)),
        PARALLEL,
        {},
    ),
    "2 layers": (two_layers, {}, {}),
    "2 layers, identity": (lambda: two_layers(activation="identity"), {}, {}),
    "2 layers, hard tanh": (
        lambda: two_layers(3, activation="hard_tanh", bias=False),
        PARALLEL,
        {},
    ),
    "probit": (
        lambda: classifier("probit", [0, 1, 1, 0]),
        {"sweeps": 2},
        {"decide": lambda z: z[:, 0] > 0},
    ),
    "multinomial probit": (
        lambda: classifier("multinomial_probit", [0, 1, 2, 0]),
        {"sweeps": 2},
        {"decide": lambda z: z.argmax(1)},
    ),
    "by hand": (by_hand, {}, {}),
    "transposed": (transposed, {}, {}),
    "seen twice": (seen_twice, {}, {}),
    "logistic": (logistic, {"passes": 1}, {}),
    "learnt noise": (learnt_noise, {}, {}),
}


AVERAGES = (0.4, 6.0, 2.0, 4.0, 12.0, 1.0)
"""Numbers of the metric of trajectories, which move nothing without any."""


def interwoven(model, *, rho=0.5, decide=None, **options):
    """A step with proposals of this autocorrelation, whose chain starts anew now and then.

    At little noise data and weights hardly move, and statistics of one chain are no normal ones.
    A draw of everything from the joint distribution leaves it invariant as any transition should.
    """
    step = nns.Gibbs(model=model, interweave=True, **options)
    setup_chain, one_step = step.setup_chain, step.step
    variables = model.basic_RVs if decide is None else model.free_RVs
    anew = compile_graph([], variables, random_seed=1, mode="FAST_COMPILE")

    def setup_chain_at_rho(*args):
        setup_chain(*args)
        fixed = DualAveraging(0.5, math.log(1 / rho - 1))
        step.adaptations = (fixed,) * len(step.adaptations)
        step.averages = np.resize(AVERAGES, len(step.averages))

    def step_or_restart(point):
        if step.n_sweeps % (RESTART * step.sweeps) == 0:
            values = {rv.name: value for rv, value in zip(variables, anew(), strict=True)}
            point = {
                name: np.log(values[name.removesuffix("_log__")])
                if "_log__" in name
                else values[name]
                for name in point
            }
            last = values[variables[-1].name]
            container, new = model["targets"], last if decide is None else decide(last)
            container.set_value(new.astype(container.dtype))
        return one_step(point)

    step.setup_chain, step.step = setup_chain_at_rho, step_or_restart
    return step


SHORTER = ("relu", "abs, 3 outputs", "multinomial probit", "learnt noise", "by hand", "logistic")


@pytest.mark.parametrize(
    "case",
    ["2 layers, hard tanh", *in_suite([c for c in JOINT if c != "2 layers, hard tanh"], SHORTER)],
)
def test_joint_distribution(case):
    """A move that does not leave the posterior invariant, or that uses what it integrated out."""
    build, options, how = JOINT[case]
    model = build()
    step = interwoven(model, **options, **how)
    assert len(step.vars) == len(model.free_RVs)
    assert_joint(step, model, "targets", transitions=SHORT, seed=SHORT, **how)


# --- planted errors ------------------------------------------------------------------------


def wrong_argument(index, wrong):
    """An argument of the kernel that is not what it should be."""

    def plant(monkeypatch):
        def move(exact, *args):
            args = list(args)
            args[index] = wrong(args[index])
            return exact(*args)

        move_rows_by(monkeypatch, move)

    return plant


def move_rows_by(monkeypatch, move):
    """Let ``move`` be called for the kernel as an Op, with that first."""

    def planted(*kernel):
        return functools.partial(move, as_op(*kernel))

    monkeypatch.setattr(interweaving, "as_op", planted)


def less_than_half_of_the_squares(monkeypatch):
    """Variances that are drawn given too small errors."""
    role = scales.CHILDREN[NormalRV]
    wrong = replace(role, statistic=lambda z, mu, s: 0.3 * pt.sqr(z - mu))
    monkeypatch.setitem(scales.CHILDREN, NormalRV, wrong)


def no_determinants(monkeypatch):
    """The kernel without its only logarithm, that of the determinants' ratio."""

    def planted(name, **wrong):
        exact = getattr(kernels, name).__wrapped__
        made = types.FunctionType(exact.__code__, vars(kernels) | wrong)
        made.__annotations__ = exact.__annotations__
        return made

    without = types.SimpleNamespace(**vars(math) | {"log": lambda ratio: 0.0})
    proposals = planted("log_ratio_proposals", math=without)
    weights = planted("log_ratio_weights", log_ratio_proposals=proposals)
    move_rows = planted("move_rows", log_ratio_weights=weights)
    monkeypatch.setattr(kernels, "move_rows", of_arrays(move_rows))


def moves_after_the_fresh_draw(monkeypatch):
    """An order in which activations are used after they were integrated out."""
    exact = plan.order_scan

    def order(*args):
        ordered = exact(*args)
        for move in [c for c in ordered if isinstance(c, Interweaving)]:
            i = ordered.index(move)
            [fresh, *_] = [j for j in range(i, len(ordered)) if not ordered[j].integrates_out]
            ordered[i : fresh + 1] = [*ordered[i + 1 : fresh + 1], move]
        return ordered

    monkeypatch.setattr(plan, "order_scan", order)


def unchecked_order(monkeypatch):
    moves_after_the_fresh_draw(monkeypatch)
    monkeypatch.setattr(sweep, "check_scan", lambda *args: None)


PLANTS = {
    "always accepted": wrong_argument(-1, lambda uniform: 0 * uniform),
    "noise of the activations": wrong_argument(
        3, lambda above: above._replace(variance=0.02 * above.variance)
    ),
    "noise from above": wrong_argument(3, lambda above: above._replace(weight=0.1 * above.weight)),
    "prior": wrong_argument(0, lambda layer: layer._replace(prior=0.5 * layer.prior)),
    "no determinants": no_determinants,
    "order": unchecked_order,
    "learnt squares": less_than_half_of_the_squares,
}


LONG_TO_SEE = {
    "noise of the activations",
    "noise from above",
    "no determinants",
    "order",
    "learnt squares",
    "prior",
}


@pytest.mark.parametrize(
    "plant",
    [
        release(plant)
        if plant == "no determinants"
        else slow(plant)
        if plant in LONG_TO_SEE
        else plant
        for plant in PLANTS
    ],
)
def test_joint_distribution_test_sees_a_planted_error(plant, monkeypatch):
    """Draws of outgoing weights keep chains near the law, where the noise is taken for less."""
    PLANTS[plant](monkeypatch)
    case = {"noise": "by hand", "learnt": "learnt noise"}.get(plant.split()[0])
    build, options, _ = JOINT[case or "hard tanh, independent proposals"]
    model, transitions = build(), LONG if case == "by hand" else SHORT
    with pytest.raises(AssertionError, match="z-scores beyond"):
        assert_joint(interwoven(model, **options), model, "targets", transitions=transitions)


def test_invalid_order_is_refused(monkeypatch):
    """What the last of these errors comes from."""
    moves_after_the_fresh_draw(monkeypatch)
    with pytest.raises(ValueError, match="given X2, which was integrated out"):
        nns.Gibbs(model=network(3))


QUIET = {"progressbar": False, "quiet": True, "cores": 1, "chains": 2, "random_seed": 3}

# --- adaptation ----------------------------------------------------------------------------


def crossed_often(**options):
    """A network of which not all independent proposals are accepted."""
    x = np.random.default_rng(4).normal(size=(30, 2))
    y = np.clip(2 * x, -1, 1) @ [1.0, 0.3]
    options = {"hidden": (3,), "noise": 0.1} | options
    return nns.intermediate_noise_mlp(x, y, activation="hard_tanh", weight_precision=1.0, **options)


@pytest.fixture(scope="module")
def hard():
    model = crossed_often()
    return model, nns.Gibbs(model=model, **FAST)


def column(stats, name):
    return np.array([stat[name] for stat in stats])


@pytest.mark.slow
def test_rho_is_adapted_to_an_acceptance_of_one_half(hard):
    """Adaptation in the wrong direction, to another target, or one that does not end."""
    model, step = hard
    step.setup_chain(np.random.default_rng(1), 1_000, 2_000)
    points, tuning = run(step, model.initial_point(), 1_000)
    step.stop_tuning()
    kept = step.adaptations
    _, draws = run(step, points[-1], 2_000)
    assert len(set(column(tuning, "interweaving_rho"))) > 700
    [rho] = set(column(draws, "interweaving_rho"))
    assert 0.01 < rho < 0.9
    assert step.adaptations == kept
    for stats in (tuning[400:], draws):
        assert abs(column(stats, "interweaving_acceptance").mean() - 0.5) < 0.05


def test_where_all_is_accepted_proposals_become_independent():
    """Without kinks nothing is rejected, whatever is proposed: rho goes to zero."""
    model = network(activation="identity")
    step = nns.Gibbs(model=model, interweave=True, **FAST)
    step.setup_chain(np.random.default_rng(1), 200, 0)
    _, stats = run(step, model.initial_point(), 200)
    np.testing.assert_allclose(column(stats, "interweaving_acceptance"), 1, rtol=1e-9)
    assert 0 <= stats[-1]["interweaving_rho"] < 1e-3


def test_without_tuning_nothing_is_adapted(hard):
    model, _ = hard
    step = nns.Gibbs(model=model, **FAST)
    step.setup_chain(np.random.default_rng(1), 0, 20)
    _, stats = run(step, model.initial_point(), 20)
    assert set(column(stats, "interweaving_rho")) == {0.5}


def test_what_was_tuned_is_kept_by_chains_without_tuning(hard):
    """A chain that goes on from the last point of another, with the same step."""
    model, _ = hard
    step = nns.Gibbs(model=model, **FAST)
    options = {"model": model, "step": step, "compute_convergence_checks": False, **QUIET}
    first = pm.sample(20, tune=40, **options)
    last = first["posterior"].isel(draw=-1)
    starts = [
        {rv.name: last[rv.name].sel(chain=chain).values for rv in model.free_RVs}
        for chain in last["chain"].values
    ]
    more = pm.sample(5, tune=0, initvals=starts, **options)
    [kept] = set(first["sample_stats"]["interweaving_rho"].isel(chain=-1).values)
    assert kept != 0.5
    np.testing.assert_array_equal(more["sample_stats"]["interweaving_rho"], kept)


def test_each_chain_is_adapted_afresh(hard):
    model, step = hard
    first = []
    for _ in range(2):
        step.setup_chain(np.random.default_rng(1), 20, 20)
        _, stats = run(step, model.initial_point(), 20)
        first.append(stats)
    assert first[0] == first[1]
    assert first[0][5]["interweaving_rho"] == 0.5
    assert first[0][-1]["interweaving_rho"] != 0.5


@pytest.mark.parametrize(("tune", "sweeps", "warm_up"), [(3, 1, 0), (40, 1, 10), (400, 3, 200)])
def test_chains_that_are_tuned_start_with_plain_sweeps(tune, sweeps, warm_up, hard):
    """Moves from zero weights, which find a poor fit first; sweeps counted as draws."""
    model, _ = hard
    step = nns.Gibbs(model=model, sweeps=sweeps, **FAST)
    step.setup_chain(np.random.default_rng(1), tune, 10)
    draws = -(-warm_up // sweeps) + 2
    _, stats = run(step, model.initial_point(), draws)
    rho, acceptance = (column(stats, f"interweaving_{name}") for name in ("rho", "acceptance"))
    np.testing.assert_array_equal(rho == 1, np.arange(1, draws + 1) * sweeps <= warm_up)
    np.testing.assert_array_equal(acceptance[rho == 1], 1)


def test_a_plain_sweep_moves_nothing_at_all(hard):
    """A move that is made, or a generator that is used, although its proposals are the state."""
    model, step = hard
    step.setup_chain(np.random.default_rng(1), 400, 10)
    warm, _ = run(step, model.initial_point(), 3)
    step.setup_chain(np.random.default_rng(1), 400, 10)
    step.adaptations = (DualAveraging(0.5, -700.0),) * len(step.adaptations)
    step.warm_up = 0
    still, stats = run(step, model.initial_point(), 1)
    assert stats[0]["interweaving_rho"] == 1
    assert_same(warm[:1], still)


def test_adaptation_is_part_of_the_state(hard):
    """A chain that is resumed, in another process, while it is tuned."""
    model, step = hard
    step.setup_chain(np.random.default_rng(1), 50, 20)
    points, _ = run(step, model.initial_point(), 30)
    other = nns.Gibbs(model=crossed_often(), **FAST)
    other.sampling_state = step.sampling_state
    ends = []
    for each in (step, other):
        tuned, tuning = run(each, points[-1], 20)
        each.stop_tuning()
        drawn, stats = run(each, tuned[-1], 20)
        ends.append((tuned + drawn, tuning + stats))
    assert_same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_each_unit_has_a_rho_of_its_own():
    """A unit of either layer is adapted by its own acceptance, not by the mean of all."""
    model = crossed_often(hidden=(3, 2))
    step = nns.Gibbs(model=model, **FAST)
    step.setup_chain(np.random.default_rng(1), 300, 100)
    assert len(step.adaptations) == 6
    points, _ = run(step, model.initial_point(), 300)
    rho = [1 / (1 + math.exp(a.average)) for a in step.adaptations[:5]]
    assert len(set(rho)) == 5
    assert np.ptp(rho) > 0.05
    step.stop_tuning()
    _, [stats] = step.step(points[-1])
    assert stats["interweaving_rho"] == pytest.approx(np.mean(rho))


# --- options and statistics ----------------------------------------------------------------


def test_passes_are_that_many_moves(monkeypatch):
    """With sweeps: passes within each of them."""
    seen = []
    move_rows_by(monkeypatch, lambda exact, *args: seen.append(args[-2:]) or exact(*args))
    model = network()
    once, thrice = (
        nns.Gibbs(model=model, passes=np.int64(2), sweeps=sweeps, **FAST) for sweeps in (1, 3)
    )
    assert [[array.type.shape[0] for array in arrays] for arrays in seen] == [[2, 2], [2, 2]]
    for step, tune in ((once, 6), (thrice, 2)):
        step.setup_chain(np.random.default_rng(0), tune, 5)
    points, stats = run(once, model.initial_point(), 6)
    thinned, thinned_stats = run(thrice, model.initial_point(), 2)
    assert_same(thinned, points[2::3])
    for name in MOVES:
        means = column(stats, name).reshape(2, 3).mean(axis=1)
        assert column(thinned_stats, name) == pytest.approx(means)


WITH = {
    "auto": (relu_network, {}),
    "required": (relu_network, {"interweave": True}),
    "2 layers": (deep_network, {"interweave": "auto"}),
}
WITHOUT = {
    "refused": (relu_network, {"interweave": False}),
    "regression": (regression, {}),
    "sign": (lambda: network(activation="sign"), {}),
    "weights alone": (relu_network, {"vars": ["W1", "b1", "Z2"]}),
}


@pytest.mark.parametrize("case", WITH | WITHOUT)
def test_statistics_are_there_if_there_is_a_move(case, monkeypatch):
    """Statistics are in the trace, of PyMC's types, and in the progress bar."""
    monkeypatch.setenv("COLUMNS", "120")
    build, options = (WITH | WITHOUT)[case]
    model = build()
    step = nns.Gibbs(model=model, **options, **FAST)
    step.setup_chain(np.random.default_rng(0), 5, 5)
    _, stats = run(step, model.initial_point(), 5)
    columns, initial = step._progressbar_config(2)
    titles = [each.get_table_column().header for each in columns]
    [update] = step._make_progressbar_update_functions()
    if case in WITHOUT:
        assert stats[0].keys() == {"n_sweeps"}
        assert titles == ["Sweeps"]
        assert update(stats[0]) == {"n_sweeps": 1}
        return
    assert stats[0].keys() == {"n_sweeps"} | MOVES
    assert titles == ["Accept", "Sweeps"]
    assert initial.keys() == update(stats[0]).keys()
    assert update(stats[0])["interweaving_acceptance"] == stats[0]["interweaving_acceptance"]
    for name in MOVES:
        assert step.stats_dtypes_shapes[name] == (np.float64, [])
        assert {np.asarray(stat[name]).dtype for stat in stats} == {np.dtype("float64")}
    acceptance, rho = (column(stats, f"interweaving_{name}") for name in ("acceptance", "rho"))
    assert np.all((acceptance >= 0) & (acceptance <= 1))
    assert rho[0] == 1
    assert np.all((rho[1:] >= 0) & (rho[1:] < 1))


def test_auto_leaves_long_rows_alone(monkeypatch):
    """A cost that grows with the square of the number of inputs, unasked for."""
    monkeypatch.setattr(interweaving, "LONGEST_ROW", 2)
    model = network()
    assert set(nns.Gibbs(model=model, **FAST).stats_dtypes_shapes) == {"n_sweeps"}
    required = nns.Gibbs(model=model, interweave=True, **FAST)
    assert set(required.stats_dtypes_shapes) > MOVES
    monkeypatch.setattr(interweaving, "LONGEST_ROW", 3)
    assert set(nns.Gibbs(model=model, **FAST).stats_dtypes_shapes) > MOVES


@pytest.mark.parametrize("interweave", ["yes", None, 1, 0.0, [True]])
def test_bad_interweave(interweave):
    with pytest.raises(ValueError, match='interweave must be True, False or "auto"; got'):
        nns.Gibbs(model=network(), interweave=interweave)


@pytest.mark.parametrize("passes", [0, -1, 1.5, True, "2", None])
def test_bad_passes(passes):
    with pytest.raises(ValueError, match="passes must be a positive integer; got"):
        nns.Gibbs(model=network(), passes=passes)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (regression, "no pre-activations behind a piecewise-linear activation"),
        (
            lambda: network(activation="sign"),
            "Z2 cannot be interwoven: the mean of X2 is piecewise constant",
        ),
    ],
    ids=["regression", "sign"],
)
def test_impossible_move(build, reason):
    with pytest.raises(ValueError, match=f"interweave is True, but {reason}.*auto"):
        nns.Gibbs(model=build(), interweave=True)

"""What PyMC expects of a step method, checked of every step of the package alike."""

import copy
import pickle
from dataclasses import fields
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import Competence
from pytensor.compile.sharedvalue import SharedVariable

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.runs.run import restore, state_of
from pymc_nnsteps.steps.imputed_levels import ImputedLevels
from tests.cases import quick, release, slow
from tests.steps.cases import CASES, assert_same, run
from tests.zoo import X, bow_tie_network

RESERVED_STATS = {"acceptance_rate", "accepted", "lp", "tree_depth", "n_steps", "accept", "tune"}
QUICK = set(CASES) - {"gibbs-relu", "gibbs-deep", "pcn-network", "mala-process", "hmc-scales"}
ONE_OF_EACH_CLASS = [
    "gibbs-regression",
    "pcn-process",
    "pcnl-process",
    "mala-process",
    "hmc-network",
]


@pytest.fixture(scope="module", params=quick(CASES, QUICK))
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def model(case):
    return case.build()


@pytest.fixture(scope="module")
def first_point(model):
    return model.initial_point()


@pytest.fixture
def start(first_point):
    return copy.deepcopy(first_point)


@pytest.fixture(scope="module")
def step(case, model, first_point):
    return case.make(model, initial_point=first_point)


@pytest.fixture
def point(step, start):
    """A few steps into a chain."""
    step.setup_chain(np.random.default_rng(0), 10, 10)
    return run(step, start, 3)[0][-1]


# --- state and seeds -----------------------------------------------------------------------


def test_state_round_trip(step, point):
    """Something the step remembers that its state does not name."""
    state = copy.deepcopy(step.sampling_state)
    points, stats = run(step, point, 4)
    step.sampling_state = state
    again = run(step, point, 4)
    assert_same(again[0], points)
    assert again[1] == stats
    other = cloudpickle.loads(cloudpickle.dumps(step))
    other.setup_chain(np.random.default_rng(9), 10, 10)
    run(other, point, 2)
    other.sampling_state = state
    again = run(other, point, 4)
    assert_same(again[0], points)
    assert again[1] == stats


def test_goes_on_from_checkpoints(step, start):
    """Checkpoints in tuning, at its end and after it; the step moves another chain between."""

    def chain(breaks):
        step.setup_chain(np.random.default_rng(8), 6, 6)
        step.tune = True
        point, points = start, []
        for draw in range(12):
            if draw == 6:
                step.stop_tuning()
            point, _ = step.step(point)
            points.append(point)
            if draw in breaks:
                kept = pickle.dumps((state_of(step), point))
                step.setup_chain(np.random.default_rng(9), 0, 2)
                run(step, start, 2)
                state, point = pickle.loads(kept)
                restore(step, state)
        return points

    assert_same(chain({1, 5, 7}), chain(()))


def test_state_names_what_changes(step, point):
    """An attribute that a chain leaves behind for the next one."""
    before = _leaves(step)
    step.tune = not getattr(step, "tune", True)  # PyMC's sequential sampling does
    run(step, point, 3)
    after = _leaves(step)
    assert before.keys() <= after.keys()
    changed = {path for path in before if not _equal(before[path], after[path])}
    named = {field.name for field in fields(step._state_class)}
    assert {path.split(".")[0] for path in changed} - {"tune"} <= named
    assert "rng" in {path.split(".")[0] for path in changed}


def _leaves(owner, prefix=""):
    """Plain values that an object of the package holds, however deep."""
    found = {}
    for name, value in vars(owner).items():
        path = prefix + name
        if isinstance(value, np.random.Generator):
            found[path] = copy.deepcopy(value.bit_generator.state)
        elif type(value).__module__.startswith("pymc_nnsteps") and hasattr(value, "__dict__"):
            found.update(_leaves(value, path + "."))
        elif isinstance(value, list) and all(isinstance(v, SharedVariable) for v in value):
            found[path] = [v.get_value() for v in value]
        elif isinstance(value, int | float | str | bool | np.ndarray | np.generic | list | dict):
            found[path] = copy.copy(value)
    return found


def _equal(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    return a is b or a == b


def test_setup_chain_starts_afresh(step, start):
    """A counter, a cache or a generator that survives from the chain before."""
    step.setup_chain(np.random.default_rng(3), 5, 5)
    points, stats = run(step, start, 4)
    step.setup_chain(np.random.default_rng(4), 5, 5)
    others, _ = run(step, start, 4)
    step.setup_chain(np.random.default_rng(3), 5, 5)
    again = run(step, start, 4)
    assert_same(again[0], points)
    assert again[1] == stats
    name, are_same = step.vars[0].name, np.all if step.vars[0].dtype == "int64" else np.any
    assert not are_same(others[-1][name] == points[-1][name])
    assert not are_same(points[-1][name] == start[name])


def test_setup_chain_takes_the_generator_it_is_given(step, start):
    generator = np.random.default_rng(3)
    step.setup_chain(generator, 5, 5)
    before = generator.bit_generator.state
    step.step(start)
    assert step.rng is generator
    assert generator.bit_generator.state != before


@pytest.mark.parametrize("key", ONE_OF_EACH_CLASS)
def test_generators_at_construction(key):
    """Each step has one of its own, unless it is given one."""
    model = CASES[key].build()
    start = model.initial_point()
    step, other, given = (
        CASES[key].make(model, initial_point=start, **options)
        for options in ({}, {}, {"rng": np.random.default_rng(5)})
    )
    name = step.vars[0].name
    one, another = (run(each, start, 4)[0][-1] for each in (step, other))
    assert not np.any(one[name] == another[name])
    step.setup_chain(np.random.default_rng(5), 1, 5)
    assert_same(run(given, start, 2)[0], run(step, start, 2)[0])
    given.setup_chain(np.random.default_rng(7), 5, 5)
    given.rng = np.random.default_rng(5)
    step.setup_chain(np.random.default_rng(5), 5, 5)
    assert_same(run(given, start, 2)[0], run(step, start, 2)[0])


def test_pickle_round_trip(step, point):
    """What spawn and forkserver do to a step."""
    other = cloudpickle.loads(cloudpickle.dumps(step))
    assert [v.name for v in other.vars] == [v.name for v in step.vars]
    for each in (step, other):
        each.setup_chain(np.random.default_rng(8), 10, 10)
    assert_same(run(other, point, 3)[0], run(step, point, 3)[0])


# --- points --------------------------------------------------------------------------------


def test_new_point_is_like_the_old_one(step, start, point):
    """Reordered keys land in other variables' columns; shapes broadcast and dtypes cast."""
    frozen = {name: value.copy() for name, value in point.items()}
    for value in point.values():
        value.flags.writeable = False
    new = run(step, point, 4)[0][-1]
    assert list(new) == list(point) == list(start)
    drawn = {variable.name for variable in step.vars} | set(getattr(step, "moved", ()))
    assert drawn <= set(point)
    for name, value in point.items():
        np.testing.assert_array_equal(value, frozen[name], strict=True)
        assert isinstance(new[name], np.ndarray)
        assert new[name].shape == value.shape
        assert new[name].dtype == value.dtype
        assert np.isfinite(new[name]).all()
        if name not in drawn:
            np.testing.assert_array_equal(new[name], value)
        elif value.dtype.kind == "f":
            assert not np.any(new[name] == value)


def test_point_may_be_overwritten_in_place(step, point):
    """Worker processes reuse the memory of the point, and the next step that of its results."""
    kept, _ = step.step(point)
    frozen = copy.deepcopy(kept)
    handed_over = copy.deepcopy(kept)
    new, _ = step.step(handed_over)
    expected = copy.deepcopy(new)
    drawn = [variable.name for variable in step.vars]
    for value in handed_over.values():
        value[...] = 7
    run(step, kept, 3)
    assert_same([kept], [frozen])
    for name in drawn:
        np.testing.assert_array_equal(new[name], expected[name])


def test_draws_stay_in_the_support(step, model, point):
    logp = model.compile_logp(mode="FAST_COMPILE")
    for each in run(step, point, 5)[0]:
        assert np.isfinite(logp(each))


# --- statistics ----------------------------------------------------------------------------


def test_declared_statistics_are_returned(step, point):
    declared = step.stats_dtypes_shapes
    assert declared
    assert not RESERVED_STATS & set(declared)
    _, stats = step.step(point)
    assert isinstance(stats, list)
    assert len(stats) == 1
    assert stats[0].keys() == declared.keys()
    for name, value in stats[0].items():
        dtype, shape = declared[name]
        if shape == []:
            assert np.shape(value) == ()
            assert np.asarray(value).dtype == np.dtype(dtype)
        else:
            assert dtype is object


def test_progress_bar(step, point):
    columns, initial = step._progressbar_config(3)
    assert all(len(values) == 3 for values in initial.values())
    [update] = step._make_progressbar_update_functions()
    _, [stats] = step.step(point)
    shown = update(stats)
    assert set(shown) - {"failing"} == set(initial)
    for column in columns:
        for task in ({name: values[0] for name, values in initial.items()}, shown):
            assert column.text_format.format(task=SimpleNamespace(fields=task))


# --- precision and backends ----------------------------------------------------------------


@pytest.mark.parametrize("case", [*ONE_OF_EACH_CLASS, slow("gibbs-deep")], indirect=True)
def test_float32(case, step):
    """The same move as in double precision, but for the rounding of its state."""
    with pytensor.config.change_flags(floatX="float32"):
        model = case.build()
        first = model.initial_point()
        single = case.make(model, initial_point=first)
        single.setup_chain(np.random.default_rng(0), 5, 5)
        points, _ = run(single, first, 20)
        for variable in single.vars:
            assert variable.dtype in ("float32", "int64")
            assert points[-1][variable.name].dtype == variable.dtype
    start = {k: v if v.dtype == "int64" else v.astype("float64") for k, v in points[-1].items()}
    ends = []
    for each, point in ((single, points[-1]), (step, start)):
        each.setup_chain(np.random.default_rng(0), 5, 5)
        ends.append(run(each, point, 1)[0][0])
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-3, atol=1e-3, err_msg=name)


def assert_one_stream(step, other, start, floatX, rtol):
    """The random numbers are the same bits; what they are added to is rounded by another BLAS.

    A tiny acceptance probability carries the absolute rounding of two log densities.
    """
    ends = []
    for each in (step, other):
        each.setup_chain(np.random.default_rng(0), 5, 5)
        points, stats = run(each, start, 5)
        ends.append((points[-1], stats[-1], each.rng.bit_generator.state))
    (point, stats, state), (expected, stats_expected, state_expected) = ends
    assert state == state_expected
    assert stats == pytest.approx(stats_expected, rel=rtol, abs=rtol)
    for name, value in point.items():
        assert value.dtype == expected[name].dtype
        assert value.dtype in (floatX, "int64")
        np.testing.assert_allclose(value, expected[name], rtol=rtol, atol=rtol, err_msg=name)


def test_python_draws_from_the_same_stream(case, step, model, start):
    """Other arithmetic, another order of draws, or another number of them."""
    options = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "initial_point": start}
    assert_one_stream(step, case.make(model, **options), start, "float64", 1e-9)


SMALLER = {
    "gibbs-bow-tie": lambda: bow_tie_network(hidden=(2,)),
    "gibbs-relu": lambda: nns.intermediate_noise_mlp(
        X, X[:, 0], hidden=(2,), noise=0.2, bias=False
    ),
}
"""With fewer parts, on each of which Numba spends many seconds."""


@pytest.mark.parametrize(
    ("key", "floatX", "rtol"),
    [
        ("pcn-process", "float64", 1e-9),
        slow("hmc-network", "float64", 1e-9),
        *(release(key, "float64", 1e-9) for key in ("gibbs-relu", "gibbs-bow-tie")),
        slow("gibbs-regression", "float32", 1e-3),
    ],
)
def test_numba_draws_from_the_same_stream(key, floatX, rtol):
    with pytensor.config.change_flags(floatX=floatX):
        model = SMALLER.get(key, CASES[key].build)()
        start = model.initial_point()
        step, other = (
            CASES[key].make(model, initial_point=start, **options)
            for options in ({}, {"compile_kwargs": {"mode": "NUMBA"}})
        )
        assert_one_stream(step, other, start, floatX, rtol)


def test_reductions_in_the_default_mode():
    """A fused reduction, run by an implementation that does not know of the fusion."""
    x, v = pt.matrix("x"), pt.vector("v")
    expressions = [
        *(
            reduce(f(x), axis=axis)
            for f in (pt.sqr, pt.exp, abs)
            for reduce in (pt.sum, pt.max)
            for axis in (None, 0, 1)
        ),
        pt.sqr(v).sum(),
        (1 + v).prod(),
        pt.sqr(x - v).sum(0),
        (x * v).sum(-1),
        pt.mean(pt.sqr(x)),
        pt.any(x > 1, axis=0),
        pt.argmax(abs(x), axis=1),
        pt.logsumexp(x, axis=1),
    ]
    data = np.random.default_rng(0)
    values = [data.normal(size=shape).astype(pytensor.config.floatX) for shape in ((4, 3), 3)]
    by_default = pytensor.function([x, v], expressions, **c_by_default())(*values)
    expected = pytensor.function([x, v], expressions, mode="FAST_COMPILE")(*values)
    for result, reference in zip(by_default, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-10)


# --- assignment ----------------------------------------------------------------------------


def test_registered_once(step):
    """Twice, or a step that is only for those who ask for it."""
    by_itself = nns.Gibbs, nns.HMC, nns.PCNL, ImputedLevels
    assert STEP_METHODS.count(type(step)) == (type(step) in by_itself)


def test_competence_outside_of_sampling(step, model):
    """No model to look at: a TypeError here becomes a misleading message in pm.sample."""
    for rv in model.free_RVs:
        assert type(step).competence(rv, True) == Competence.INCOMPATIBLE
        assert type(step)._competence([rv], [True]) == [Competence.INCOMPATIBLE]

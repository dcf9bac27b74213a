"""Kernels in C++ and by Numba."""

import importlib
import pkgutil
from typing import NamedTuple

import numpy as np
import pytest

import pymc_nnsteps
from pymc_nnsteps.compile import linear_algebra, translation
from pymc_nnsteps.compile.jit import Kernel, inline, jit
from pymc_nnsteps.gaussian import labels
from pymc_nnsteps.random.truncated_normal import truncated_normal_kernel
from tests.moves.in_python import of_arrays


@jit
def kept_from_round_to_round(x):
    for i in range(len(x)):
        if i == 0:
            first = x[0]
        x[i] = first
    return x


def test_what_a_branch_of_a_loop_need_not_set_is_refused():
    """A kernel that keeps a value for all draws once gave zeros from the second draw on."""
    with pytest.raises(translation.UntranslatableError, match="set first before the loop"):
        translation.source(kept_from_round_to_round.__wrapped__)


@pytest.mark.slow
def test_both_compilers_do_the_same_arithmetic():
    """A kernel with products, branches, parts of arrays and errors, and one that draws."""
    rng = np.random.default_rng(0)
    design, weight = rng.normal(size=(9, 4)), rng.gamma(2.0, size=(3, 9))
    score, linear, noise = (rng.normal(size=(3, n)) for n in (9, 4, 4))
    given = design, weight, score, linear, np.ones((3, 4)), np.zeros((1, 1)), noise
    found, expected = (f(*given) for f in (labels.draw_labels, labels.draw_labels.numba))
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    kernel = truncated_normal_kernel
    given = np.zeros(500), np.ones(1), np.full(1, 0.5), np.array([np.inf])
    draws = [f(np.random.default_rng(1), *given, np.empty(500)) for f in (kernel, kernel.numba)]
    np.testing.assert_array_equal(*draws)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        linear_algebra.factorise(-np.eye(2))


DIGITS = (1.0, 2.0, 3.0)


@jit
def arithmetic(x, single, k, rng):
    """What C++ would do otherwise if operators and slices were left to it."""
    out = np.zeros(17)
    out[0], out[1], out[2], out[3] = -7 // k[0], -7 % k[0], 7 // -k[0], 7 % -k[0]
    out[4], out[5] = k[0] / 2, k[0] * single[0]
    out[6], out[7] = x[:-1].max(), x[-2:].max()
    out[8] = len(x[5:2]) + len(x[3:99])
    part = x[1:3]
    x = np.zeros(3)
    out[9] = part.max() + x.max()
    for i in range(4, 0, -k[0]):
        out[10] = 10 * out[10] + i
    x[0], x[1] = 1.0, 2.0
    x[1:] = x[:2]
    out[11] = 10 * x[1] + x[2]
    out[12] = (single * 0.1 + single).max()
    out[13] = k[1] if k[0] > 2 else single[0]
    out[14] = rng.random() - 0.5
    for digit in DIGITS:
        out[15] = 10.0 * out[15] + digit
    bits = np.float64(out[12]).view(np.int64) + (k[0] << 52)
    out[16] = np.int64(bits).view(np.float64)
    return out


def test_arithmetic_is_that_of_python():
    """Integers below zero, parts from the end, parts of an array that is gone, overlaps."""
    x, single, k = np.arange(5.0), np.array([0.1, 16777217.3], np.float32), np.array([2, 2**53 - 1])
    found, expected, by_numba = (
        f(x, single, k, np.random.default_rng(1))
        for f in (arithmetic, arithmetic.__wrapped__, arithmetic.numba)
    )
    np.testing.assert_array_equal(found, by_numba)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


class Line(NamedTuple):
    at: np.ndarray
    slope: np.ndarray


@jit
def steeper(line: Line, by) -> Line:
    return Line(line.at, by * line.slope)


@jit
def named_tuples(k: int, line: Line, other: Line, x):
    twice = steeper(line, 2.0)
    line.at[0] = 7.0
    both = Line(twice.at, twice.slope + other.slope)
    for i in range(len(x)):
        x[i] = both.at[i] + 10.0 * both.slope.size * x[i] + k * other.at.shape[0]
    return both.slope, x


def test_named_tuples():
    """A field that is taken for its neighbour, or that is a copy of the array it was made of."""
    rng = np.random.default_rng(0)
    given = [3, *(rng.normal(size=4) for _ in range(5))]
    ways = named_tuples, of_arrays(named_tuples.__wrapped__), named_tuples.numba_of_arrays
    found = [way(*(np.copy(each) if np.ndim(each) else each for each in given)) for way in ways]
    for slope, x in found[1:]:
        np.testing.assert_allclose(slope, found[0][0])
        np.testing.assert_allclose(x, found[0][1])
    assert found[0][1][0] == pytest.approx(7.0 + 40.0 * given[5][0] + 12.0)


def test_an_index_below_zero():
    @jit
    def last(x):
        return x[-1]

    with pytest.raises(translation.UntranslatableError, match="'-1' in the kernel last"):
        translation.source(last.__wrapped__)


def wider(x):
    total = 0
    for i in range(len(x)):
        total += x[i]
    return total


def one_of_two(x):
    return x[0] or 2.0


def in_single_precision(x):
    total = x[0]
    total = total + 0.1
    return total


@pytest.mark.parametrize(
    ("function", "dtype"),
    [(wider, "float64"), (one_of_two, "float64"), (in_single_precision, "float32")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_the_compiler_refuses(function, dtype):
    """A sum of floats in an integer lost all digits; Numba takes the wider type."""
    with pytest.raises(RuntimeError, match=r"a name keeps its type|use of deleted function"):
        jit(function)(np.full(3, 0.4, dtype))


def with_step(x):
    return x[::2]


def leaves_a_tuple_early(x):
    for digit in DIGITS:
        if x[0] > digit:
            break


def with_else(x):
    for i in range(3):
        x[i] = 0.0
    else:
        x[0] = 1.0


def moves_its_own_count(x):
    for i in range(3):
        i += 1
        x[i] = 0.0


def counts_in_a_name_in_use(x):
    i = 7
    for i in range(3):
        x[i] = 0.0
    return i


def draws_in_any_order(x, rng):
    return rng.random() - rng.random()


def reduces_along_an_axis(x):
    return x.max(0)


def draws_between_bounds(x, rng):
    return 0.0 < np.sqrt(x[0]) < 1.0


REFUSED = [
    with_step,
    leaves_a_tuple_early,
    with_else,
    moves_its_own_count,
    counts_in_a_name_in_use,
    draws_in_any_order,
    reduces_along_an_axis,
    draws_between_bounds,
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_would_be_left_out_is_refused(function):
    """Each of these was translated to something else without a word."""
    with pytest.raises(translation.UntranslatableError, match=function.__name__):
        translation.source(function)


def test_what_is_not_known_is_refused():
    @jit
    def kernel(x):
        return np.fft.fft(x)

    with pytest.raises(translation.UntranslatableError, match="fft"):
        translation.source(kernel.__wrapped__)


def test_parts_of_arrays_are_returned_as_copies():
    """The first rows of an argument were once all of it, and parts of what is gone anything."""

    @jit
    def parts(x):
        y = np.ones(4)
        return x[:1], x, y[1:3], x[1]

    x = np.arange(6.0).reshape(2, 3)
    first, whole, ones, last = parts(x)
    assert whole is x
    x += 1.0
    for found, expected in ((first, [[0, 1, 2]]), (ones, [1, 1]), (last, [3, 4, 5])):
        np.testing.assert_array_equal(found, expected)


def test_all_kernels_are_translated():
    """A kernel whose first call, on a rare path, says that C++ has no words for it."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(pymc_nnsteps.__path__, "pymc_nnsteps.")
    ]
    found = {k for module in modules for k in vars(module).values() if isinstance(k, Kernel)}
    assert len(found) > 80
    for kernel in found:
        assert translation.source(kernel.__wrapped__)


RATE, TABLE = 2.0, np.arange(3.0)


class Pair(NamedTuple):
    a: float
    b: float


class Other(NamedTuple):
    b: float
    a: float


def scaled(x: float) -> float:
    return RATE * x


def shifted(x: float) -> float:
    return RATE + x


callee = inline(scaled)


def caller(pair: Pair) -> float:
    """A constant, a table, a tuple, and a kernel."""
    return callee(pair.a) + TABLE[0]


OTHERS = {
    "a constant of what is called": {"RATE": 3.0},
    "a table": {"TABLE": np.arange(4.0)},
    "what is called": {"callee": inline(shifted)},
    "how it is called": {"callee": jit(scaled)},
    "entries of a tuple": {"Pair": Other},
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_key_of_a_kernel_covers_what_it_uses(monkeypatch, name):
    """Machine code of before, where something that it was made of has changed."""
    before = jit(caller).digest
    assert before == jit(caller).digest
    for own, value in OTHERS[name].items():
        monkeypatch.setitem(globals(), own, value)
    monkeypatch.setitem(caller.__annotations__, "pair", Pair)
    monkeypatch.delitem(vars(callee), "digest", raising=False)
    assert jit(caller).digest != before


def test_the_key_of_a_kernel_is_not_that_of_its_docs(monkeypatch):
    """All machine code out of date with a word."""
    before = jit(caller).digest
    code = caller.__code__.replace(co_consts=("Another text.", *caller.__code__.co_consts[1:]))
    monkeypatch.setattr(caller, "__code__", code)
    monkeypatch.setattr(caller, "__doc__", "Another text.")
    assert jit(caller).digest == before

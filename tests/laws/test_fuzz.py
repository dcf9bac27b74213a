"""Random models: what a reader accepts is exact, and what it declines it declines by NotConjugate.

The short run is the same in every run of the tests; the long one takes other seeds. A failing
case is printed as the smallest program that fails in the same way.
"""

from dataclasses import replace

import pytensor.tensor as pt
import pytest
from pytensor.scalar import basic as scalar
from pytensor.tensor.random.basic import NormalRV

from pymc_nnsteps.graphs import affine, rearranging
from pymc_nnsteps.graphs import piecewise_linear as pieces
from pymc_nnsteps.graphs.linear_terms import scale
from pymc_nnsteps.laws import scales
from tests.laws.fuzz import FAMILIES, check, failure_of, minimal, random_case

SHORT, LONG = 4, 12
"""Cases of a family."""


def run(family, seeds):
    reports = []
    for seed in seeds:
        case = random_case(family, seed)
        failure = failure_of(case)
        if failure is not None:
            smallest = minimal(case, failure) if len(reports) < 3 else failure
            reports.append(f"# {family}, seed {seed}\n{smallest}")
    assert not reports, "\n\n".join(["", *reports])


@pytest.mark.parametrize("family", ["gates", "extreme"])
def test_a_few_random_models(family):
    run(family, range(SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_models(family):
    run(family, range(LONG))


def _clip_in_the_other_order(patch):
    larger, smaller = (pieces.OPERATIONS[op] for op in (scalar.Maximum, scalar.Minimum))

    def clip(z, f, low, high):
        return smaller(z, larger(z, f, low), high)

    patch.setitem(pieces.OPERATIONS, scalar.Clip, clip)


def _abs_that_raises(patch):
    patch.setitem(pieces.OPERATIONS, scalar.Abs, lambda z, f: f[1000])


def _entries_backwards(patch):
    take = rearranging.take
    patch.setattr(rearranging, "take", lambda term, axis, index: take(term, axis, index[::-1]))


def _a_mean_for_a_sum(patch):
    sum_axis = affine.sum_axis

    def mean_axis(term, axis, length, rv):
        return scale(sum_axis(term, axis, length, rv), pt.reciprocal(length))

    patch.setattr(affine, "sum_axis", mean_axis)


def _half_a_square(patch):
    role = scales.CHILDREN[NormalRV]
    wrong = replace(role, statistic=lambda *given: role.statistic(*given) / 2)
    patch.setitem(scales.CHILDREN, NormalRV, wrong)


PLANTED = {
    _clip_in_the_other_order: ("piecewise", "clip"),
    _abs_that_raises: ("piecewise", "abs("),
    _entries_backwards: ("affine", "[np.array("),
    _a_mean_for_a_sum: ("affine", ".sum("),
    _half_a_square: ("scale", "pm.Normal"),
}
"""Errors of readers, each with the family and a word of the programs that it spoils."""


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_error_is_found(plant, monkeypatch):
    """A fuzzer that compares nothing, or programs without the operations that its tables list."""
    plant(monkeypatch)
    family, word = PLANTED[plant]
    cases = (random_case(family, seed) for seed in range(300))
    spoilt = (case for case in cases if word in case.source)
    case, failure = next((c, f) for c in spoilt if (f := failure_of(c)) is not None)
    smallest = minimal(case, failure)
    assert word in smallest.source
    assert smallest.source.count("\n") <= 6
    with pytest.raises(type(failure.error)):
        check(smallest.source)

"""The order of a sweep, and when an order is valid."""

from collections.abc import Collection, Sequence
from typing import Literal

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.laws.conditional import Conditional

Scan = Literal["sequential", "parallel"]


def order_scan(
    conditionals: Sequence[Conditional], scan: Scan, model: pm.Model
) -> list[Conditional]:
    """Order conditionals for a sweep.

    "sequential" keeps the model's order, from input to output. "parallel" draws the groups that
    conditionals say they belong to (:class:`~pymc_nnsteps.laws.conditional.Group`) one
    after another; within a group of a network no layer depends on another. Layers that are
    collapsed stay together.
    """
    if scan == "sequential":
        return list(conditionals)
    return sorted(conditionals, key=lambda conditional: conditional.group(model))


def check_scan(
    conditionals: Sequence[Conditional], given: Sequence[Collection[TensorVariable]]
) -> None:
    """Check that no draw uses a variable after it was integrated out and before its fresh draw.

    That draw must be a part of the same sweep, whose end is what is stored.
    """
    stale: dict[TensorVariable, Conditional] = {}
    for conditional, conditions in zip(conditionals, given, strict=True):
        for rv in stale.keys() & set(conditions):
            drawn = describe(conditional.draws[0]) if conditional.draws else conditional.name
            raise ValueError(
                f"{drawn} is drawn given {describe(rv)}, which was "
                f"integrated out of the draw of {describe(stale[rv].draws[0])} and has not been "
                "drawn afresh."
            )
        for rv in conditional.draws:
            stale.pop(rv, None)
        stale.update(dict.fromkeys(conditional.integrates_out, conditional))
    for rv, conditional in stale.items():
        raise ValueError(
            f"{describe(rv)} was integrated out of the draw of {describe(conditional.draws[0])} "
            "and has not been drawn afresh when the sweep ends."
        )


def refreshed_after(conditionals: Sequence[Conditional]) -> list[int]:
    """Numbers of draws after which all that was integrated out before is drawn afresh.

    Up to there a sweep leaves the posterior invariant as the whole one does.
    """
    stale: set[TensorVariable] = set()
    found = []
    for number, conditional in enumerate(conditionals[:-1], start=1):
        waited = bool(stale)
        stale = stale.difference(conditional.draws).union(conditional.integrates_out)
        if waited and not stale:
            found.append(number)
    return found

"""What the conformance suite runs over: each step on the models that exercise it.

A new step class is one more entry of ``CASES``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.steps.imputed_levels import ImputedLevels
from tests.zoo import (
    bow_tie_network,
    deep_network,
    gaussian_process,
    hierarchical_network,
    multinomial_network,
    network_with_missing_levels,
    regression,
    relu_network,
    smooth_network,
)


@dataclass(frozen=True)
class Case:
    """A step on a model, with its arguments. ``variables`` are those it takes; None: all."""

    step: Callable[..., Any]
    build: Callable[[], pm.Model]
    variables: tuple[str, ...] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, model, **options):
        variables = self.variables and [model[name] for name in self.variables]
        return self.step(variables, model=model, **{**self.arguments, **options})


PRECISIONS = ("tau_ah1", "tau_ih1", "tau_ih1_unit", "tau_bh1", "tau_h1o", "tau_noise")

IN_C = {"compile_kwargs": c_by_default()}
"""For steps that Numba compiles unless they are told otherwise."""

CASES = {
    "levels": Case(ImputedLevels, network_with_missing_levels, ("inputs::depot_missing",)),
    "gibbs-relu": Case(nns.Gibbs, relu_network),
    "gibbs-deep": Case(nns.Gibbs, deep_network),
    "gibbs-parallel": Case(
        nns.Gibbs, deep_network, None, {"interweave": True, "passes": 2, "scan": "parallel"}
    ),
    "gibbs-multinomial": Case(nns.Gibbs, multinomial_network),
    "gibbs-regression": Case(nns.Gibbs, regression, ("slopes", "intercept")),
    "gibbs-precisions": Case(nns.Gibbs, hierarchical_network, PRECISIONS),
    "gibbs-bow-tie": Case(nns.Gibbs, bow_tie_network, None, {"collapse": True}),
    "pcn-process": Case(nns.PCN, gaussian_process, ("f",), {"beta": 0.1}),
    "pcn-network": Case(nns.PCN, smooth_network, None, {"steps": 3}),
    "pcnl-process": Case(nns.PCNL, gaussian_process, ("f",)),
    "mala-process": Case(nns.MALA, gaussian_process, None, {"step_size": 0.02}),
    "hmc-network": Case(
        nns.HMC,
        smooth_network,
        ("W1", "w2", "b2"),
        {"longest": None, "collapse": False, **IN_C},
    ),
    "hmc-scales": Case(
        nns.HMC,
        hierarchical_network,
        ("W_ih1", "bh1", "W_h1o", "bo"),
        {"longest": 5, **IN_C},
    ),
}


def run(step, point, n):
    """Points and statistics of ``n`` steps."""
    points, stats = [], []
    for _ in range(n):
        point, [stat] = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def assert_same(points, others):
    """Fail unless the points are the same, bit by bit."""
    for point, other in zip(points, others, strict=True):
        assert list(point) == list(other)
        for name, value in point.items():
            np.testing.assert_array_equal(value, other[name], strict=True, err_msg=name)

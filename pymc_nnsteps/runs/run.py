"""What a run samples, and where a chain stands: its point, and the state of its step."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np
import pymc as pm
from pymc.backends.ndarray import NDArray as Trace
from pymc.initial_point import PointType
from pymc.step_methods.compound import flatten_steps
from pymc.step_methods.state import WithSamplingState

from pymc_nnsteps.runs.fingerprint import Fingerprint
from pymc_nnsteps.steps.assignment import Step


@dataclass(frozen=True)
class Checkpoint:
    """State of a chain."""

    done: int  # number of its draws, those of tuning included
    point: PointType  # values of the model's transformed variables
    state: Any  # state of its step, generators included: see :func:`state_of`
    seconds: float = 0.0  # time that it has taken


@dataclass(frozen=True)
class Run:
    """Model and step of a run."""

    model: pm.Model
    step: Step  # step for all variables. It takes over the state of the chain that it moves.
    var_names: tuple[str, ...]  # variables that are stored
    tune: int
    draws_per_chunk: int  # draws between two checkpoints
    identity: str  # tells the run from others in a process
    fingerprint: Fingerprint  # tells it from others in all of them

    def trace(self, chain: int, draws: int) -> Trace:
        """Room for draws of a chain and their statistics, as ``pm.sample`` keeps them."""
        like = self._trace
        trace = Trace(
            model=like.model,
            vars=like.vars,
            fn=like.fn,
            var_shapes=like.var_shapes,
            var_dtypes=like.var_dtypes,
        )
        trace.setup(draws, chain, self.step.stats_dtypes)
        return trace

    @cached_property
    def _trace(self) -> Trace:
        stored = [rv for rv in self.model.unobserved_RVs if rv.name in self.var_names]
        return Trace(model=self.model, vars=self.model.replace_rvs_by_values(stored))


type State = list[tuple[Any, dict[str, Any]]]
"""Sampling state of each step, with the numbers that PyMC's state leaves out."""


def state_of(step: Step) -> State:
    """All that a step remembers. NUTS counts divergences in a number beside its state."""
    return [
        (
            each.sampling_state,
            {name: value for name, value in vars(each).items() if isinstance(value, Number)},
        )
        for each in flatten_steps(step)
    ]


def restore(step: Step, state: State) -> None:
    """Have a step remember a state, of the same data, as PyMC does: nothing is evaluated anew."""
    for each, (own, numbers) in zip(flatten_steps(step), state, strict=True):
        WithSamplingState.sampling_state.__set__(each, own)
        vars(each).update(numbers)


def begun(
    step: Step,
    points: Iterable[PointType],
    generators: Iterable[np.random.Generator],
    tune: int,
    draws: int,
) -> list[Checkpoint]:
    """Chains before their first draws, as ``pm.sample`` begins them by a step that is as made."""
    fresh, found = state_of(step), []
    for point, rng in zip(points, generators, strict=True):
        restore(step, fresh)
        step.setup_chain(rng, tune, draws)
        step.tune = tune > 0
        if hasattr(step, "reset_tuning"):
            step.reset_tuning()
        found.append(Checkpoint(0, point, state_of(step)))
    restore(step, fresh)
    return found

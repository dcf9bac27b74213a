"""Base class of Metropolis-Hastings steps: PyMC's step interface and step size adaptation."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import DataClassState, WithSamplingState, dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn

from pymc_nnsteps.arguments import positive_integer, positive_number
from pymc_nnsteps.graphs.shapes import require_fitting_data
from pymc_nnsteps.kernels.compiling import c_by_default, without_bookkeeping
from pymc_nnsteps.steps.coordinates import Coordinates
from pymc_nnsteps.steps.progress import columns_that_fit
from pymc_nnsteps.steps.proposal import CompiledProposal, Place, Proposal
from pymc_nnsteps.steps.step import Step
from pymc_nnsteps.steps.step_size import DualAveraging


@dataclass(frozen=True)
class Current:
    """Position of a chain and the point that it was computed from."""

    point: dict[str, np.ndarray]
    place: Place[np.ndarray]


@dataclass_state
class MetropolisState(StepMethodState):
    """Sampling state of a Metropolis-Hastings step."""

    tune: bool
    adaptation: DualAveraging
    current: Current | None


class MetropolisHastings(Step):
    """A step that proposes, and accepts or rejects.

    Parameters
    ----------
    rvs, coordinates, factors, proposal, compile_kwargs
        As for :class:`~pymc_nnsteps.steps.proposal.CompiledProposal`.
    size : float or None
        Fixed step size. None: it is adapted during tuning.
    target_accept : float or None
        Acceptance probability that the adaptation aims at; None: the method's own.
    steps : int
        Proposals per draw.
    """

    _state_class = MetropolisState
    _density: ClassVar[str]
    _default_target: ClassVar[float]
    _first_coordinate: ClassVar[float]
    adaptation: DualAveraging

    @without_bookkeeping()
    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        coordinates: Sequence[Coordinates],
        factors: Sequence[TensorVariable],
        proposal: Proposal,
        *,
        size: float | None,
        target_accept: float | None,
        steps: int,
        rng: RandomGenerator,
        initial_point: PointType | None,
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        require_fitting_data(model)
        self.steps = positive_integer("steps", steps)
        self._target = self._default_target
        if target_accept is not None:
            self._target = positive_number("target_accept", target_accept, below=1)
        self._given_size = size
        self.vars = [model.rvs_to_values[rv] for rv in rvs]
        self.rng = get_random_generator(rng)
        self._start(tune=True)
        self._proposal = CompiledProposal(
            model, rvs, coordinates, factors, proposal, c_by_default(compile_kwargs)
        )
        point = model.initial_point() if initial_point is None else initial_point
        self._proposal.locate(self._proposal.read(point))

    @staticmethod
    @abstractmethod
    def _size_at(coordinate: float) -> float:
        """The step size as a function of the unconstrained coordinate that is adapted."""

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare a chain: set the generator and the step size, recompute quantities of the data.

        A chain without tuning keeps the parameters that were tuned before.
        """
        super().setup_chain(rng, tune, draws)
        tuned = self.adaptation
        self._start(tune=tune > 0)
        if not tune:
            self.adaptation = tuned
        self._proposal.refresh()

    @property
    def sampling_state(self) -> DataClassState:
        """Sampling state for PyMC; setting it discards the log density: data may have changed."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state: DataClassState) -> None:
        WithSamplingState.sampling_state.__set__(self, state)
        self._proposal.distrust()

    def _start(self, *, tune: bool) -> None:
        self.tune = tune
        self.adaptation = DualAveraging(self._target, self._first_coordinate)
        self.current: Current | None = None

    @property
    def size(self) -> float:
        """Step size of the next proposal."""
        if self._given_size is not None:
            return self._given_size
        return self._size_at(self.adaptation.current if self.tune else self.adaptation.average)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make ``steps`` proposals from ``point``."""
        current = self._locate(point)
        probabilities = []
        for _ in range(self.steps):
            size = self.size
            self.rng, log_ratio, place, values = self._proposal(
                self.rng, size, current.place, current.point
            )
            probability = _acceptance_probability(log_ratio)
            probabilities.append(probability)
            if self.rng.uniform() < probability:
                moved = dict(zip(self._proposal.values, values, strict=True))
                current = Current(current.point | moved, place)
            if self.tune:
                self.adaptation = self.adaptation.update(probability)
        self.current = current
        new_point = point.copy()
        new_point.update({name: current.point[name].copy() for name in self._proposal.values})
        stats = {
            "acceptance_probability": np.float64(np.mean(probabilities)),
            "proposal_size": np.float64(size),
            self._density: np.float64(current.place.log_density),
        }
        return new_point, [stats]

    def _locate(self, point: PointType) -> Current:
        """Current position, reevaluated if another variable has changed."""
        data_changed = self._proposal.refresh_if_data_changed()
        known = self.current
        if known is not None and not _agree(known.point, point):
            known = None
        if known is None or data_changed:
            copies = self._proposal.read(point)
            place = None if known is None else known.place
            known = Current(copies, self._proposal.locate(copies, place))
        return known

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[float]]]:
        columns = columns_that_fit(
            {
                "acceptance_probability": ("Accept", ":0.2f"),
                "proposal_size": ("Step size", ":0.2g"),
            }
        )
        zeros = [0.0] * n_chains
        return columns, {"acceptance_probability": zeros, "proposal_size": list(zeros)}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any, ...]:
        def update_stats(stats: dict[str, Any]) -> dict[str, Any]:
            return {name: stats[name] for name in ("acceptance_probability", "proposal_size")}

        return (update_stats,)


def statistics(density: str) -> dict[str, Any]:
    """Statistics of a step whose target's log density is called ``density``."""
    names = ("acceptance_probability", "proposal_size", density)
    return {name: (np.float64, []) for name in names}


def _acceptance_probability(log_ratio: float) -> float:
    """min(1, ratio); a density that is not a number is never accepted."""
    return 0.0 if np.isnan(log_ratio) else float(np.exp(min(0.0, log_ratio)))


def _agree(known: dict[str, np.ndarray], point: PointType) -> bool:
    return all(np.array_equal(value, point[name]) for name, value in known.items())

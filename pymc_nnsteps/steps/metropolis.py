"""Metropolis-Hastings steps: a proposal as one compiled function, PyMC's step interface, step size.

The function proposes, evaluates the log density (and its gradient) at the proposal, and returns
these with the log of the acceptance ratio. What is known of the current place is handed to it,
so that nothing is evaluated twice.

Each variable is an affine function of its coordinates. In those ``xi = L^{-1} (u - m)`` a prior
``N(m, L L^T)`` is the standard normal, so that a proposal that is made for standard normals serves
every Gaussian prior. ``m`` and ``L`` are graphs in terms of the model's other variables: the map
moves along with them.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, override

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_integer, positive_number
from pymc_nnsteps.compile.compiling import c_by_default, without_bookkeeping
from pymc_nnsteps.graphs.known import describe, has_prior, law_as_stated
from pymc_nnsteps.graphs.search import parameters, stated_in
from pymc_nnsteps.graphs.shapes import refuse_random_data
from pymc_nnsteps.graphs.values import natural_values, substitute, typed_like
from pymc_nnsteps.laws.multivariate import inverted
from pymc_nnsteps.random.standard_normal import standard_normal
from pymc_nnsteps.steps.compiled import Compiled
from pymc_nnsteps.steps.step import ACCEPTANCE_AND_SIZE, Step
from pymc_nnsteps.steps.target import gradient_of, log_density, moved_with, unbatched
from pymc_nnsteps.steps.tuning import DualAveraging

FIRST_COORDINATE = math.log(0.1)
"""Coordinate of the step size that the adaptation starts from."""

Map = Callable[[TensorVariable], TensorVariable]


@dataclass(frozen=True)
class Coordinates:
    """An invertible affine map between a variable's value and its coordinates."""

    to_value: Map
    from_value: Map


def whitened(model: pm.Model, rv: TensorVariable, block: Collection[TensorVariable]) -> Coordinates:
    """Coordinates in which the Normal or MvNormal prior of a variable is standard normal."""
    if not has_prior(model, rv, NormalRV, MvNormalRV):
        raise ValueError(
            f"{describe(rv)} has the prior {law_as_stated(model, rv)}, but this step needs an "
            "unconstrained Normal or MvNormal one; leave the variable to another step."
        )
    stated = stated_in(rv.owner.inputs, model.basic_RVs)
    if others := stated.intersection(moved_with(model, list(block))):
        names = ", ".join(sorted(map(describe, others)))
        raise ValueError(
            f"{describe(rv)} has a prior that depends on {names}, a variable of the same block or "
            "one that moves with it; give the two to different steps."
        )
    mean, spread = parameters(rv)
    mean = mean.astype(rv.dtype)
    if has_prior(model, rv, MvNormalRV):
        return _multivariate(mean, unbatched(spread))
    sigma = spread.astype(rv.dtype)
    return Coordinates(lambda xi: mean + sigma * xi, lambda u: (u - mean) / sigma)


def scaled(scale: TensorVariable) -> Coordinates:
    """Coordinates in units of ``scale``."""
    return Coordinates(lambda xi: scale * xi, lambda u: u / scale)


def _multivariate(mean: TensorVariable, covariance: TensorVariable) -> Coordinates:
    precision = inverted(covariance)
    if precision is None:
        root = cholesky(covariance.astype(mean.dtype))
        return Coordinates(
            lambda xi: mean + _apply(root, xi), lambda u: _solve(root, u - mean, lower=True)
        )
    transposed = cholesky(precision.astype(mean.dtype)).mT
    return Coordinates(
        lambda xi: mean + _solve(transposed, xi, lower=False),
        lambda u: _apply(transposed, u - mean),
    )


def _apply(matrix: TensorVariable, vectors: TensorVariable) -> TensorVariable:
    """Product with each vector along the last axis."""
    if matrix.ndim == 2:
        return vectors @ matrix.mT
    return (matrix @ vectors[..., None])[..., 0]


def _solve(matrix: TensorVariable, vectors: TensorVariable, *, lower: bool) -> TensorVariable:
    """Solution of a triangular system for each vector along the last axis."""
    if matrix.ndim == 2:
        columns = vectors.reshape((-1, vectors.shape[-1])).mT
        solved = solve_triangular(matrix, columns, lower=lower).mT
        return solved.reshape(vectors.shape, ndim=vectors.ndim)
    return solve_triangular(matrix, vectors, lower=lower, b_ndim=1)


Point = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ChainState[Array]:
    """Where a chain is: coordinates, their log density, and its gradient if that is used."""

    log_density: Array
    coordinates: list[Array]
    gradient: list[Array] = field(default_factory=list)


SymbolicState = ChainState[TensorVariable]


@dataclass(frozen=True)
class Proposal:
    """How to propose and what to accept with, in coordinates."""

    # From a variable's coordinates, the gradient with respect to them (or None), standard normals
    # and the step size to the coordinates that are proposed. A step of size zero stays where it is.
    move: Callable[
        [TensorVariable, TensorVariable | None, TensorVariable, TensorVariable], TensorVariable
    ]
    # From the current and the proposed place and the step size to the log of the acceptance ratio.
    log_ratio: Callable[[SymbolicState, SymbolicState, TensorVariable], TensorVariable]
    uses_gradient: bool


def dot(left: Sequence[TensorVariable], right: Sequence[TensorVariable]) -> TensorVariable:
    """Inner product over all variables, in float64."""
    products = [pt.sum(a * b, dtype="float64") for a, b in zip(left, right, strict=True)]
    return pt.add(0.0, *products)


class CompiledProposal:
    """A proposal for some variables of a model, under the product of densities of some factors."""

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[TensorVariable],
        coordinates: Sequence[Coordinates],
        factors: Sequence[TensorVariable],
        proposal: Proposal,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        refuse_random_data(model)
        values = [model.rvs_to_values[rv] for rv in rvs]
        natural = natural_values(model)

        def as_values(xis: Sequence[TensorVariable]) -> list[Variable]:
            mapped = [c.to_value(xi) for c, xi in zip(coordinates, xis, strict=True)]
            return list(map(typed_like, values, substitute(mapped, natural)))

        def new_place() -> SymbolicState:
            xis = [value.type(f"{value.name}_xi") for value in values]
            slopes = [xi.type() for xi in xis] if proposal.uses_gradient else []
            return ChainState(pt.dscalar("log_density"), xis, slopes)

        here, symbol = new_place(), new_place()
        xis = symbol.coordinates
        [target] = substitute(
            [log_density(model, factors)], dict(zip(values, as_values(xis), strict=True))
        )
        # Where a slope is not finite, zero: any function of the place will do.
        raw = gradient_of(target, xis, values) if proposal.uses_gradient else []
        slopes = [pt.switch(pt.isfinite(slope), slope, 0) for slope in raw]

        rng, size = pt.random.rng("rng"), pt.dscalar("size")
        next_rng: Variable = rng
        proposed = []
        slopes_here: list[TensorVariable | None] = [*here.gradient] or [None] * len(values)
        for xi, slope in zip(here.coordinates, slopes_here, strict=True):
            next_rng, noise = standard_normal(next_rng, xi.shape, xi.dtype)
            proposed.append(typed_like(xi, proposal.move(xi, slope, noise, size.astype(xi.dtype))))
        evaluated = substitute([target, *slopes], dict(zip(xis, proposed, strict=True)))
        there = ChainState(evaluated[0], proposed, evaluated[1:])

        outputs = [next_rng, proposal.log_ratio(here, there, size), *flat(there)]
        outputs += as_values(proposed)
        whitened = substitute(
            [c.from_value(v) for c, v in zip(coordinates, values, strict=True)], natural
        )
        used = set(ancestors([*outputs, *whitened]))
        others = [v for v in model.value_vars if v in used and v not in values]
        self.values = [value.name for value in values]
        self.others = [value.name for value in others]
        self._dtypes = {value.name: value.dtype for value in (*values, *others)}
        self._n = len(values)
        self._uses_gradient = proposal.uses_gradient
        self._propose = Compiled(
            [pytensor.In(rng, mutable=True), size, *flat(here), *others], outputs, compile_kwargs
        )
        self._from_values = Compiled([*values, *others], whitened, compile_kwargs)
        self.of_data = self._propose, self._from_values

    def read(self, point: Point) -> dict[str, np.ndarray]:
        """Copies of what is read of a point, with the right dtypes."""
        return {name: np.array(point[name], dtype) for name, dtype in self._dtypes.items()}

    def locate(
        self, point: Point, known: ChainState[np.ndarray] | None = None
    ) -> ChainState[np.ndarray]:
        """The place of a point that was read; coordinates ``known`` to have its values are kept.

        They are those of the values up to rounding only, and a chain is to go on as it would have.
        """
        if known is not None:
            place, values = self._evaluate(known.coordinates, point)
            wanted = (point[name] for name in self.values)
            if all(map(np.array_equal, values, wanted)):
                return place
        return self._evaluate(self._from_values(*point.values()), point)[0]

    def _evaluate(
        self, xis: list[np.ndarray], point: Point
    ) -> tuple[ChainState[np.ndarray], list[np.ndarray]]:
        """The place of coordinates, and the values there."""
        slopes = [np.zeros_like(xi) for xi in xis] if self._uses_gradient else []
        nowhere = ChainState(np.array(0.0), xis, slopes)
        _, _, place, values = self(np.random.default_rng(0), 0.0, nowhere, point)
        return place, values

    def __call__(
        self, rng: np.random.Generator, size: float, place: ChainState[np.ndarray], point: Point
    ) -> tuple[np.random.Generator, float, ChainState[np.ndarray], list[np.ndarray]]:
        """Propose from a place: the log of the acceptance ratio, the place and the values there."""
        others = [point[name] for name in self.others]
        rng, log_ratio, log_density, *arrays = self._propose(
            rng, np.array(size), *flat(place), *others
        )
        n = self._n
        there = ChainState(log_density, arrays[:n], arrays[n:-n])
        return rng, float(log_ratio), there, arrays[-n:]


def flat[Array](place: ChainState[Array]) -> list[Array]:
    """The parts of a place in one list."""
    return [place.log_density, *place.coordinates, *place.gradient]


@dataclass(frozen=True)
class Current:
    """Position of a chain and the point that it was computed from."""

    point: dict[str, np.ndarray]
    place: ChainState[np.ndarray]


@dataclass_state
class MetropolisState(StepMethodState):
    """Sampling state of a Metropolis-Hastings step."""

    tune: bool
    adaptation: DualAveraging
    current: Current | None


class MetropolisHastings(Step):
    """A step that proposes and accepts or rejects; a ``size`` of None is adapted in tuning."""

    _state_class = MetropolisState
    _shown = ACCEPTANCE_AND_SIZE
    _tuned = ("adaptation",)
    _density: ClassVar[str]
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
        target_accept: float,
        steps: int,
        rng: RandomGenerator,
        initial_point: PointType | None,
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        self.steps = positive_integer("steps", steps)
        self._target = positive_number("target_accept", target_accept, below=1)
        self._given_size = size
        self.vars = [model.rvs_to_values[rv] for rv in rvs]
        self.rng = get_random_generator(rng)
        self._start(tune=1)
        self._proposal = CompiledProposal(
            model, rvs, coordinates, factors, proposal, c_by_default(compile_kwargs)
        )
        point = model.initial_point() if initial_point is None else initial_point
        self._proposal.locate(self._proposal.read(point))

    @staticmethod
    @abstractmethod
    def _size_at(coordinate: float, /) -> float:
        """The step size as a function of the unconstrained coordinate that is adapted."""

    def _of_data(self) -> Sequence[Compiled]:
        return self._proposal.of_data

    @override
    def _start(self, *, tune: int) -> None:
        super()._start(tune=tune)
        self.adaptation = DualAveraging(self._target, FIRST_COORDINATE)
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
        data_changed = True in {part.refresh_if_data_changed() for part in self._of_data()}
        known = self.current
        if known is not None and not _agree(known.point, point):
            known = None
        if known is None or data_changed:
            copies = self._proposal.read(point)
            place = None if known is None else known.place
            known = Current(copies, self._proposal.locate(copies, place))
        return known


def statistics(density: str) -> dict[str, Any]:
    """Statistics of a step whose target's log density is called ``density``."""
    names = ("acceptance_probability", "proposal_size", density)
    return {name: (np.float64, []) for name in names}


def _acceptance_probability(log_ratio: float) -> float:
    """min(1, ratio); a density that is not a number is never accepted."""
    return 0.0 if np.isnan(log_ratio) else float(np.exp(min(0.0, log_ratio)))


def _agree(known: dict[str, np.ndarray], point: PointType) -> bool:
    return all(np.array_equal(value, point[name]) for name, value in known.items())

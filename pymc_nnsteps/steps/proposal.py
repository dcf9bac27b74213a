"""A Metropolis-Hastings proposal as one compiled function.

The function proposes, evaluates the log density (and its gradient) at the proposal, and returns
these with the log of the acceptance ratio. What is known of the current place is handed to it,
so that nothing is evaluated twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.random_data import refuse_random_data
from pymc_nnsteps.graphs.values import natural_values, substitute, typed_like
from pymc_nnsteps.random.standard_normal import standard_normal
from pymc_nnsteps.steps.compiled import Compiled
from pymc_nnsteps.steps.coordinates import Coordinates
from pymc_nnsteps.steps.target import gradient_of, log_density
from pymc_nnsteps.steps.variables import as_tensor, as_value

Point = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Place[Array]:
    """Where a chain is: coordinates, their log density, and its gradient if that is used."""

    log_density: Array
    coordinates: list[Array]
    gradient: list[Array] = field(default_factory=list)


SymbolicPlace = Place[TensorVariable]


@dataclass(frozen=True)
class Proposal:
    """How to propose and what to accept with, in coordinates.

    Attributes
    ----------
    move : callable
        From a variable's coordinates, the gradient with respect to them (or None), standard
        normals and the step size to the coordinates that are proposed. A step of size zero
        stays where it is.
    log_ratio : callable
        From the current and the proposed place and the step size to the log of the acceptance
        ratio.
    """

    move: Callable[
        [TensorVariable, TensorVariable | None, TensorVariable, TensorVariable], TensorVariable
    ]
    log_ratio: Callable[[SymbolicPlace, SymbolicPlace, TensorVariable], TensorVariable]
    uses_gradient: bool


def dot(left: Sequence[TensorVariable], right: Sequence[TensorVariable]) -> TensorVariable:
    """Inner product over all variables, in float64."""
    products = [pt.sum(a * b, dtype="float64") for a, b in zip(left, right, strict=True)]
    return pt.add(0.0, *products)


class CompiledProposal:
    """A proposal for some variables of a model, under a log density.

    Parameters
    ----------
    rvs : sequence of TensorVariable
        The free variables that are moved.
    coordinates : sequence of Coordinates
        Of the values of ``rvs``.
    factors : sequence of TensorVariable
        The random variables and potentials whose log densities make up the target.
    compile_kwargs : mapping
        Options of :func:`pymc.pytensorf.compile`.

    Attributes
    ----------
    values : list of str
        Names of the value variables that are moved.
    others : list of str
        Names of the value variables that are only read.
    """

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
            return list(map(as_value, values, substitute(mapped, natural)))

        def new_place() -> SymbolicPlace:
            xis = [as_tensor(value).type(f"{value.name}_xi") for value in values]
            slopes = [xi.type() for xi in xis] if proposal.uses_gradient else []
            return Place(pt.dscalar("log_density"), xis, slopes)

        here, symbol = new_place(), new_place()
        xis = symbol.coordinates
        [target] = substitute(
            [log_density(model, factors)], dict(zip(values, as_values(xis), strict=True))
        )
        slopes = _finite(gradient_of(target, xis, values)) if proposal.uses_gradient else []

        rng, size = pt.random.rng("rng"), pt.dscalar("size")
        next_rng: Variable = rng
        proposed = []
        slopes_here: list[TensorVariable | None] = [*here.gradient] or [None] * len(values)
        for xi, slope in zip(here.coordinates, slopes_here, strict=True):
            next_rng, noise = standard_normal(next_rng, xi.shape, xi.dtype)
            proposed.append(typed_like(xi, proposal.move(xi, slope, noise, size.astype(xi.dtype))))
        evaluated = substitute([target, *slopes], dict(zip(xis, proposed, strict=True)))
        there = Place(evaluated[0], proposed, evaluated[1:])

        outputs = [next_rng, proposal.log_ratio(here, there, size), *flat(there)]
        outputs += map(as_tensor, as_values(proposed))
        whitened = substitute(
            [c.from_value(as_tensor(v)) for c, v in zip(coordinates, values, strict=True)], natural
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

    def refresh(self) -> None:
        """Compute again what depends on the model's data only."""
        self._propose.refresh()
        self._from_values.refresh()

    def distrust(self) -> None:
        """Take the model's data for exchanged."""
        self._propose.distrust()
        self._from_values.distrust()

    def refresh_if_data_changed(self) -> bool:
        """Whether data have been exchanged since the last refresh, which is then repeated."""
        changed = self._propose.refresh_if_data_changed()
        return self._from_values.refresh_if_data_changed() or changed

    def read(self, point: Point) -> dict[str, np.ndarray]:
        """Copies of what is read of a point, with the right dtypes."""
        return {name: np.array(point[name], dtype) for name, dtype in self._dtypes.items()}

    def locate(self, point: Point, known: Place[np.ndarray] | None = None) -> Place[np.ndarray]:
        """The place of a point, of which :meth:`read` has made copies.

        The coordinates of a ``known`` place are kept if they still have these values: they are
        those of the values up to rounding only, and a chain is to go on as it would have.
        """
        if known is not None:
            place, values = self._evaluate(known.coordinates, point)
            wanted = (point[name] for name in self.values)
            if all(map(np.array_equal, values, wanted)):
                return place
        return self._evaluate(self._from_values(*point.values()), point)[0]

    def _evaluate(
        self, xis: list[np.ndarray], point: Point
    ) -> tuple[Place[np.ndarray], list[np.ndarray]]:
        """The place of coordinates, and the values there."""
        slopes = [np.zeros_like(xi) for xi in xis] if self._uses_gradient else []
        nowhere = Place(np.array(0.0), xis, slopes)
        _, _, place, values = self(np.random.default_rng(0), 0.0, nowhere, point)
        return place, values

    def __call__(
        self, rng: np.random.Generator, size: float, place: Place[np.ndarray], point: Point
    ) -> tuple[np.random.Generator, float, Place[np.ndarray], list[np.ndarray]]:
        """Propose from ``place``.

        Returns
        -------
        rng : Generator
        log_ratio : float
            Log of the acceptance ratio.
        place : Place
            What is proposed.
        values : list of ndarray
            The values of the variables there.
        """
        others = [point[name] for name in self.others]
        rng, log_ratio, log_density, *arrays = self._propose(
            rng, np.array(size), *flat(place), *others
        )
        n = self._n
        there = Place(log_density, arrays[:n], arrays[n:-n])
        return rng, float(log_ratio), there, arrays[-n:]


def flat[Array](place: Place[Array]) -> list[Array]:
    """The parts of a place in one list."""
    return [place.log_density, *place.coordinates, *place.gradient]


def _finite(gradient: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Zero where it is not finite: any function of the place will do."""
    return [pt.switch(pt.isfinite(slope), slope, 0) for slope in gradient]

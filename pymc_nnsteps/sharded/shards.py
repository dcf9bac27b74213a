"""The rows of a shard, and what is drawn once for all rows.

Both are compiled from the conditionals of a local sweep: a shard draws its latent variables and
sends sums (:meth:`~pymc_nnsteps.laws.conditional.Additive.sums`); the draws of shared
variables are given these (:meth:`~pymc_nnsteps.laws.conditional.Additive.draw_given`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from time import perf_counter
from typing import Any, override

import cloudpickle as pickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import require_finite
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.compile.files import digest
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.shapes import require_fitting_data, shapes_of
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.conditional import Additive, Conditional, Draw, Shapes
from pymc_nnsteps.moves.plan import Scan
from pymc_nnsteps.prediction.imputation import imputations_of
from pymc_nnsteps.prediction.new_groups import group_numbers
from pymc_nnsteps.prediction.row_data import read_rows
from pymc_nnsteps.runs.fingerprint import read, write
from pymc_nnsteps.runs.tasks import COMPILING, QUICK
from pymc_nnsteps.sharded.gaps import with_gaps
from pymc_nnsteps.sharded.rounds import Rounds, rounds_of
from pymc_nnsteps.steps.compiled import PointFunction
from pymc_nnsteps.steps.sweep import Chained, follow
from pymc_nnsteps.tables import require_same_rows, sources

Data = Mapping[str, NDArray[Any]]
Load = Data | Callable[[], Data]
"""Rows of a shard: an array for each data container, or a function that loads them."""

Point = dict[str, NDArray[Any]]
Sums = list[NDArray[Any]]


def added(parts: Sequence[Sums]) -> Sums:
    """Sums of parts in sum, one after another: how this rounds depends on their order alone."""
    return reduce(lambda total, part: list(map(add, total, part)), parts)


class OutOfStepError(RuntimeError):
    """A shard is asked for another message than the next one: what it held has been lost."""


def instructions(model: pm.Model, planned: Rounds, rows: Sequence[str], scan: Scan) -> bytes:
    """What a shard needs beside its rows: a model of some, and the plan of its sweep."""
    return pickle.dumps((model, planned, tuple(rows), scan, pytensor.config.floatX))


class Shard:
    """Latent variables of some rows, which ``load`` has, with a random generator of their own."""

    def __init__(self, instructions: bytes, load: Load) -> None:
        with COMPILING:
            self._model, planned, self._names, scan, float_x = pickle.loads(instructions)
        self.rng = np.random.default_rng()
        self.point: Point = {}
        self.number = 0
        self.seconds = 0.0
        data = load() if callable(load) else load
        if set(data) != set(self._names):
            got = ", ".join(data) or "none"
            raise ValueError(f"a shard must hold {', '.join(self._names)}; got {got}.")
        with COMPILING, pytensor.config.change_flags(floatX=float_x):
            if missing := _exchange(self._model, data):
                self._model = with_gaps(self._model, missing)
                own = rounds_of(self._model, self._names, scan)
                if own.names != planned.names:
                    raise ValueError(
                        "the rows of a shard have other draws, or in another order, than those of "
                        "the model; build the model on more rows."
                    )
                planned = own
            require_fitting_data(self._model)
            shapes = shapes_of(self._model)
            self._rounds = [
                _rows_of_round(self._model, planned, number, shapes)
                for number in range(len(planned.rounds))
            ]
            self._observed = [str(rv.name) for rv in self._model.observed_RVs]
            self._densities = self._model.compile_fn(
                self._model.logp(self._model.observed_RVs, sum=False),
                inputs=self._model.value_vars,
                mode=QUICK,
                on_unused_input="ignore",
            )

    def begin(self, number: int, seed: Any, shared: Mapping[str, NDArray[Any]]) -> None:
        """Begin a chain at the shared variables' natural values."""
        self.rng = np.random.default_rng(seed)
        with COMPILING:
            self.point = _initial_point(self._model, int(self.rng.integers(2**31)), shared)
        for name, density in zip(self._observed, self._densities(self.point), strict=True):
            if not np.isfinite(density).all():
                raise ValueError(
                    f"{name} of a shard has values that are impossible in the model; give it "
                    "targets of the same kind as the model's."
                )
        self.number = number + 1

    def draw(self, number: int, which: int, shared: Mapping[str, NDArray[Any]]) -> Sums:
        """Draw the latent variables of a round, given shared ones; return the sums asked for."""
        if number != self.number:
            raise OutOfStepError(f"message {number} is not {self.number}, the next one")
        start = perf_counter()
        self.point.update(shared)
        for name in self._rounds[which].superseded:
            self.point.pop(name, None)  # its memory is free before there is a new one
        self.rng, values, sums = self._rounds[which].draw(self.rng, self.point, [])
        self.point.update(values)
        self.number += 1
        self.seconds += perf_counter() - start
        return sums

    def save(self, file: Path) -> None:
        """Write what has been drawn, and the generator."""
        write(file, (self.number, self.point, self.rng, self._digest))

    def restore(self, file: Path) -> None:
        """Go on from what was written."""
        number, point, rng, rows = read(file)
        if rows != self._digest:
            raise ValueError(
                f"store {file.parent} holds a run with other rows in a shard; give the same, or "
                "another folder."
            )
        self.number, self.point, self.rng = number, point, rng

    @cached_property
    def _digest(self) -> bytes:
        """Digest of the rows."""
        parts = []
        for name in self._names:
            values = self._model[name].get_value(borrow=True)
            parts += [f"{values.shape} {values.dtype}".encode(), values.tobytes()]
        return digest(*parts)

    def time(self) -> float:
        """Seconds spent on draws and sums."""
        return self.seconds


class SharedDraws:
    """Draws of the shared variables, which ``names`` names."""

    def __init__(self, model: pm.Model, planned: Rounds) -> None:
        self._model = model
        rvs = [rv for rv in model.free_RVs if rv not in planned.of_rows]
        self.names = [str(rv.name) for rv in rvs]
        self._values = [model.rvs_to_values[rv] for rv in rvs]
        current = natural_values(model)
        with COMPILING:
            shapes = shapes_of(model)
            self.rounds = [
                _shared_of_round(model, planned, number, shapes)
                for number in range(len(planned.rounds))
            ]
            self._natural = pytensor.function(
                self._values,
                [current[rv] for rv in rvs],
                mode=QUICK,
            )
        self.rng = np.random.default_rng()
        self.point: Point = {}

    def begin(self, seed: Any) -> None:
        """Begin a chain."""
        self.rng = np.random.default_rng(seed)
        with COMPILING:
            point = _initial_point(self._model, int(self.rng.integers(2**31)), {})
        self.point = {value.name: point[value.name] for value in self._values}

    def draw(self, which: int, sums: Sequence[Sums]) -> Point:
        """Draw the shared variables of a round, given sums of shards."""
        self.rng, values, _ = self.rounds[which].draw(self.rng, self.point, added(sums))
        strange = [name for name, value in values.items() if not np.isfinite(value).all()]
        if strange:
            raise ValueError(
                f"{', '.join(strange)} cannot be drawn: the draw given the sums of the shards is "
                "not finite; look for NaN among their rows, and rescale them if they are large."
            )
        self.point.update(values)
        return values

    def natural(self) -> Point:
        """Natural values by the variables' names."""
        values = self._natural(*(self.point[value.name] for value in self._values))
        return dict(zip(self.names, values, strict=True))


class _Draws(PointFunction):
    """Draws of a round as a function of a generator, sums and a point."""

    @one_thread
    def __init__(
        self,
        model: pm.Model,
        rng: Variable,
        given: Sequence[Variable],
        chained: Chained,
        next_rng: Variable,
        sums: Sequence[Variable] = (),
    ) -> None:
        values = chained.stored(model)
        outputs = [next_rng, *values.values(), *sums]
        super().__init__(model, [pytensor.In(rng, mutable=True), *given], outputs, c_by_default())
        self._drawn: list[str] = [value.name for value in values]
        self.superseded = [name for name in self._drawn if name not in self.dtypes]

    @one_thread
    def draw(
        self, rng: np.random.Generator, point: Point, given: Sums
    ) -> tuple[np.random.Generator, Point, Sums]:
        """The generator, new values, and sums over rows."""
        # One memory layout: sending or storing arrays does not keep the layout.
        state = [np.require(point[name], dtype, ["C", "A"]) for name, dtype in self.dtypes.items()]
        sums = [np.require(array, requirements=["C", "A"]) for array in given]
        rng, *results = self(rng, *sums, *state)
        n = len(self._drawn)
        return rng, dict(zip(self._drawn, results[:n], strict=True)), results[n:]


def _rows_of_round(model: pm.Model, planned: Rounds, number: int, shapes: Shapes) -> _Draws:
    """Draws of a round's rows, and the sums that its shared draws depend on."""
    stage = planned.rounds[number]
    first = pt.random.rng("rng")
    drawn = [each for each in stage.rows if any(0 not in shapes[rv] for rv in each.draws)]
    chained = follow(natural_values(model), drawn, first, shapes, model.free_RVs)
    rng: Variable = chained.rng
    sums: list[Variable] = []
    for conditional in stage.shared:
        before = pt.random.rng("rng")
        after, own = _sums_over_rows(model, planned, conditional, before)
        rng, *results = substitute([after, *own], {before: rng, **chained.current})
        sums += results
    return _Draws(model, first, [], chained, rng, sums)


def _shared_of_round(model: pm.Model, planned: Rounds, number: int, shapes: Shapes) -> _Draws:
    """Shared draws of a round, given sums over all rows."""
    rng = pt.random.rng("rng")
    given: list[Any] = []
    conditionals: list[Conditional] = []
    for conditional in planned.rounds[number].shared:
        _, parts = _sums_over_rows(model, planned, conditional, pt.random.rng("rng"))
        sums = [part.type() for part in parts]
        given += sums
        if sums and isinstance(conditional, Additive):
            _, others = planned.children(model, conditional)
            conditional = _FromSums(conditional.draws, conditional, tuple(sums), tuple(others))
        conditionals.append(conditional)
    chained = follow(natural_values(model), conditionals, rng, shapes, model.free_RVs)
    return _Draws(model, rng, given, chained, chained.rng)


def _sums_over_rows(
    model: pm.Model, planned: Rounds, conditional: Conditional, rng: Variable
) -> tuple[Variable, tuple[TensorVariable, ...]]:
    """Sums over rows that a shared draw needs, and the generator after them."""
    rows, _ = planned.children(model, conditional)
    if not rows or not isinstance(conditional, Additive):
        return rng, ()
    return conditional.sums(rng, rows)


@dataclass(frozen=True)
class _FromSums(Conditional):
    """A draw given sums over the rows, to which sums over its other children are added."""

    draws: tuple[TensorVariable, ...]
    law: Additive
    sums: tuple[TensorVariable, ...]
    others: tuple[TensorVariable, ...]

    @property
    @override
    def name(self) -> str:
        return self.law.name

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        sums: tuple[TensorVariable, ...] = self.sums
        if self.others:
            rng, others = self.law.sums(rng, self.others)
            sums = tuple(map(add, sums, others))
        return self.law.draw_given(rng, shapes, sums)


def _exchange(model: pm.Model, data: Data) -> dict[str, NDArray[np.bool_]]:
    """Give data containers the rows of a shard, and say where entries with a law are missing."""
    missing = {}
    tables = {str(each.container.name): each for each in imputations_of(model)}
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(
            f"the arrays of a shard must have the same number of rows, at least one; got {lengths}."
        )
    first, *_ = data
    for name, values in data.items():
        container: Any = model[name]
        require_same_rows(data[first], values, names=(f"{first} of a shard", f"{name} of a shard"))
        numbers: object = values
        if container.ndim == 1:
            numbers = group_numbers(f"{name} of a shard", values, model, container, False)
        table = read_rows(f"{name} of a shard", model, container, numbers)
        given = table.values
        with np.errstate(invalid="ignore"):
            array = np.require(given, container.dtype, ["C", "A", "W"])
        held = container.get_value(borrow=True)
        old = held.shape
        if array.ndim != len(old) or array.shape[1:] != old[1:]:
            raise ValueError(
                f"{name} of a shard must have shape (rows, {', '.join(map(str, old[1:]))}), as in "
                f"the model; got {array.shape}."
            )
        if name in tables:
            gaps = tables[name].missing_numbers.any(axis=0)
            missing[name] = np.isnan(array) & gaps
            array = np.where(missing[name], held.mean(axis=0), array)
        advice = "remove those rows" + ", or have gaps there in the model too" * (name in tables)
        require_finite(f"{name} of a shard", array, advice, sources(table.columns or ()))
        if array.dtype.kind != "f" and not np.array_equal(array, given):
            raise ValueError(
                f"{name} of a shard must hold whole numbers, as in the model; got other "
                f"values of {given.dtype}."
            )
        container.set_value(array, borrow=True)
    return missing


def _initial_point(
    model: pm.Model, seed: int, natural: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Starting point of a chain, given natural values of some variables."""
    overrides: Any = {
        name: np.require(value, requirements=["C", "A"]) for name, value in natural.items()
    }
    initial = make_initial_point_fn(model=model, overrides=overrides, return_transformed=True)
    return initial(seed)

"""One compiled function for a whole Gibbs sweep.

The draws of the conditionals are chained by replacing, in each, the model's random variables by
their current values, so that every block sees the new values of those before it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import stated_in
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.conditional import Conditional, Move, Shapes
from pymc_nnsteps.moves.plan import check_scan
from pymc_nnsteps.steps.compiled import PointFunction

Array = np.ndarray

FAR = 4
"""Powers of ten between one and a scale, beyond which an error names it."""


class Sweep:
    """A compiled sweep over conditionals, in this order, as a function of the point."""

    def __init__(
        self,
        model: pm.Model,
        conditionals: Sequence[Conditional],
        shapes: Shapes,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        rng = pt.random.rng("rng")
        chained = chain_draws(model, conditionals, rng, shapes)
        drawn = chained.stored(model)
        results = [chained.rng, *drawn.values(), *chained.acceptances, *chained.averages]
        self.outputs: list[str] = [value.name for value in drawn]  # value variables that are drawn
        moves = [c for c in conditionals if isinstance(c, Move)]
        numbers = [move.n_tuned(shapes) for move in moves]
        self.n_tuned = sum(numbers)
        # The move of each tuned parameter; first parameters and averages of those that learn.
        self.moves = [move for move, n in zip(moves, numbers, strict=True) for _ in range(n)]
        self._parts = consecutive(numbers)
        learning = [move for move in moves if move.averages is not None]
        parts = consecutive([move.n_averages for move in learning])
        first = [self.moves.index(move) for move in learning]
        self.averaged = list(zip(first, parts, strict=True))
        self.n_averages = sum(move.n_averages for move in learning)
        tuned = [*(move.tuning for move in moves), *(move.averages for move in learning)]
        given: list[Any] = [pytensor.In(rng, mutable=True), *tuned]
        self.compiled = PointFunction(model, given, results, compile_kwargs, reads=drawn)
        natural = natural_values(model)
        self._values = model.value_vars
        self._bounded = {
            describe(rv): natural[rv]
            for rv in model.free_RVs
            if model.rvs_to_transforms[rv] is not None and not rv.owner.op.ndim_supp
        }

    def __call__(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        tuning: Sequence[float] = (),
        averages: Array | None = None,
    ) -> tuple[np.random.Generator, dict[str, np.ndarray], list[float], Array]:
        """Run a sweep from ``point`` with the parameters (n_tuned,) of the moves and averages.

        Returns the generator, new values, mean acceptance (n_tuned,), and numbers (n_averages,) to
        average.
        """
        tuned = np.array(tuning, dtype="float64")
        learnt = np.zeros(self.n_averages) if averages is None else averages
        parameters = [tuned[part] for part in self._parts]
        parameters += [learnt[part] for _, part in self.averaged]
        try:
            rng, *results = self.compiled(rng, *parameters, *self.compiled.read(point))
        except np.linalg.LinAlgError as error:
            block, new = self._block_that_failed()
            far = self._far_from_one({**point, **new})
            raise np.linalg.LinAlgError(f"{block} cannot be drawn{far}: {error}") from error
        n, m = len(self.outputs), len(self.outputs) + len(self._parts)
        values = dict(zip(self.outputs, results[:n], strict=True))
        acceptance = [mean for means in results[n:m] for mean in means.tolist()]
        return rng, values, acceptance, np.concatenate([learnt[:0], *results[m:]])

    def _block_that_failed(self) -> tuple[str, dict[str, Array]]:
        """First variable of the block whose draw raised an error, and values drawn before it."""
        function = self.compiled.function
        new: dict[str, Array] = {}
        position = getattr(function.vm, "position_of_error", -1)
        if position >= 0:
            failed = set(function.vm.nodes[position].outputs)
            drawn = function.maker.fgraph.outputs[1 : 1 + len(self.outputs)]
            for name, value in zip(self.outputs, drawn, strict=True):
                if failed & set(ancestors([value])):
                    return name, new
                if (stored := function.vm.storage_map[value][0]) is not None:
                    new[name] = stored
        return "a block of variables", {}

    def _far_from_one(self, point: Mapping[str, Array]) -> str:
        """Clause that names scales of a point that are far from one, each with its farthest."""
        natural = pytensor.function(
            self._values, list(self._bounded.values()), mode=ONCE, on_unused_input="ignore"
        )
        values, far = natural(*(point[value.name] for value in self._values)), []
        for name, scales in zip(self._bounded, values, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                orders = np.abs(np.log10(scales))
            if orders.size and (scales >= 0).all() and orders.max() > FAR:
                place = np.unravel_index(orders.argmax(), orders.shape)
                entry = f"[{', '.join(map(str, place))}]" if place else ""
                far.append(f"{name}{entry} = {scales[place]:.3g}")
        return f" at {', '.join(far)}" if far else ""


def consecutive(numbers: Sequence[int]) -> list[slice]:
    """Consecutive parts with these lengths."""
    return [slice(*ends) for ends in pairwise(accumulate(numbers, initial=0))]


def chain_draws(
    model: pm.Model, conditionals: Sequence[Conditional], rng: Variable, shapes: Shapes
) -> "Chained":
    """Chain the draws of conditionals, in an order that is checked."""
    chained = follow(natural_values(model), conditionals, rng, shapes, model.free_RVs)
    check_scan(conditionals, chained.given)
    return chained


@dataclass(frozen=True)
class Chained:
    """Draws that follow each other."""

    rng: Variable  # the advanced generator
    current: dict[Variable, Variable]  # from random variable to its value after the draws
    drawn: dict[Variable, Variable]  # the entries of ``current`` that are drawn
    acceptances: list[Variable]  # mean probabilities of acceptance of the moves that are adapted
    averages: list[Variable]  # numbers that are averaged over the tuning
    given: list[set[TensorVariable]]  # variables that each draw conditions on

    def stored(self, model: pm.Model) -> dict[Any, Variable]:
        """From value variable to its new value (transformed, where the variable is)."""
        values = {}
        for rv, value in self.drawn.items():
            transform = model.rvs_to_transforms[rv]
            if transform is not None:
                inputs = substitute(rv.owner.inputs, self.current)
                value = transform.forward(value, *inputs)
            values[model.rvs_to_values[rv]] = value
        return values


def follow(
    current: Mapping[Variable, Variable],
    conditionals: Sequence[Conditional],
    rng: Variable,
    shapes: Shapes,
    rvs: Collection[TensorVariable],
) -> Chained:
    """Let conditionals of a model's free variables draw in turn, each given the new values."""
    current = dict(current)
    drawn: dict[Variable, Variable] = {}
    acceptances: list[Variable] = []
    averages: list[Variable] = []
    given = []
    for conditional in conditionals:
        before = rng.type()
        draw = conditional.draw(before, shapes)
        new = {**draw.values, **draw.auxiliary}
        accepted = [] if draw.acceptance is None else [draw.acceptance]
        learnt = [] if draw.averages is None else [draw.averages]
        reported = [*accepted, *learnt]
        stated = stated_in([*new.values(), *reported], current)
        given.append(stated.intersection(rvs))
        symbolic = [draw.rng, *new.values(), *reported]
        rng, *results = substitute(symbolic, {before: rng, **current})
        acceptances.extend(results[len(new) : len(new) + len(accepted)])
        averages.extend(results[len(new) + len(accepted) :])
        current.update(zip(new, results, strict=False))
        drawn.update((rv, current[rv]) for rv in draw.values)
    return Chained(rng, current, drawn, acceptances, averages, given)

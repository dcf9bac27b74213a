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

from pymc_nnsteps.graphs.search import stated_in
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.conditional import Conditional, Shapes
from pymc_nnsteps.moves.scan import check_scan
from pymc_nnsteps.steps.compiled import Compiled


class Sweep:
    """A compiled sweep over conditionals, as a function of the point.

    Parameters
    ----------
    model : pm.Model
    conditionals : sequence of Conditional
        In the order in which they are drawn.
    shapes : mapping from random variable to tuple of int
    compile_kwargs : mapping
        Options of :func:`pymc.pytensorf.compile`.

    Attributes
    ----------
    inputs : list of str
        Names of the value variables that the sweep reads.
    outputs : list of str
        Names of the value variables that it draws; all of them are read as well.
    n_tuned : int
        Number of parameters that are adapted.
    waits : list of bool, length n_tuned
        Whether the move of each parameter starts only after the warm-up.
    compiled : Compiled
    """

    def __init__(
        self,
        model: pm.Model,
        conditionals: Sequence[Conditional],
        shapes: Shapes,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        rng = pt.random.rng("rng")
        next_rng, drawn, acceptances = chain_draws(model, conditionals, rng, shapes)
        values: list[Any] = [model.rvs_to_values[rv] for rv in model.free_RVs]
        results = [next_rng, *drawn.values(), *acceptances]
        used = set(ancestors(results))
        read = [value for value in values if value in used or value in drawn]
        self.inputs: list[str] = [value.name for value in read]
        self.outputs: list[str] = [value.name for value in drawn]
        moves = [c for c in conditionals if c.tuning is not None]
        numbers = [move.n_tuned(shapes) for move in moves]
        self.n_tuned = sum(numbers)
        self.waits = [m.waits for m, n in zip(moves, numbers, strict=True) for _ in range(n)]
        self._parts = [slice(*ends) for ends in pairwise(accumulate(numbers, initial=0))]
        tuned = [move.tuning for move in moves]
        inputs = [pytensor.In(rng, mutable=True), *tuned, *read]
        self.compiled = Compiled(inputs, results, compile_kwargs)
        self._dtypes = [value.dtype for value in read]

    def __call__(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        tuning: Sequence[float],
    ) -> tuple[np.random.Generator, dict[str, np.ndarray], list[float]]:
        """Run a sweep from ``point``.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : mapping from name to array
        tuning : sequence of float, length n_tuned
            Parameters of the moves that are adapted.

        Returns
        -------
        rng : numpy.random.Generator
        values : dict from name to array
        acceptance : list of float, length n_tuned
            Mean probability of acceptance of each of these moves.

        Raises
        ------
        numpy.linalg.LinAlgError
            If floating-point numbers do not hold the law of a block: it names the first variable.
        """
        self.compiled.refresh_if_data_changed()
        state = [
            np.asarray(point[name], dtype)
            for name, dtype in zip(self.inputs, self._dtypes, strict=True)
        ]
        tuned = np.array(tuning, dtype="float64")
        parameters = [tuned[part] for part in self._parts]
        try:
            rng, *results = self.compiled(rng, *parameters, *state)
        except np.linalg.LinAlgError as error:
            raise np.linalg.LinAlgError(f"{self._block_that_failed()}{error}") from error
        n = len(self.outputs)
        values = dict(zip(self.outputs, results[:n], strict=True))
        return rng, values, [mean for means in results[n:] for mean in means.tolist()]

    def _block_that_failed(self) -> str:
        """First variable of the block whose draw raised an error, to begin a sentence with."""
        function = self.compiled.function
        position = getattr(function.vm, "position_of_error", -1)
        if position < 0:
            return ""
        failed = set(function.vm.nodes[position].outputs)
        drawn = function.maker.fgraph.outputs[1 : 1 + len(self.outputs)]
        for name, value in zip(self.outputs, drawn, strict=True):
            if failed & set(ancestors([value])):
                return f"{name} cannot be drawn: "
        return ""


def chain_draws(
    model: pm.Model, conditionals: Sequence[Conditional], rng: Variable, shapes: Shapes
) -> tuple[Variable, dict[Any, Variable], list[Variable]]:
    """Chain the draws of conditionals.

    Returns
    -------
    next_rng : Variable
    values : dict
        From value variable to its new value (transformed, where the variable is).
    acceptances : list of Variable
        Mean probabilities of acceptance of the moves that are adapted.
    """
    chained = follow(natural_values(model), conditionals, rng, shapes, model.free_RVs)
    check_scan(conditionals, chained.given)
    return chained.rng, chained.stored(model), chained.acceptances


@dataclass(frozen=True)
class Chained:
    """Draws that follow each other.

    Attributes
    ----------
    rng : Variable
        The advanced generator.
    current : dict
        From random variable to its value after the draws.
    drawn : dict
        The entries of ``current`` that are drawn.
    acceptances : list of Variable
        Mean probabilities of acceptance of the moves that are adapted.
    given : list of set of TensorVariable
        Variables that each draw conditions on.
    """

    rng: Variable
    current: dict[Variable, Variable]
    drawn: dict[Variable, Variable]
    acceptances: list[Variable]
    given: list[set[TensorVariable]]

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
    """Let conditionals draw in turn, each given the new values of those before.

    Parameters
    ----------
    current : mapping from random variable to its value
    conditionals : sequence of Conditional
    rng : random generator variable
    shapes : mapping from random variable to tuple of int
    rvs : collection of TensorVariable
        The model's free variables, which draws condition on.
    """
    current = dict(current)
    drawn: dict[Variable, Variable] = {}
    acceptances: list[Variable] = []
    given = []
    for conditional in conditionals:
        before = rng.type()
        draw = conditional.draw(before, shapes)
        new = {**draw.values, **draw.auxiliary}
        reported = [] if draw.acceptance is None else [draw.acceptance]
        stated = stated_in([*new.values(), *reported], current)
        given.append(stated.intersection(rvs))
        symbolic = [draw.rng, *new.values(), *reported]
        rng, *results = substitute(symbolic, {before: rng, **current})
        acceptances.extend(results[len(new) :])
        current.update(zip(new, results, strict=False))
        drawn.update((rv, current[rv]) for rv in draw.values)
    return Chained(rng, current, drawn, acceptances, given)

"""One compiled function for a whole Gibbs sweep.

The draws of the conditionals are chained by replacing, in each, the model's random variables by
their current values, so that every block sees the new values of those before it. What depends
on data and constants only (Gram matrices, Cholesky factors, stacked designs) is taken out of the
sweep, computed once per chain, and kept in shared variables.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.elemwise import DimShuffle

from pymc_nnsteps.compiling import without_blas_notice
from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.conditionals.scan import check_scan
from pymc_nnsteps.conditionals.structure import stated_in, substitute


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
    stats : list of str
        Names of the statistics that the moves report.
    """

    def __init__(
        self,
        model: pm.Model,
        conditionals: Sequence[Conditional],
        shapes: Shapes,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        rng = pt.random.rng("rng")
        next_rng, drawn, stats = chain_draws(model, conditionals, rng, shapes)
        values: list[Any] = [model.rvs_to_values[rv] for rv in model.free_RVs]
        results = [next_rng, *drawn.values(), *stats.values()]
        used = set(ancestors(results))
        read = [value for value in values if value in used or value in drawn]
        results, invariants = take_out_invariants(results, [rng, *read])
        self.inputs: list[str] = [value.name for value in read]
        self.outputs: list[str] = [value.name for value in drawn]
        self.stats = list(stats)
        self._constants = list(invariants.values())
        self._invariants = pytensor.function(
            [], list(invariants), mode=Mode(linker="py", optimizer="fast_compile")
        )
        self.refresh()
        with without_blas_notice():
            self._function = pymc_compile(
                [pytensor.In(rng, mutable=True), *read],
                results,
                on_unused_input="ignore",
                **compile_kwargs,
            )
        self._function.trust_input = True
        self._dtypes = [value.dtype for value in read]
        self._fed_back = [self.inputs.index(name) for name in self.outputs]

    def refresh(self) -> None:
        """Compute again what depends on the model's data only."""
        for constant, value in zip(self._constants, self._invariants(), strict=True):
            constant.set_value(value, borrow=True)

    def __call__(
        self, rng: np.random.Generator, point: Mapping[str, np.ndarray], sweeps: int
    ) -> tuple[np.random.Generator, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run sweeps from ``point``; returns the generator, the new values and statistics."""
        state = [
            np.asarray(point[name], dtype)
            for name, dtype in zip(self.inputs, self._dtypes, strict=True)
        ]
        n = len(self.outputs)
        for _ in range(sweeps):
            rng, *results = self._function(rng, *state)
            for position, value in zip(self._fed_back, results[:n], strict=True):
                state[position] = value
        return (
            rng,
            dict(zip(self.outputs, results[:n], strict=True)),
            dict(zip(self.stats, results[n:], strict=True)),
        )


def chain_draws(
    model: pm.Model, conditionals: Sequence[Conditional], rng: Variable, shapes: Shapes
) -> tuple[Variable, dict[Any, Variable], dict[str, Variable]]:
    """Chain the draws of conditionals.

    Returns
    -------
    next_rng : Variable
    values : dict
        From value variable to its new value (transformed, where the variable is).
    stats : dict
        Statistics of the moves.
    """
    current = natural_values(model)
    drawn: dict[Variable, Variable] = {}
    stats: dict[str, Variable] = {}
    given = []
    for conditional in conditionals:
        draw = conditional.draw(rng, shapes)
        given.append(stated_in(draw.values.values(), model.free_RVs))
        symbolic = [draw.rng, *draw.values.values(), *draw.stats.values()]
        rng, *results = substitute(symbolic, current)
        stats.update(zip(draw.stats, results[len(draw.values) :], strict=True))
        current.update(zip(draw.values, results, strict=False))
        drawn.update((rv, current[rv]) for rv in draw.values)
    check_scan(conditionals, given)
    values = {}
    for rv, value in drawn.items():
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            inputs = substitute(rv.owner.inputs, current)
            value = transform.forward(value, *inputs)
        values[model.rvs_to_values[rv]] = value
    return rng, values, stats


def natural_values(model: pm.Model) -> dict[Variable, Variable]:
    """Each free random variable as a function of the model's value variables."""
    current: dict[Variable, Variable] = {}
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            inputs = substitute(rv.owner.inputs, current)
            value = transform.backward(value, *inputs)
        current[rv] = value
    return current


def take_out_invariants(
    outputs: Sequence[Variable], roots: Collection[Variable]
) -> tuple[list[Variable], dict[Variable, SharedVariable]]:
    """Replace the largest parts of a graph that do not depend on ``roots`` by shared variables.

    Returns
    -------
    outputs : list of Variable
        The graph with shared variables (still empty) in the place of these parts.
    invariants : dict
        From each part to its shared variable.
    """
    graph = FunctionGraph(outputs=outputs, clone=False)
    MergeOptimizer().rewrite(graph)
    outputs = graph.outputs
    varying = set(roots)
    found: dict[Variable, SharedVariable] = {}
    for node in io_toposort(roots, outputs):
        if varying.isdisjoint(node.inputs):
            continue
        varying.update(node.outputs)
        for variable in node.inputs:
            part = _behind_views(variable)
            if part not in varying and part not in found and _is_worth_keeping(part):
                empty = np.empty([n or 0 for n in part.type.shape], dtype=part.dtype)
                found[part] = pytensor.shared(empty, shape=part.type.shape, borrow=True)
    return substitute(outputs, found) if found else list(outputs), found


def _behind_views(variable: Variable) -> Any:
    """What a variable is a view of: views cost nothing inside the sweep."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle | ViewOp):
        variable = variable.owner.inputs[0]
    return variable


def _is_worth_keeping(part: Any) -> bool:
    """Whether a part is computed from data; the compiler folds the rest itself."""
    computed = part.owner is not None and part.dtype.startswith("float")
    return computed and any(
        isinstance(leaf, SharedVariable) or (isinstance(leaf, Constant) and np.size(leaf.data) > 1)
        for leaf in ancestors([part])
        if leaf.owner is None
    )

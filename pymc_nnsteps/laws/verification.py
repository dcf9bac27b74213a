r"""Comparison of the laws of draws, read off the draws themselves, with a model's own density.

A draw is a chain of random nodes. The last node, or all standard normals at the end, determine the
law; earlier nodes (Polya-Gamma variables, precisions of Student-t cases) are auxiliary.
With auxiliaries :math:`a`, drawn from :math:`q(a \mid v)`, and a final draw from
:math:`r(v' \mid a)`, the full conditional :math:`p` is left invariant if

.. math:: \log p(v) + \log q(a \mid v) - \log r(v \mid a) = \text{const in } v

for any :math:`a`. This difference is evaluated at random points, from the bulk of the law to far
away; :math:`p` is the product of the model's own densities of the variable and its children. The
parameters of :math:`r` are computed with NaN for the drawn variables, so a law that uses their
values is detected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.random.basic import UniformRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import ONCE, SPECIAL_MATRICES, without_blas_notice
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.graphs.values import natural_values
from pymc_nnsteps.laws import densities
from pymc_nnsteps.laws.conditional import Conditional, Shapes
from pymc_nnsteps.laws.densities import Array, Density
from pymc_nnsteps.laws.recognition import find_conditionals, recognise
from pymc_nnsteps.random.lattice import choose_point
from pymc_nnsteps.random.standard_normal import StandardNormalRV
from pymc_nnsteps.random.truncated_normal import ArgmaxUtilitiesRV

QUICK = Mode("py", "fast_compile").excluding(*SPECIAL_MATRICES)
"""Compilation mode for log densities."""
FARTHEST = 30.0
"""Distance up to which steps on a line are compared; those of scales are of their logarithm."""
STABLE = QUICK.including("stabilize", "specialize")
"""Compilation mode for log densities of decisions that are almost certain."""

Point = Mapping[str, NDArray[Any]]


def children_of(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Random variables in whose parameters some variables appear."""
    return list(dict.fromkeys(child for rv in rvs for child in children(model, rv)))


@dataclass
class StatedDensity:
    """Law of a draw at a point, with its auxiliary variables held fixed."""

    law: Density  # law of the array that is drawn last
    # The point with the drawn values that follow from the last array, and their log Jacobian.
    point_at: Callable[[Array], Point]
    log_jacobian: Callable[[Array], float]
    log_auxiliary: Callable[[Point], float]  # log density of the auxiliary variables at a point
    # The model's log densities of the drawn variables and their children at a point.
    log_density: Callable[[Point], list[Array]]
    magnitude: float = 1.0

    def both(self, last: Array) -> tuple[float, float]:
        """Log density of the model with the auxiliary variables, and log density of the law."""
        point = self.point_at(last)
        parts = [float(np.sum(part)) for part in self.log_density(point)]
        self.magnitude = max(self.magnitude, *(abs(part) for part in parts if np.isfinite(part)))
        theirs = sum(parts) + self.log_auxiliary(point)
        return theirs, self.law.log_density(last) - self.log_jacobian(last)

    @classmethod
    def of(
        cls, model: pm.Model, conditional: Conditional, point: Point, rng: np.random.Generator
    ) -> "StatedDensity":
        """Read the law off a draw."""
        shapes = shapes_of(model, point)
        chain = _DrawGraph.of(model, conditional, shapes)
        drawn = [node.outputs[1] for node in chain.auxiliary]
        held = chain.compiled(drawn, chain.rng)(point, rng) if drawn else []
        direct = children_of(model, conditional.draws)
        terms = model.logp(vars=[*conditional.draws, *direct], jacobian=False, sum=False)
        log_density = chain.compiled(terms, mode=STABLE)
        place = _placing(model, conditional.draws, chain, point)
        known: dict[Any, Any] = {
            node.outputs[1]: pt.as_tensor(value)
            for node, value in zip(chain.auxiliary, held, strict=True)
        }
        stated = [
            chain.compiled(graph_replace(node.op.dist_params(node), known, strict=False))
            for node in chain.auxiliary
        ]

        def log_auxiliary(point: Point) -> float:
            return sum(
                densities.DENSITIES[type(node.op)](value.shape, *parameters(point)).log_density(
                    value
                )
                for node, value, parameters in zip(chain.auxiliary, held, stated, strict=True)
            )

        law, values, log_jacobian = _final(chain, conditional, point, known)
        return cls(law, lambda last: place(values(last)), log_jacobian, log_auxiliary, log_density)


@dataclass(frozen=True)
class _DrawGraph:
    """Random nodes of a draw, as a graph of the model's value variables."""

    model: pm.Model
    rng: Variable
    auxiliary: list[Apply]
    final: list[Apply]
    values: list[Any]

    @classmethod
    def of(cls, model: pm.Model, conditional: Conditional, shapes: Shapes) -> "_DrawGraph":
        rng = pt.random.rng("rng")
        draw = conditional.draw(rng, shapes)
        outputs = [draw.rng, *(draw.values[rv] for rv in conditional.draws)]
        replaced = graph_replace(outputs, natural_values(model), strict=False)
        graph = FunctionGraph(outputs=replaced, clone=False)
        MergeOptimizer().rewrite(graph)
        ends: list[Any] = list(graph.outputs)
        current, *values = ends
        nodes: list[Apply] = []
        while current is not rng:
            nodes.insert(0, current.owner)
            current = current.owner.inputs[0]
        n = len(nodes)
        while n and isinstance(nodes[n - 1].op, StandardNormalRV):
            n -= 1
        n = n if n < len(nodes) else len(nodes) - 1
        for rv, value in zip(conditional.draws, values, strict=True):
            assert value.dtype == rv.dtype, f"{describe(rv)} is drawn as {value.dtype}"
        return cls(model, rng, nodes[:n], nodes[n:], values)

    def compiled(
        self, outputs: Sequence[Variable], *others: Variable, mode: Mode = ONCE
    ) -> Callable[..., list[Array]]:
        """Compile expressions as a function of a point and of other variables."""
        names = list(self.model.value_vars)
        function = pytensor.function(
            [*names, *others], list(outputs), mode=mode, on_unused_input="ignore"
        )

        def evaluate(point: Point, *given: Any) -> list[Array]:
            results: list[Array] = function(*(point[v.name] for v in names), *given)
            return results

        return evaluate

    def given(self, replace: Mapping[Any, Any]) -> list[Any]:
        """Drawn values, with variables replaced."""
        return list(graph_replace(self.values, dict(replace), strict=False))

    def sizes(self, point: Point) -> list[tuple[int, ...]]:
        """Shapes of the arrays that are drawn last."""
        drawn = [node.outputs[1] for node in self.final]
        draw = self.compiled(drawn, self.rng)
        return [part.shape for part in draw(point, np.random.default_rng(0))]


def _placing(
    model: pm.Model, rvs: Sequence[TensorVariable], chain: _DrawGraph, point: Point
) -> Callable[[list[Array]], Point]:
    """Function that puts natural values of variables in a point, with the model's transforms."""
    naturals = [rv.type() for rv in rvs]
    current = natural_values(model)
    placed = []
    for rv, natural in zip(rvs, naturals, strict=True):
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            inputs = graph_replace(rv.owner.inputs, current, strict=False)
            natural = transform.forward(natural, *inputs)
        placed.append(natural)
    function = chain.compiled(placed, *naturals)
    names = [model.rvs_to_values[rv].name for rv in rvs]

    def place(values: list[Array]) -> Point:
        typed = [np.asarray(v, rv.dtype) for v, rv in zip(values, rvs, strict=True)]
        return {**point, **dict(zip(names, function(point, *typed), strict=True))}

    return place


Final = tuple[Density, Callable[[Array], list[Array]], Callable[[Array], float]]


def _final(
    chain: _DrawGraph, conditional: Conditional, point: Point, known: Mapping[Any, Any]
) -> Final:
    """Law of the last array, and the drawn values as functions of it."""
    blind = dict(point)
    for rv in conditional.draws:
        name = chain.model.rvs_to_values[rv].name
        if blind[name].dtype.kind == "f":
            blind[name] = np.full_like(blind[name], np.nan)
    if isinstance(chain.final[0].op, StandardNormalRV):
        return _normals(chain, point, blind, known)
    [node] = chain.final
    choice = as_op(choose_point, 1)
    chosen = next((v for v in ancestors(chain.values) if v.owner and v.owner.op == choice), None)
    if chosen is not None:
        return _point_of_a_line(chain, chosen, point, known)
    if isinstance(node.op, UniformRV):
        return _coins(chain, node, blind, known)
    stated = graph_replace(node.op.dist_params(node), dict(known), strict=False)
    seen = point if isinstance(node.op, ArgmaxUtilitiesRV) else blind
    parameters = tuple(chain.compiled(stated)(seen))
    _require_numbers(parameters)
    drawn: Any = node.outputs[1]
    raw: Any = drawn.type()
    [shape] = chain.sizes(point)
    law = densities.DENSITIES[type(node.op)](shape, *parameters)
    return law, *_placed(chain, raw, {**known, drawn: raw}, point)


def _placed(
    chain: _DrawGraph, raw: Any, replace: Mapping[Any, Any], point: Point
) -> tuple[Callable[[Array], list[Array]], Callable[[Array], float]]:
    """The drawn values, and the log Jacobian of the first, as functions of the last array."""
    placed = chain.given(replace)
    slope: Any = pt.grad(placed[0].sum(), raw)
    values, slopes = chain.compiled(placed, raw), chain.compiled([slope], raw)

    def log_jacobian(last: Array) -> float:
        return float(np.log(np.abs(slopes(point, _typed(raw, last))[0])).sum())

    return lambda last: values(point, _typed(raw, last)), log_jacobian


def _point_of_a_line(
    chain: _DrawGraph, chosen: Any, point: Point, known: Mapping[Any, Any]
) -> Final:
    """Law of a step by a lattice on a line, whose density is taken for granted."""
    points, density_there, _ = chosen.owner.inputs
    raw, line = chosen.type(), points.type()
    [at] = graph_replace([density_there], {**known, points: line}, strict=False)
    log_density = chain.compiled([at], line)

    def log_density_at(last: Array) -> float:
        there = np.full(points.type.shape, last[0], line.dtype)
        return float(log_density(point, there)[0][0])

    def sample(rng: np.random.Generator, scale: float) -> Array:
        shift: Array = min(scale, FARTHEST) * rng.normal(size=1) / 4
        halves = (shift / 2**n for n in range(20))
        return next((each for each in halves if np.isfinite(log_density_at(each))), shift)

    law = Density(log_density_at, sample)
    return law, *_placed(chain, raw, {**known, chosen: raw}, point)


def _typed(variable: Any, value: Array) -> Array:
    typed: Array = np.asarray(value, variable.dtype)
    return typed


def _require_numbers(arrays: Sequence[Array]) -> None:
    assert not any(np.isnan(array).any() for array in arrays), (
        "its law is not a number where its own value is hidden"
    )


def _normals(chain: _DrawGraph, point: Point, blind: Point, known: Mapping[Any, Any]) -> Final:
    """Law of an affine function of standard normals; zero and unit vectors give mean and factor."""
    ends_with: list[Any] = [node.outputs[1] for node in chain.final]
    noises = [normal.type() for normal in ends_with]
    replace = {**known, **dict(zip(ends_with, noises, strict=True))}
    sizes = chain.sizes(point)
    draw = chain.compiled(chain.given(replace), *noises)
    ends = np.cumsum([int(np.prod(size)) for size in sizes])

    def drawn(noise: Array) -> list[Array]:
        parts = np.split(noise, ends[:-1])
        return draw(
            blind,
            *(
                _typed(v, part).reshape(size)
                for v, part, size in zip(noises, parts, sizes, strict=True)
            ),
        )

    def flat(noise: Array) -> Array:
        vector: Array = np.concatenate([np.ravel(part) for part in drawn(noise)]).astype(float)
        return vector

    at_zero = drawn(np.zeros(ends[-1]))
    shapes = [value.shape for value in at_zero]
    epsilon = max(float(np.finfo(value.dtype).eps) for value in at_zero)
    mean = flat(np.zeros(ends[-1]))
    factor = np.stack([flat(unit) - mean for unit in np.eye(ends[-1])], axis=1)
    _require_numbers([mean, factor])

    def log_density(vector: Array) -> float:
        # where entries sum to zero, the factor has no full rank
        noise = np.linalg.lstsq(factor, vector - mean, epsilon * max(factor.shape))[0]
        return float(-0.5 * np.sum(np.square(noise)))

    def sample(rng: np.random.Generator, scale: float) -> Array:
        vector: Array = mean + factor @ (scale * rng.normal(size=factor.shape[1]))
        return vector

    def split(vector: Array) -> list[Array]:
        cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = np.split(vector, cuts)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    return Density(log_density, sample), split, lambda last: 0.0


def _coins(chain: _DrawGraph, node: Apply, blind: Point, known: Mapping[Any, Any]) -> Final:
    """Law of Bernoulli draws: uniform numbers below a probability with a logit."""
    level: Any = node.outputs[1]
    [probability] = {
        v.owner.inputs[1]
        for v in ancestors(chain.values)
        if v.owner is not None and level in v.owner.inputs
    }
    assert isinstance(probability.owner.op.scalar_op, Sigmoid)
    [logit] = chain.compiled(
        graph_replace([probability.owner.inputs[0]], dict(known), strict=False)
    )(blind)
    [shape] = chain.sizes(blind)
    _require_numbers([logit])

    def sample(rng: np.random.Generator, scale: float) -> Array:
        return rng.integers(2, size=shape).astype(float)

    law = Density(lambda gates: float(np.sum(gates * logit)), sample)
    return law, lambda gates: [gates], lambda gates: 0.0


SCALES = (0.3, 1.0, 1.0, 3.0, 30.0, 1e3)
"""Distances from the bulk of a law, in units of its scale, at which densities are compared."""

RTOL, RTOL_SINGLE = 1e-7, 1e-3
"""Relative tolerance of differences of log densities, in double and single precision."""

LEAST_LOG = float(np.log(np.finfo("float64").tiny))
"""Log density below which the model's own may be that of zero, as a probability underflows."""


def compare_laws(
    model: pm.Model, *, rtol: float | None, rng: np.random.Generator
) -> list[tuple[str, str, float]]:
    """The largest discrepancy of each block's law and the model's density, by :func:`compare`."""
    rows = []
    with without_blas_notice():
        point = _random_point(model, rng)
        shapes = shapes_of(model, point)
        for conditional in find_conditionals(model, recognise(model)[0]):
            found = 0.0
            if any(0 not in shapes[rv] for rv in conditional.draws):
                found, point = compare(model, conditional, point, rng=rng, rtol=rtol)
            names = ", ".join(map(describe, conditional.draws))
            rows.append((names, conditional.name, found))
    return rows


def _random_point(model: pm.Model, rng: np.random.Generator) -> Point:
    """Random point near the initial one; its density is finite where that of the initial one is."""
    start = model.initial_point(random_seed=int(rng.integers(2**31)))
    moved = {
        name: value + 0.3 * rng.normal(size=np.shape(value)).astype(value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in start.items()
    }
    log_densities = model.compile_logp(mode=QUICK, sum=False)
    try:
        with np.errstate(all="ignore"):
            finite = all(np.isfinite(each).all() for each in log_densities(moved))
    except ParameterValueError:
        return start
    return moved if finite else start


def compare(
    model: pm.Model,
    conditional: Conditional,
    point: Point,
    *,
    rng: np.random.Generator,
    rtol: float | None = None,
) -> tuple[float, Point]:
    """Largest discrepancy of a law and the model's density at a point, relative to the tolerance.

    Laws that differ raise an AssertionError with the variables and a child that the law misreads.
    """
    try:
        return _compare(model, conditional, point, rng, rtol)
    except AssertionError as difference:
        names = ", ".join(map(describe, conditional.draws))
        suspects = _misread(model, conditional, point, rtol)
        message = f"{names}: {difference}; {suspects}"
        raise AssertionError(message) from None


def _compare(
    model: pm.Model,
    conditional: Conditional,
    point: Point,
    rng: np.random.Generator,
    rtol: float | None,
) -> tuple[float, Point]:
    dtypes = {value.dtype for value in model.rvs_to_values.values()}
    epsilon = float(np.finfo("float32" if "float32" in dtypes else "float64").eps)
    relative = (RTOL if epsilon < 1e-8 else RTOL_SINGLE) if rtol is None else rtol
    with np.errstate(all="ignore"):
        stated = StatedDensity.of(model, conditional, point, rng)
        reference, ours = stated.both(stated.law.sample(rng, 0.5))
        assert np.isfinite(ours), f"the log density of its conditional is {ours} at a draw from it"
        assert np.isfinite(reference), (
            f"the model's log density is {reference} at a draw from its conditional"
        )
        worst = 0.0
        for scale in SCALES:
            there, ours_there = stated.both(stated.law.sample(rng, scale))
            model_difference, difference = there - reference, ours_there - ours
            underflows = model_difference == -np.inf and difference < LEAST_LOG
            if difference == model_difference or underflows:
                continue
            size = relative * (1 + abs(model_difference)) + 450 * epsilon * stated.magnitude
            error = abs(difference - model_difference) / size
            assert error <= 1, (
                f"the log density of its conditional differs by {difference} between two points, "
                f"the model's by {model_difference}"
            )
            worst = max(worst, float(error))
        return worst, stated.point_at(stated.law.sample(rng, 0.5))


def _misread(model: pm.Model, conditional: Conditional, point: Point, rtol: float | None) -> str:
    """First child that a law misreads when the other children are removed."""
    direct = children_of(model, conditional.draws)
    if not direct:
        return "it has no children: its prior is misread"
    if len(direct) > 1:
        for child in direct:
            others = [other for other in direct if other is not child]
            alone = _without(model, others)
            try:
                [found] = find_conditionals(alone, conditional.draws)
                _compare(alone, found, point, np.random.default_rng(0), rtol)
            except AssertionError:
                return f"child {describe(child)} is misread"
            except (NotConjugate, ValueError):
                continue
    return f"children: {', '.join(map(describe, direct))}"


def _without(model: pm.Model, others: Sequence[TensorVariable]) -> pm.Model:
    """View of a model without some of its variables."""
    view: pm.Model = object.__new__(pm.Model)
    view.__dict__.update(model.__dict__)
    view.free_RVs = [rv for rv in model.free_RVs if rv not in others]
    view.observed_RVs = [rv for rv in model.observed_RVs if rv not in others]
    return view

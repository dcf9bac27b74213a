"""What the tests of this room share: quick compilation, natural points, and exact laws of draws.

A draw of a Gaussian conditional is an affine function of standard normals. So its law needs no
sampling: the normals are replaced by inputs, and ``J`` and ``m`` of ``draw = m + J noise`` are
read off by unit vectors. What a piecewise or truncated draw claims is read off the inputs of its
random variable in the same way. Both are then compared with the model's own log density.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import UniformRV

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs import shapes as graph_shapes
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.moves.plan import Options, plan
from pymc_nnsteps.network.activations import logit_of
from pymc_nnsteps.random.op import KernelRV
from pymc_nnsteps.random.standard_normal import StandardNormalRV
from tests.modes import FAST


def evaluate(outputs, givens=()):
    """Values of expressions, with variables (also shared and random ones) replaced by arrays.

    Graphs are rewritten, as lengths of one that nothing states are not to be broadcast otherwise.
    """
    replace = {v: pt.as_tensor(np.asarray(a, dtype=v.dtype)) for v, a in dict(givens).items()}
    replaced = clone_replace(list(outputs), replace, rebuild_strict=False)
    return pytensor.function([], replaced, mode=FAST, on_unused_input="ignore")()


_compiled = WeakKeyDictionary()


def logp_of(model):
    """The model's own log density, compiled once; it is to be complete by then."""
    if model not in _compiled:
        _compiled[model] = model.compile_logp(mode=ONCE)
    return _compiled[model]


_starts = WeakKeyDictionary()


def start_of(model):
    """Its initial point, computed once for as many variables and for the data that there are."""
    data = [container.get_value(borrow=True) for container in model.data_vars]
    seen, start = _starts.get(model, ([], {}))
    same = len(seen) == len(data) and all(a is b for a, b in zip(seen, data, strict=True))
    if not same or len(start) != len(model.free_RVs):
        start = model.initial_point()
        _starts[model] = data, start
    return {name: value.copy() for name, value in start.items()}


def shapes_of(model):
    """Shapes of its variables."""
    return graph_shapes.shapes_of(model, start_of(model))


def point_of(model, rng, **given):
    """A random point: values of the free variables by name, in the model's value space."""
    point = start_of(model)
    for name, value in point.items():
        random = rng.normal(size=value.shape)
        point[name] = np.asarray(given.get(name, random), dtype=value.dtype).reshape(value.shape)
    return point


def sweep_of(model, rvs=None, **options):
    """Draws of a sweep, as the Gibbs step plans it."""
    wanted = model.free_RVs if rvs is None else rvs
    return list(plan(model, wanted, Options(**options), shapes_of(model)).sweep)


def draw_graph(model, conditional, shapes=None):
    """One draw in terms of the value variables: (rng, new rng, values of ``conditional.draws``)."""
    rng = pt.random.rng("rng")
    draw = conditional.draw(rng, shapes_of(model) if shapes is None else shapes)
    assert set(draw.values) == set(conditional.draws)
    outputs = [draw.rng, *(draw.values[rv] for rv in conditional.draws)]
    graph = FunctionGraph(
        outputs=graph_replace(outputs, natural_values(model), strict=False), clone=False
    )
    MergeOptimizer().rewrite(graph)
    next_rng, *values = graph.outputs
    for rv, value in zip(conditional.draws, values, strict=True):
        assert value.dtype == rv.dtype, f"{rv.name} is {rv.dtype}, drawn as {value.dtype}"
        assert value.ndim == rv.ndim
    return rng, next_rng, values


def random_nodes(rng, next_rng, values):
    """The random variables of a draw in the order of the generator, each of which is used once.

    (A model's own random variable may still stand in the graph for its shape.)
    """
    kinds = StandardNormalRV | KernelRV | UniformRV
    nodes = {v.owner for v in ancestors(values) if v.owner and isinstance(v.owner.op, kinds)}
    chain, current = [], rng
    while nodes:
        [node] = [node for node in nodes if node.inputs[0] is current]
        chain.append(node)
        nodes.remove(node)
        current = node.outputs[0]
    assert current is next_rng
    return chain


def gate_draw(model, conditional, held=()):
    """Gates drawn at a point from given uniform numbers, with the draws of other kinds held."""
    rng, next_rng, [value] = draw_graph(model, conditional)
    *others, node = random_nodes(rng, next_rng, [value])
    assert isinstance(node.op, UniformRV)
    uniform = node.outputs[1].type()
    known = {
        other.outputs[1]: pt.as_tensor(array) for other, array in zip(others, held, strict=True)
    }
    [drawn] = graph_replace([value], {**known, node.outputs[1]: uniform}, strict=False)
    names = list(model.value_vars)
    function = pytensor.function([*names, uniform], drawn, mode=FAST, on_unused_input="ignore")
    return lambda point, uniforms: function(*(point[v.name] for v in names), uniforms)


def integrand_of(model, omegas):
    """The model's log density with Bernoulli densities replaced by Polya-Gamma integrands.

    ``omegas`` maps children to their Polya-Gamma variables, an array of the child's shape each.
    """
    others = [rv for rv in model.basic_RVs if rv not in omegas]
    natural = natural_values(model)
    stated = [array for child in omegas for array in (natural[child], logit_of(child))]
    stated = [graph_replace(array, natural, strict=False) for array in stated]
    outputs = [*model.logp(vars=others, sum=False), *stated]
    names = list(model.value_vars)
    function = pytensor.function(names, outputs, mode=FAST, on_unused_input="ignore")

    def log_density(point):
        results = function(*(point[v.name] for v in names))
        total = sum(np.sum(part) for part in results[: len(others)])
        values, psis = results[len(others) :: 2], results[len(others) + 1 :: 2]
        for value, psi, omega in zip(values, psis, omegas.values(), strict=True):
            total += np.sum((value - 0.5) * psi - omega * psi**2 / 2)
        return total

    return log_density


def flat(arrays):
    """Arrays, one after another, as a vector."""
    return np.concatenate([np.ravel(array) for array in arrays])


@dataclass
class GaussianLaw:
    """``N(mean, factor factor^T)`` of the flattened draws of a conditional."""

    mean: np.ndarray
    factor: np.ndarray

    @property
    def covariance(self):
        return self.factor @ self.factor.T

    def log_density(self, v):
        """Up to a constant."""
        d = v - self.mean
        if self.factor.shape[0] == self.factor.shape[1]:
            return -0.5 * np.sum(np.linalg.solve(self.factor, d) ** 2)
        return -0.5 * d @ np.linalg.solve(self.covariance, d)


def gaussian_law(
    model, conditional, point, shapes=None, held=(), auxiliary=None, uses_own_values=False
):
    """Exact law of a draw: every standard normal of its graph is set to zero, then to each unit.

    The drawn variables' own values are NaN meanwhile, unless it uses them: that shows. ``held``
    replaces draws of other kinds, in their order, by given values, and ``auxiliary`` variables
    that are not the model's. The law is that of transformed values where the model has transforms.
    """
    rng, next_rng, values = draw_graph(model, conditional, shapes)
    transforms = [model.rvs_to_transforms[rv] for rv in conditional.draws]
    values = [
        value if transform is None else transform.forward(value)
        for transform, value in zip(transforms, values, strict=True)
    ]
    values = substitute(values, {v: pt.as_tensor(array) for v, array in (auxiliary or {}).items()})
    nodes = random_nodes(rng, next_rng, values)
    if held is not None:
        others = [node for node in nodes if not isinstance(node.op, StandardNormalRV)]
        nodes = [node for node in nodes if node not in others]
        given = {
            node.outputs[1]: pt.as_tensor(value) for node, value in zip(others, held, strict=True)
        }
        noises = [node.outputs[1] for node in nodes]
    inputs = [noise.type() for noise in noises]
    known = given | dict(zip(noises, inputs, strict=True))
    replaced = graph_replace(values, known, strict=False)
    names = list(model.value_vars)
    blind = dict(point)
    for rv in () if uses_own_values else conditional.draws:
        name = model.rvs_to_values[rv].name
        blind[name] = np.full_like(point[name], np.nan)
    own = [blind[value.name] for value in names]
    lengths = graph_replace([node.op.dist_params(node)[0] for node in nodes], given, strict=False)
    sizes = pytensor.function(names, lengths, mode=ONCE, on_unused_input="ignore")
    shapes_of_noise = [tuple(size) for size in sizes(*own)]
    function = pytensor.function([*names, *inputs], replaced, mode=ONCE, on_unused_input="ignore")

    def draw(noise):
        parts, start = [], 0
        for variable, shape in zip(inputs, shapes_of_noise, strict=True):
            part = noise[start : start + int(np.prod(shape))].reshape(shape)
            start += part.size
            parts.append(part.astype(variable.dtype))
        drawn = function(*own, *parts)
        for rv, value in zip(conditional.draws, drawn, strict=True):
            assert value.shape == point[model.rvs_to_values[rv].name].shape
        return flat(drawn).astype(float)

    n = sum(int(np.prod(shape)) for shape in shapes_of_noise)
    mean = draw(np.zeros(n))
    factor = np.stack([draw(unit) - mean for unit in np.eye(n)], axis=1)
    return GaussianLaw(mean, factor)


def put(point, model, rvs, vector):
    """``point`` with the values of ``rvs`` taken from a flat vector."""
    new, start = dict(point), 0
    for rv in rvs:
        name = model.rvs_to_values[rv].name
        old = point[name]
        new[name] = np.asarray(vector[start : start + old.size], old.dtype).reshape(old.shape)
        start += old.size
    return new


def assert_exact_gaussian(model, conditional, point, *, rtol=1e-10, seed=0, shapes=None):
    """The claimed Gaussian law has the model's own differences of log densities, tails included.

    Differences are taken at random pairs of points, from the bulk of the claimed law to 1e3 of
    its standard deviations away. Random pairs in number beyond the parameters of a quadratic
    determine it: a wrong mean, precision, coefficient or index shows at the first of them.
    """
    law = gaussian_law(model, conditional, point, shapes)
    logp = logp_of(model)
    rng = np.random.default_rng(seed)

    def at(vector):
        return float(logp(put(point, model, conditional.draws, vector)))

    origin = law.mean
    reference = at(origin)
    assert np.isfinite(reference)
    for scale in (0.3, 1.0, 1.0, 10.0, 10.0, 1e3):
        noise = scale * rng.normal(size=law.factor.shape[1])
        other = origin + law.factor @ noise
        theirs, ours = at(other) - reference, law.log_density(other)
        allowed = rtol * abs(theirs) + 1e-13 * max(abs(reference), 1.0) * (rtol / 1e-10)
        assert abs(ours - theirs) <= allowed + rtol, (
            f"log density differs by {ours}, the model's by {theirs} at {scale} sd"
        )
    return law

"""Shapes of a model's variables, and data that do not fit their distribution or are drawn anew.

Where a column of targets meets a row of means, PyMC broadcasts and compares every number with
every parameter. Nobody intends such a model, and readers decline it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.logprob.basic import conditional_logp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, is_a, is_univariate
from pymc_nnsteps.graphs.search import draws_at_random, entering, parameters, random_in, size_of
from pymc_nnsteps.graphs.values import observed_values

Shape = Sequence[int | None]
"""Lengths of axes; None where they are not known."""


def shapes_of(
    model: pm.Model, initial_point: Mapping[str, NDArray] | None = None
) -> dict[TensorVariable, tuple[int, ...]]:
    """Shapes of the model's variables, by default from its data or its initial point."""
    shapes: dict[TensorVariable, tuple[int, ...]] = {}
    if initial_point is None:
        stated = [rv.shape for rv in model.free_RVs]
        for rv, found in zip(model.free_RVs, _evaluated(stated), strict=True):
            known = [n for n in found if n is not None]
            if len(known) < len(found):
                return shapes_of(model, model.initial_point())
            shapes[rv] = tuple(known)
    else:
        shapes = {rv: _natural_shape(model, rv, initial_point) for rv in model.free_RVs}
    for rv in model.observed_RVs:
        shapes[rv] = _shape_of_data(model.rvs_to_values[rv])
    return shapes


def _shape_of_data(value: Any) -> tuple[int, ...]:
    if isinstance(value, Constant):
        return np.shape(value.data)
    if isinstance(value, SharedVariable):
        return np.shape(value.get_value(borrow=True))
    return tuple(int(n) for n in value.shape.eval(mode="FAST_COMPILE"))


def _natural_shape(
    model: pm.Model, rv: TensorVariable, point: Mapping[str, NDArray]
) -> tuple[int, ...]:
    """Shape of a free variable; a transform of vectors or matrices may change it."""
    value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
    if transform is None or not getattr(rv.owner.op, "ndim_supp", 0):
        return np.shape(point[value.name])
    natural = transform.backward(value, *rv.owner.inputs)
    graph = graph_replace([natural.shape], {value: pt.as_tensor(point[value.name])}, strict=False)
    [shape] = pytensor.function([], graph, mode="FAST_COMPILE")()
    return tuple(int(n) for n in shape)


def require_fitting_types(model: pm.Model, rv: TensorVariable) -> None:
    """Check that an observed variable has the shape of its data, as far as types state it."""
    if is_univariate(rv):
        data = model.rvs_to_values[rv].type.shape
        size = [n if isinstance(n, int) else None for n in stated_lengths(rv)]
        shapes = [parameter.type.shape for parameter in parameters(rv)]
        if (wrong := _misfit(rv, data, size, shapes)) is not None:
            raise NotConjugate(f"{wrong}; give both the same shape")


def require_fitting_data(model: pm.Model) -> None:
    """Check that observed variables have the shape of data that ``pm.set_data`` may exchange."""
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        given = [parameter.shape for parameter in parameters(rv)] if is_univariate(rv) else []
        used = set(ancestors([rv, value]))
        names = [variable.name for variable in model.data_vars if variable in used]
        if (wrong := _other_rows(model, rv)) is not None:
            raise ValueError(
                f"{wrong}; give {' and '.join(names)} as many rows, or build the model again: "
                "which targets are missing is a part of it."
            )
        data, size, *shapes = _evaluated([value.shape, rv.shape, *given])
        if (wrong := _misfit(rv, data, size, shapes)) is not None:
            remedy = "give both the same shape"
            if len(names) > 1:
                remedy = f"replace {' and '.join(names)} together, by one pm.set_data"
            raise ValueError(f"{wrong}; {remedy}.")


def require_numbers(model: pm.Model) -> None:
    """Check that no data or constant of a model is NaN."""
    for rv in model.basic_RVs:
        roots = [*rv.owner.inputs, *([model.rvs_to_values[rv]] if rv in model.observed_RVs else [])]
        for leaf in ancestors(roots, set(model.basic_RVs) - {rv}):
            if isinstance(leaf, SharedVariable | Constant):
                value = leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
                if (
                    isinstance(value, np.ndarray)
                    and value.dtype.kind == "f"
                    and np.isnan(value).any()
                ):
                    what = leaf.name or f"an array of shape {value.shape}"
                    raise ValueError(f"{what}, which {describe(rv)} depends on, has NaN entries.")


def _other_rows(model: pm.Model, rv: TensorVariable) -> str | None:
    """Reason if parameters, selected by a mask, do not fit a variable with missing entries."""
    whole = model.named_vars.get(str(rv.name).removesuffix("_observed"))
    if whole not in model.deterministics or not is_univariate(rv):
        return None
    for parameter, n_core in zip(parameters(rv), rv.owner.op.ndims_params, strict=True):
        match parameter.owner:
            case Apply(
                op=AdvancedSubtensor(), inputs=[TensorVariable() as full, Constant(data=mask)]
            ):
                [lengths] = _evaluated([full.shape])
                shape = lengths[: len(lengths) - n_core]
                if mask.dtype == bool and not _agree(shape, mask.shape, repeated=True):
                    return (
                        f"{describe(whole)}, which has missing entries, has shape {mask.shape}, "
                        f"but its distribution has shape {tuple(shape)}"
                    )
    return None


def _misfit(
    rv: TensorVariable, data: Shape, size: Shape, parameter_shapes: Sequence[Shape]
) -> str | None:
    """Reason if observations do not have the shape of their distribution."""
    cores = rv.owner.op.ndims_params if parameter_shapes else []
    batches = [shape[: len(shape) - n] for n, shape in zip(cores, parameter_shapes, strict=True)]
    wrong = [shape for shape in batches if not _agree(shape, data, repeated=True)]
    if len(size) != len(data) or not _agree(size, data, repeated=False):
        wrong.append(size)
    if not wrong:
        return None
    observed, distribution = (
        str(tuple("?" if n is None else n for n in shape)).replace("'", "")
        for shape in (data, wrong[0])
    )
    return (
        f"{describe(rv)} is observed with shape {observed}, but its distribution has shape "
        f"{distribution}"
    )


def _agree(shape: Shape, data: Shape, *, repeated: bool) -> bool:
    """Whether known lengths are equal, or one where an axis may be repeated."""
    pairs = zip(reversed(shape), reversed(data), strict=False)
    return len(shape) <= len(data) and all(
        None in (a, b) or a == b or (repeated and a == 1) for a, b in pairs
    )


def _evaluated(shapes: Sequence[TensorVariable]) -> list[Shape]:
    """Values of shapes; None for each length where they do not follow from data and constants."""
    graph = FunctionGraph(outputs=list(shapes), clone=True)
    rewrite_graph(graph, include=("ShapeOpt", "canonicalize"))
    known = [shape for shape in graph.outputs if _follows_from_data(shape)]
    values = iter(pytensor.function([], known, mode="FAST_COMPILE")())
    return [
        next(values).tolist() if shape in known else [None] * shape.type.shape[0]
        for shape in graph.outputs
    ]


def _follows_from_data(shape: Variable) -> bool:
    return all(
        isinstance(variable, Constant | SharedVariable)
        if variable.owner is None
        else not draws_at_random(variable)
        for variable in ancestors([shape])
    )


def known_shape(model: pm.Model, rv: TensorVariable) -> tuple[int | None, ...]:
    """Lengths of the axes of a random variable, as far as its type or the model's dims tell."""
    size = size_of(rv)
    lengths = list(rv.type.shape)
    if size is not None and size.owner is not None and isinstance(size.owner.op, MakeVector):
        dim_lengths = [n for n in model.dim_lengths.values() if isinstance(n, SharedVariable)]
        for axis, length in enumerate(size.owner.inputs):
            if lengths[axis] is None and length in dim_lengths:
                lengths[axis] = int(length.get_value())
    return tuple(lengths)


def length_of(model: pm.Model, variable: TensorVariable, axis: int) -> int | None:
    """Length of an axis of any variable of a model, as far as its type or its dims tell."""
    dims = model.named_vars_to_dims.get(variable.name) or (None,) * variable.ndim
    if variable.type.shape[axis] is not None or dims[axis] is None:
        return variable.type.shape[axis]
    length = model.dim_lengths[dims[axis]]
    shared = isinstance(length, SharedVariable)
    return int(length.get_value() if shared else length.eval())


def stated_lengths(rv: TensorVariable) -> list[TensorVariable | int | None]:
    """Lengths of the axes of a random variable, where its type or its size states them."""
    size = size_of(rv)
    n_core = getattr(rv.owner.op, "ndim_supp", 0)
    sizes = [None] * (rv.ndim - n_core) if size is None else list(size)
    sizes += [None] * n_core
    return [
        length if static is None else static
        for length, static in zip(sizes, rv.type.shape, strict=True)
    ]


def lengths(rv: TensorVariable) -> list[TensorVariable | int]:
    """Lengths of the axes of a random variable, stated without its value where possible."""
    stated = stated_lengths(rv)
    return [rv.shape[axis] if n is None else n for axis, n in enumerate(stated)]


def present_length(array: TensorVariable, axis: int) -> int:
    """Length of an axis at the present values of data and dims; zero if these do not tell it."""
    if (static := array.type.shape[axis]) is not None:
        return static
    if isinstance(array.owner.op, Elemwise):
        [first, *_] = [part for part in array.owner.inputs if not part.type.broadcastable[axis]]
        return present_length(first, axis)
    size, batch = size_of(array), array.ndim - getattr(array.owner.op, "ndim_supp", 0)
    stated = None if size is None or axis >= batch else size[axis]
    if axis >= batch and is_a(array, ZeroSumNormalRV):
        stated = array.owner.inputs[-1][axis - batch]
    if stated is None or random_in([stated]):
        return 0
    return int(stated.eval(mode="FAST_COMPILE"))


def refuse_random_data(model: pm.Model) -> None:
    """Check that a log density is a function of variables and data, unlike ``pm.Minibatch``."""
    roots = [*model.basic_RVs, *model.potentials, *observed_values(model).values()]
    drawn = {v.owner for v in ancestors(roots) if v.owner is not None and draws_at_random(v)}
    if drawn <= {rv.owner for rv in model.basic_RVs}:
        return
    # The other draws may be parts of a distribution, such as components of a mixture.
    values: dict[Any, Any] = {rv: rv.type() for rv in model.free_RVs}
    values |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    densities = conditional_logp(values, warn_rvs=False)
    terms: dict[Any, Variable] = {rv: densities[value] for rv, value in values.items()}
    terms |= {potential: potential for potential in model.potentials}
    own = set(model.basic_RVs)
    for name, term in terms.items():
        drawn_anew = (v for v in entering([term], own) if v not in own and draws_at_random(v))
        if (culprit := next(drawn_anew, None)) is not None:
            raise ValueError(
                f"The log density of {describe(name)} is random: {describe(culprit)} is redrawn "
                "whenever it is evaluated; give all of the data in place of a pm.Minibatch, and "
                "give random variables a name in the model."
            )

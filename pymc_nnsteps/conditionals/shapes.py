"""Shapes of a model's variables at the time of compilation."""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.structure import NotConjugate, describe, parameters, stated_lengths


def shapes_of(
    model: pm.Model, initial_point: Mapping[str, NDArray] | None = None
) -> dict[TensorVariable, tuple[int, ...]]:
    """Shapes of the model's variables; of free ones with a transform, that of their value.

    Parameters
    ----------
    model : pm.Model
    initial_point : mapping from name to array, optional
        Values of the free variables. Without it their shapes are worked out, symbolic
        distributions and ``pymc.dims`` left out.

    Raises
    ------
    ValueError
        If an observed variable has not the shape of its data.
    """
    shapes: dict[TensorVariable, tuple[int, ...]] = {}
    if initial_point is not None:
        for rv in model.free_RVs:
            shapes[rv] = np.shape(initial_point[model.rvs_to_values[rv].name])
    else:
        plain = [rv for rv in model.free_RVs if isinstance(rv.owner.op, RandomVariable)]
        shapes |= dict(zip(plain, _evaluate(_inferred(plain)), strict=True))
    values = [tuple(model.rvs_to_values[rv].shape) for rv in model.observed_RVs]
    shapes |= dict(zip(model.observed_RVs, _evaluate(values), strict=True))
    _check_data(model, shapes)
    return shapes


def require_data_that_fit(model: pm.Model, rv: TensorVariable) -> None:
    """Check that an observed variable has the shape of its data, as far as types tell.

    Raises
    ------
    NotConjugate
    """
    if _is_univariate(rv):
        data = model.rvs_to_values[rv].type.shape
        batches = [parameter.type.shape for parameter in parameters(rv)]
        size = [n if isinstance(n, int) else None for n in stated_lengths(rv)]
        if (wrong := _misfit(rv, data, size, batches)) is not None:
            raise NotConjugate(wrong)


def _check_data(model: pm.Model, shapes: Mapping[TensorVariable, tuple[int, ...]]) -> None:
    """Check that observed variables have the shape of their data.

    Raises
    ------
    ValueError
    """
    univariate = [rv for rv in model.observed_RVs if _is_univariate(rv)]
    stated = [stated_lengths(rv) for rv in univariate]
    sizes = _evaluate([[pt.as_tensor(-1 if n is None else n) for n in size] for size in stated])
    given = [parameter for rv in univariate for parameter in parameters(rv)]
    batches = iter(_evaluate(_inferred(given)))
    for rv, size in zip(univariate, sizes, strict=True):
        known = [None if n == -1 else n for n in size]
        of_rv = [next(batches) for _ in parameters(rv)]
        if (wrong := _misfit(rv, shapes[rv], known, of_rv)) is not None:
            raise ValueError(f"{wrong}.")


def _is_univariate(rv: TensorVariable) -> bool:
    """Whether each entry of ``rv`` has a density of its own."""
    op = rv.owner.op
    return isinstance(op, RandomVariable) and op.ndim_supp == 0


Shape = Sequence[int | None]


def _misfit(
    rv: TensorVariable, data: Shape, size: Shape, parameter_shapes: Sequence[Shape]
) -> str | None:
    """What is wrong if data have not the shape of their distribution.

    Where they have not, PyMC compares every number with every parameter.
    """
    cores = rv.owner.op.ndims_params
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
        f"{distribution}; give both the same shape"
    )


def _agree(shape: Shape, data: Shape, *, repeated: bool) -> bool:
    """Whether lengths are equal as far as they are known; or one, where they may be repeated."""
    pairs = zip(reversed(shape), reversed(data), strict=False)
    return len(shape) <= len(data) and all(
        None in (a, b) or a == b or (repeated and a == 1) for a, b in pairs
    )


def _inferred(expressions: Sequence[TensorVariable]) -> list[Sequence[Variable]]:
    """Shapes of expressions, worked out without their values where that can be."""
    return infer_shape(expressions, [], [])


def _evaluate(shapes: Sequence[Sequence[Variable]]) -> list[tuple[int, ...]]:
    flat = [length for shape in shapes for length in shape]
    lengths = iter(pytensor.function([], flat, mode="FAST_COMPILE")())
    return [tuple(int(next(lengths)) for _ in shape) for shape in shapes]

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

from pymc_nnsteps.conditionals.structure import describe, parameters, stated_lengths


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


def _check_data(model: pm.Model, shapes: Mapping[TensorVariable, tuple[int, ...]]) -> None:
    """Check that observed variables have the shape of their data.

    Where they have not, PyMC compares every number with every parameter.

    Raises
    ------
    ValueError
    """
    univariate = [
        rv
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, RandomVariable) and rv.owner.op.ndim_supp == 0
    ]
    stated = [[-1 if n is None else n for n in stated_lengths(rv)] for rv in univariate]
    sizes = _evaluate([[pt.as_tensor(n) for n in size] for size in stated])
    given = [parameter for rv in univariate for parameter in parameters(rv)]
    inferred = iter(_evaluate(_inferred(given)))
    for rv, size in zip(univariate, sizes, strict=True):
        data = shapes[rv]
        batches = [(n, next(inferred)) for n in rv.owner.op.ndims_params]
        other = [shape[: len(shape) - n] for n, shape in batches]
        wrong = [shape for shape in other if not _fits(shape, data)]
        if len(size) != len(data) or any(n not in (-1, m) for n, m in zip(size, data, strict=True)):
            wrong.append(size)
        if wrong:
            raise ValueError(
                f"{describe(rv)} is observed with shape {data}, but its distribution has shape "
                f"{wrong[0]}; give both the same shape."
            )


def _fits(shape: tuple[int, ...], data: tuple[int, ...]) -> bool:
    """Whether an array is broadcast to data without these being repeated."""
    pairs = zip(reversed(shape), reversed(data), strict=False)
    return len(shape) <= len(data) and all(a in (1, b) for a, b in pairs)


def _inferred(expressions: Sequence[TensorVariable]) -> list[Sequence[Variable]]:
    """Shapes of expressions, worked out without their values where that can be."""
    return infer_shape(expressions, [], [])


def _evaluate(shapes: Sequence[Sequence[Variable]]) -> list[tuple[int, ...]]:
    flat = [length for shape in shapes for length in shape]
    lengths = iter(pytensor.function([], flat, mode="FAST_COMPILE")())
    return [tuple(int(next(lengths)) for _ in shape) for shape in shapes]

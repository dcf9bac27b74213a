"""Names of variables, and whether a random variable has the law named by its operation.

Readers ask :func:`kind_of` for the class of an operation. It answers only where the density that
PyMC computes belongs to exactly this class. A subclass, which dispatch would resolve to its parent,
and a class with a re-registered density are :class:`Unknown`. A child has to pass only this check.
A variable that is drawn or integrated out also needs a law of its own (:func:`has_law`): a
transform may truncate its density, and a potential may weigh it.
"""

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.custom import CustomDistRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV, _BaseMixtureRV
from pymc.distributions.transforms import (
    Interval,
    LogExpM1,
    LogOddsTransform,
    LogTransform,
    _default_transform,
)
from pymc.logprob.abstract import _logprob
from pymc.logprob.transforms import IntervalTransform, Transform
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.search import depends_on, partly_observed
from pymc_nnsteps.graphs.values import constant_or_none, scalar_constant

AUTHORS = ("pymc", "pymc_nnsteps")
"""Packages whose densities match the names of their distributions."""


class Unknown:
    """Kind of a variable whose density is not known here."""


def kind_of(rv: Variable) -> type:
    """Class of the operation that draws a variable, if it determines the density."""
    if rv.owner is None:
        return Unknown
    kind: Any = type(rv.owner.op)
    density = _logprob.registry.get(kind)
    return kind if density is not None and _is_stated_for(density, kind) else Unknown


def is_univariate(rv: Variable) -> bool:
    """Whether each entry of a variable has a law of its own."""
    op = rv.owner.op
    return isinstance(op, RandomVariable) and op.ndim_supp == 0


def is_by_entry(rv: Variable) -> bool:
    """Whether the density of a variable given its parameters has a factor for each entry.

    That of :class:`pymc.CustomDist` may be any function of all entries.
    """
    is_stated = kind_of(rv) is not Unknown and not isinstance(rv.owner.op, CustomDistRV)
    return is_stated and is_univariate(rv)


def has_foreign_density(rv: Variable) -> bool:
    """Whether a variable's density is another package's or that of a parent class."""
    kinds = type(rv.owner.op).__mro__[:-1]
    return kind_of(rv) is Unknown and any(kind in _logprob.registry for kind in kinds)


def is_a(rv: Variable, *kinds: type) -> bool:
    """Whether a variable has the density of one of these kinds, given its parameters."""
    return kind_of(rv) in kinds


@cache
def _is_stated_for(density: Callable[..., Any], kind: Any) -> bool:
    """Whether PyMC, inside a function of its own, or this package registers a density of a kind."""
    if not inspect.isfunction(density):
        return False
    method = inspect.getclosurevars(density).nonlocals.get("class_logp")
    stated = density if method is None else method
    if isinstance(stated, staticmethod):
        stated = stated.__func__
    if not inspect.isfunction(stated):
        return False
    author = str(stated.__globals__["__name__"])
    if author.partition(".")[0] not in AUTHORS:
        return False
    owner = getattr(sys.modules[author], stated.__qualname__.partition(".")[0], None)
    return method is None or getattr(owner, "rv_type", None) is kind


Bound = TensorVariable | float | None
Support = tuple[Bound, Bound] | type[Transform]
"""Interval, None where unbounded; for vectors and matrices the transform onto the support."""

LINE: Support = (None, None)
POSITIVE: Support = (0.0, None)
UNIT: Support = (0.0, 1.0)


def prior_kind(model: pm.Model, rv: TensorVariable, support: Support = LINE) -> type:
    """Kind of a variable whose density, given its parents, no transform truncates."""
    return kind_of(rv) if is_onto(model, rv, support) else Unknown


def has_prior(model: pm.Model, rv: TensorVariable, *kinds: type, support: Support = LINE) -> bool:
    """Whether a variable given its parents has the density of a kind, not truncated."""
    return prior_kind(model, rv, support) in kinds


def has_law(model: pm.Model, rv: TensorVariable, *kinds: type, support: Support = LINE) -> bool:
    """Whether a variable has such a prior (:func:`has_prior`) and no potential depends on it."""
    return has_prior(model, rv, *kinds, support=support) and potential_on(model, rv) is None


def potential_on(model: pm.Model, rv: TensorVariable) -> Variable | None:
    """A potential that a variable enters directly."""
    found = (each for each in model.potentials if depends_on(each, {rv}, model.basic_RVs))
    return next(found, None)


def is_onto(model: pm.Model, rv: TensorVariable, support: Support) -> bool:
    """Whether the values that a model may hold for a variable cover its support.

    Data of an observed variable with a transform are not its values: PyMC transforms them.
    """
    transform = model.rvs_to_transforms.get(rv)
    if transform is None or rv not in model.free_RVs:
        return transform is None
    image = _image(transform, rv)
    if isinstance(support, type) or isinstance(image, type):
        return image is support
    return all(map(_is_same, image, support))


def own_support(rv: TensorVariable) -> tuple[Bound, Bound] | None:
    """Interval that the default transform of a variable's distribution maps onto, if it has one."""
    transform = _default_transform(rv.owner.op, rv)
    image = None if transform is None else _image(transform, rv)
    return image if isinstance(image, tuple) else None


def _image(transform: Transform, rv: TensorVariable) -> Support:
    kind = type(transform)
    if kind in (LogTransform, LogExpM1):
        return POSITIVE
    if kind is LogOddsTransform:
        return UNIT
    if kind in (Interval, IntervalTransform):
        lower, upper = transform.args_fn(*rv.owner.inputs)
        return lower, upper
    return kind


def _is_same(first: Bound, second: Bound) -> bool:
    """Whether two bounds are the same number or expression."""
    if not isinstance(first, TensorVariable) and not isinstance(second, TensorVariable):
        return first == second
    if first is None or second is None:
        return False
    one, other = pt.as_tensor(first), pt.as_tensor(second)
    values = constant_or_none(one), constant_or_none(other)
    if values[0] is None or values[1] is None:
        return bool(equal_computations([one], [other]))
    return bool(np.all(values[0] == values[1]))


def describe(variable: Variable) -> str:
    """Name of a variable, or of the operation that made it if it has no name."""
    if variable.name:
        return str(variable.name)
    if variable.owner is None:
        return str(variable)
    op = getattr(variable.owner.op, "core_op", variable.owner.op)
    return str(type(getattr(op, "scalar_op", op)).__name__)


def describe_expression(variable: Variable) -> str:
    """Name of a variable, or of those that it is an expression of."""
    if variable.name or variable.owner is None:
        return describe(variable)
    inputs = (leaf for leaf in graph_inputs([variable]) if not isinstance(leaf, Constant))
    names = sorted({str(leaf.name) for leaf in inputs if leaf.name})
    return f"an expression of {', '.join(names)}" if names else describe(variable)


def distribution(rv: TensorVariable) -> str:
    """Name of the distribution of ``rv`` as PyMC prints it, with a note if it is not PyMC's."""
    op = rv.owner.op
    if (whole := partly_observed(rv)) is not None:
        return f"partly observed {distribution(whole)}"
    of_class = type(op).__name__.removesuffix("RV")
    if has_foreign_density(rv):
        return f"{of_class} with a density that is not PyMC's"
    names = getattr(op, "_print_name", None)
    return _mixture(rv) or (str(names[0]) if names else of_class)


def _mixture(rv: TensorVariable) -> str | None:
    """Name of the distribution that PyMC makes a mixture of, or of the mixture with its parts."""
    if not isinstance(rv.owner.op, _BaseMixtureRV):
        return None
    _, _, first, *others = rv.owner.inputs
    is_point = isinstance(first.owner.op, DiracDeltaRV)
    at_zero = is_point and scalar_constant(first.owner.inputs[-1]) == 0
    if at_zero and len(others) == 1:
        is_hurdle = not isinstance(rv.owner.op, MixtureRV)
        rest = distribution(others[0])
        return f"Hurdle{rest.removeprefix('Truncated')}" if is_hurdle else f"ZeroInflated{rest}"
    parts = list(dict.fromkeys(map(distribution, (first, *others))))
    is_of_normals = parts == ["Normal"] and not others
    return "NormalMixture" if is_of_normals else f"Mixture of {' and '.join(parts)}"


def law_as_stated(model: pm.Model, rv: TensorVariable) -> str:
    """Name of the distribution of ``rv``, with a transform and a potential that may change it."""
    transform, potential = model.rvs_to_transforms.get(rv), potential_on(model, rv)
    constraint = "" if transform is None else f" with the transform {type(transform).__name__}"
    weight = "" if potential is None else f" with the potential {potential.name}"
    return distribution(rv) + constraint + weight

"""Networks whose hidden layers are deterministic functions of their inputs, and wide ones.

In a network whose readout is whitened by the data (:mod:`~pymc_nnsteps.models.parts.readout`) the
posterior of the hidden weights tends to their Gaussian prior as the width grows, and standard
normal variables, which the likelihood does not depend on, make up the readout.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pymc as pm
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import has_prior
from pymc_nnsteps.graphs.search import children, parameters, stated_in
from pymc_nnsteps.graphs.shapes import shapes_of


def functional_networks(model: pm.Model) -> set[TensorVariable]:
    """Outputs of networks whose hidden layers are functions, and what these outputs depend on."""
    variables: set[TensorVariable] = set()
    for output in model.basic_RVs:
        given = parameters(output)
        if has_hidden_layer(given, model.basic_RVs, unconstrained(model)):
            variables |= {output} | stated_in(given, model.basic_RVs)
    return variables


def has_hidden_layer(
    expressions: Collection[TensorVariable],
    barriers: Collection[TensorVariable],
    weights: Collection[TensorVariable],
) -> bool:
    """Whether weights multiply a function, not affine, of another product with weights."""
    products = _products(expressions, barriers)
    inner: set[Any] = {
        product.outputs[0]
        for product in products
        if not stated_in(product.inputs, barriers).isdisjoint(weights)
    }
    for product in products:
        sides: list[Any] = product.inputs
        for layer, others in (sides, sides[::-1]):
            known = stated_in([layer], barriers)
            new = stated_in([others], barriers).difference(known)
            if not new.isdisjoint(weights) and not known_or_none(affine, layer, inner, barriers):
                return True
    return False


def _products(
    expressions: Collection[TensorVariable], barriers: Collection[TensorVariable]
) -> list[Apply]:
    """Matrix products in expressions, not behind ``barriers``."""
    nodes = [v.owner for v in ancestors(expressions, barriers) if v.owner is not None]
    return [node for node in nodes if isinstance(getattr(node.op, "core_op", node.op), Dot)]


def unconstrained(model: pm.Model) -> list[TensorVariable]:
    """Free variables that may be weights."""
    return [
        rv
        for rv in model.free_RVs
        if rv.dtype.startswith("float") and model.rvs_to_transforms[rv] is None
    ]


WIDE = 256
"""Columns of the readout from which on PCNL is assigned, see the figures in the documentation."""


@dataclass(frozen=True)
class WideNetwork:
    """Variables of a wide network."""

    # Free variables that only the readout depends on, and no likelihood.
    readout: frozenset[TensorVariable] = frozenset()
    hidden: frozenset[TensorVariable] = frozenset()  # weights of its hidden layers


def wide_network(model: pm.Model) -> WideNetwork:
    """The wide network that a model is; empty if it is none, or has other free variables."""
    free = set(model.free_RVs)
    readout = {rv for rv in free if _is_gaussian(model, rv) and not children(model, rv)}
    hidden = free - readout
    if not readout or not hidden or not all(_is_gaussian(model, rv) for rv in hidden):
        return WideNetwork()
    outputs = [
        computed
        for computed in model.deterministics
        if not readout.isdisjoint(stated_in([computed], model.basic_RVs))
    ]
    if not has_hidden_layer(outputs, model.basic_RVs, unconstrained(model)):
        return WideNetwork()
    shapes = shapes_of(model)
    if min(shapes[rv][-1] if shapes[rv] else 0 for rv in readout) < WIDE:
        return WideNetwork()
    return WideNetwork(frozenset(readout), frozenset(hidden))


def _is_gaussian(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a variable has a Gaussian prior that depends on no other variable."""
    is_known = has_prior(model, rv, NormalRV, MvNormalRV)
    return is_known and not stated_in(parameters(rv), model.basic_RVs)

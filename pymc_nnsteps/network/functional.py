"""Networks whose hidden layers are deterministic functions of their inputs."""

from collections.abc import Collection
from typing import Any

import pymc as pm
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.search import parameters, stated_in

__all__ = ["functional_networks", "has_hidden_layer", "unconstrained"]


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
    """Whether weights multiply a function, not affine, of another product with weights.

    Products of matrices alone are no network: coregionalised Gaussian processes, factor models.
    """
    products = _products(expressions, barriers)
    inner = {
        product.outputs[0]
        for product in products
        if not stated_in(product.inputs, barriers).isdisjoint(weights)
    }
    for product in products:
        for layer, others in (product.inputs, product.inputs[::-1]):
            known = stated_in([layer], barriers)
            new = stated_in([others], barriers).difference(known)
            if not new.isdisjoint(weights) and _is_bent(layer, inner, barriers):
                return True
    return False


def _is_bent(layer: Any, products: Collection[Any], barriers: Collection[TensorVariable]) -> bool:
    """Whether a layer is a function of products that is not known to be affine."""
    try:
        affine(layer, products, barriers)
    except NotConjugate:
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
        if isinstance(rv, TensorVariable)
        and rv.dtype.startswith("float")
        and model.rvs_to_transforms[rv] is None
    ]

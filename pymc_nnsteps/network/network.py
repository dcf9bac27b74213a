"""Networks of a model: what depends on given inputs, deterministic hidden layers, and wide ones.

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
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe, has_prior
from pymc_nnsteps.graphs.search import children, depends_on, parameters, stated_in
from pymc_nnsteps.graphs.shapes import length_of, shapes_of
from pymc_nnsteps.network.layers import Layer, layer_of


@dataclass(frozen=True)
class Network:
    """A network in a model."""

    model: pm.Model
    inputs: TensorSharedVariable  # the data container of the inputs
    response: TensorVariable  # the observed variable that depends on the inputs
    # Latent layers: the free variables that depend on the inputs, in the model's order.
    latents: tuple[TensorVariable, ...]
    weights: tuple[TensorVariable, ...]  # the other free variables

    def layer(self, rv: TensorVariable) -> Layer:
        """Read a layer, or a normal response, given the layers below it."""
        layer = layer_of(self.model, rv)
        if not depends_on(layer.mean, {self.inputs}):
            raise NotConjugate(
                f"{describe(rv)} depends on the inputs, but its mean does not, so that predict "
                "cannot treat it as a layer; pass what it takes from the inputs as constants."
            )
        repeated = [
            one and length_of(self.model, rv, axis) != 1
            for axis, one in enumerate(layer.mean.type.broadcastable[: rv.ndim])
        ]
        if layer.mean.ndim != rv.ndim or any(repeated):
            raise NotConjugate(
                f"predict needs a mean of {describe(rv)} for each of its entries; its mean has the "
                f"shape {layer.mean.type.shape} and is broadcast."
            )
        return layer

    def utilities(self) -> TensorVariable:
        """The latent layer that the response is a decision on."""
        [p, *_] = parameters(self.response)
        free = self.model.free_RVs
        parents = [rv for rv in free if depends_on(p, {rv}, free)]
        if len(parents) != 1 or parents[0] not in self.latents:
            raise NotConjugate(
                f"{describe(self.response)} is not a decision on one latent variable; name the "
                'network\'s output, with pm.Deterministic("f", ...).'
            )
        return parents[0]


def network_of(
    model: pm.Model,
    inputs: TensorSharedVariable,
    *,
    any_response: bool = False,
    named: str | None = None,
) -> Network:
    """Find the network in a model, with ``any_response`` or that which is ``named``."""
    response = response_of(model, inputs, any_response=any_response, named=named)
    latents = tuple(rv for rv in model.free_RVs if depends_on(rv, {inputs}))
    weights = tuple(rv for rv in model.free_RVs if rv not in latents)
    return Network(model, inputs, response, latents, weights)


def responses_of(model: pm.Model, inputs: TensorSharedVariable) -> list[TensorVariable]:
    """The observed variables that depend on the inputs."""
    return [rv for rv in model.observed_RVs if depends_on(rv, {inputs})]


def response_of(
    model: pm.Model,
    inputs: TensorSharedVariable,
    *,
    any_response: bool = False,
    named: str | None = None,
) -> TensorVariable:
    """The observed variable that depends on the inputs, or a potential if any will do."""
    observed = responses_of(model, inputs)
    potentials = [p for p in model.potentials if depends_on(p, {inputs})]
    if any_response:
        observed = observed or potentials
    if named is not None and observed:
        for rv in observed:
            if rv.name == named:
                return rv
        raise ValueError(
            f"output must name an observed variable that depends on {describe(inputs)}, one of "
            f"{', '.join(map(describe, observed))}; got {named!r}."
        )
    if len(observed) == 1 or (observed and any_response):
        return observed[0]
    found = "none: compute the mean of one from this pm.Data itself, not from the array in it"
    if potentials:
        found = (
            f"only the potential {describe(potentials[0])}, which defines no distribution of "
            "targets: state it as one that is observed, such as pm.CustomDist; for function values "
            "alone, name them with pm.Deterministic and pass this name to predict as output="
        )
    if observed:
        found = (
            f"{', '.join(map(describe, observed))}: pass as output= the name of a pm.Deterministic "
            "for function values, or that of one of these for probabilities and responses; "
            "log_likelihood takes all of them"
        )
    raise NotConjugate(
        f"there must be one observed variable that depends on {describe(inputs)}; the model has "
        f"{found}."
    )


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

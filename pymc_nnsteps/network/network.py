"""The network of a model: what depends on the inputs, up to the observed variable."""

from dataclasses import dataclass

import pymc as pm
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import depends_on, parameters
from pymc_nnsteps.graphs.shapes import length_of
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

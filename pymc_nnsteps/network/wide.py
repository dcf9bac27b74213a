"""Wide networks: variables that the data leave as they are, and weights near their prior.

In a network whose readout is whitened by the data (:mod:`~pymc_nnsteps.models.parts.readout`) the
posterior of the hidden weights tends to their Gaussian prior as the width grows, and standard
normal variables, which the likelihood does not depend on, make up the readout.
"""

from dataclasses import dataclass

import pymc as pm
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import has_prior
from pymc_nnsteps.graphs.search import children, parameters, stated_in
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.network.functional import has_hidden_layer, unconstrained

WIDE = 256
"""Columns of the readout from which on PCNL is assigned, see the figures in the documentation."""


@dataclass(frozen=True)
class WideNetwork:
    """Variables of a wide network.

    Attributes
    ----------
    readout : frozenset of TensorVariable
        Free variables that only the readout depends on, and no likelihood.
    hidden : frozenset of TensorVariable
        Weights of its hidden layers.
    """

    readout: frozenset[TensorVariable] = frozenset()
    hidden: frozenset[TensorVariable] = frozenset()


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

"""Networks in a model's graph: which variables the Gibbs step takes, and units it relabels.

It takes by itself the variables for which NUTS is wrong or poor:

- latent layers of a network: pre-activations under a kinked activation or behind a decision, binary
  gates, the activations that see them, and what pooling is a mean of. With them go the variables
  whose children they are, and the variables that share a child with an activation or are one;
- scale hyperparameters of that network, and of one whose hidden layers are functions of their
  inputs. These are precisions of weights, biases and observations, and what controls them, at every
  level. The level of noise that such a network scales is not among them: it moves with the weights.
  A latent network adds half-Normal scales, as of effects beside it, which rays move;
- the missing targets of a network with such scales;
- beside such scales, weights and standard deviations in the laws of missing inputs;
- beside a latent network or such scales, linked variables on which no functional network depends,
  if Gibbs knows the law of each: scales and coefficients of another response, means of effects;
- what the likelihood does not depend on in a wide network whose readout is whitened by the data.

Units of hidden layers are relabelled at random at the end of a draw. The posterior of a network
does not change where units of a layer change places, or signs behind an odd activation. A chain
that is never relabelled stays with one of the labellings by chance, and the convergence of single
weights is an accident. With permutations and signs drawn independently of the state the posterior
is left invariant, all units have the same law in each chain, and R-hat and effective sample sizes
of every variable mean what they say (Fruhwirth-Schnatter, *Markov chain Monte Carlo estimation of
classical and dynamic switching and mixture models*, JASA 96, 2001).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import POSITIVE, prior_kind
from pymc_nnsteps.graphs.row_axes import Rows
from pymc_nnsteps.graphs.search import (
    children,
    depends_on,
    once_per_model,
    parameters,
    stated_in,
)
from pymc_nnsteps.laws.any_scales import Factor
from pymc_nnsteps.laws.conditional import Conditional, laws_of
from pymc_nnsteps.laws.gaussian import match_gaussian
from pymc_nnsteps.laws.piecewise import (
    GateConditional,
    LargestUtility,
    PiecewiseGaussian,
    UtilityBehindThreshold,
)
from pymc_nnsteps.laws.recognition import match
from pymc_nnsteps.laws.scales import PRIORS, SQUARES
from pymc_nnsteps.network.exchangeable import ExchangeableUnits, exchangeable_units
from pymc_nnsteps.network.network import functional_networks, wide_network
from pymc_nnsteps.prediction.imputation import imputations_of

HELD = 30


@dataclass(frozen=True)
class Networks:
    """What the networks of a model consist of."""

    of_gibbs: frozenset[TensorVariable]  # variables that NUTS draws wrongly or poorly
    # Variables of networks whose hidden layers are functions, and what these stand beside.
    functional: frozenset[TensorVariable]
    # Hidden weights of a wide network whose readout is whitened by the data.
    wide: frozenset[TensorVariable]


@once_per_model
def networks_of(model: pm.Model) -> Networks:
    """The networks of a model."""
    latent, functional = _latent_networks(model), functional_networks(model)
    scales = _scales_of(model, latent | functional) | _scales_of(model, latent, SQUARES)
    scales -= _levels_of_noise(model, scales, functional - latent - scales)
    of_gibbs = latent | scales
    if scales:  # and outputs that are not observed
        free = functional.intersection(model.free_RVs)
        of_gibbs |= {rv for rv in free if not children(model, rv)}
    wide = wide_network(model)
    if of_gibbs:
        behind = set(ancestors(functional - of_gibbs))
        by_gradients = {rv for rv in model.free_RVs if rv in behind}
        network = of_gibbs | by_gradients | wide.readout | wide.hidden
        of_gibbs |= _known_groups(model, network) | _laws_of_missing_inputs(model)
    return Networks(frozenset(of_gibbs | wide.readout), frozenset(functional), wide.hidden)


def needs_gibbs(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether ``rv`` is one of the variables of a network that NUTS draws wrongly or poorly."""
    return rv in networks_of(model).of_gibbs


def held_scales(model: pm.Model, drawn: Collection[TensorVariable]) -> set[TensorVariable]:
    """Those of ``drawn`` that control weights of functional networks, which others move."""
    weights = networks_of(model).functional.intersection(model.free_RVs).difference(drawn)
    return _scales_of(model, set(weights)).intersection(drawn)


def first_held(tune: int) -> int:
    """Number of first sweeps, of so many in tuning, that hold scales of weights another step moves.

    From the start, weights first find a good fit at these scales.
    """
    return min(HELD, tune // 8)


def _latent_networks(model: pm.Model) -> set[TensorVariable]:
    """Variables of networks with latent layers, the observed ones included."""
    layers = _latent_layers(model)
    free = set(model.free_RVs)
    variables = set(layers)
    for child in model.basic_RVs:
        parents = stated_in(child.owner.inputs, model.basic_RVs) & free
        if child in layers or not parents.isdisjoint(layers):
            variables |= parents | {child}
    return variables


def _latent_layers(model: pm.Model) -> set[TensorVariable]:
    """Pre-activations and gates that only their own conditionals draw well; their children."""
    layers: set[TensorVariable] = set()
    for z in model.free_RVs:
        direct = children(model, z)
        if len(direct) == 1:
            for law in laws_of(model, z):
                if (found := known_or_none(law.recognise, model, z)) is not None:
                    layers |= _layers_of(model, found, direct[0])
    return (layers | _pooled_layers(model, layers)).intersection(model.free_RVs)


def _pooled_layers(model: pm.Model, layers: set[TensorVariable]) -> set[TensorVariable]:
    """Pre-activations that are seen by the means over their entries alone, as under pooling."""
    return {
        z
        for z in model.free_RVs
        if len(direct := children(model, z)) == 1
        and direct[0] in layers
        and z not in layers
        and _is_summed(model, z)
        and _sums_weights(model, z)
    }


def _layers_of(model: pm.Model, found: Conditional, child: TensorVariable) -> set[TensorVariable]:
    """Latent layers that a conditional shows: those that it draws, and their child."""
    [z, *_] = found.draws
    match found:
        case UtilityBehindThreshold() | LargestUtility():
            return {z}
        case PiecewiseGaussian(activation=activation) if activation.knots:
            return {z, child}
        case PiecewiseGaussian() | GateConditional() if (
            child in model.free_RVs and _sums_weights(model, z) and _is_summed(model, child)
        ):
            return {z, child}
    return set()


def _sums_weights(model: pm.Model, z: TensorVariable) -> bool:
    """Whether the mean of ``z`` sums over an axis of a free Normal variable, as a layer does."""
    return any(
        z in children(model, weights) and _is_summed(model, weights) for weights in model.free_RVs
    )


def _is_summed(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether some child's mean sums over an axis of a Normal variable."""
    law = known_or_none(match_gaussian, model, [rv])
    return law is not None and bool(law.members[0].dense)


def _laws_of_missing_inputs(model: pm.Model) -> set[TensorVariable]:
    """Variables that the laws of missing inputs depend on, if Gibbs knows their own."""
    entries = {rv for imputation in imputations_of(model) for rv in imputation.entries}
    stated = stated_in([p for rv in entries for p in parameters(rv)], model.basic_RVs)
    return {rv for rv in stated.intersection(model.free_RVs) - entries if has_law(model, rv)}


def _known_groups(model: pm.Model, network: Collection[TensorVariable]) -> set[TensorVariable]:
    """Variables outside a network, in linked groups of which each law is known.

    Those of which one law is not known are best moved together, by gradients.
    """
    outside = [rv for rv in model.free_RVs if rv not in network]
    known: set[TensorVariable] = set()
    for group in _linked(model, outside):
        if all(has_law(model, rv) for rv in group):
            known.update(group)
    return known


def _linked(model: pm.Model, rvs: Collection[TensorVariable]) -> list[set[TensorVariable]]:
    """Groups of variables that depend on each other, or on which the same variable depends."""
    groups: list[set[TensorVariable]] = []
    for child in model.basic_RVs:
        family = {child, *stated_in(child.owner.inputs, model.basic_RVs)}.intersection(rvs)
        apart = [group for group in groups if group.isdisjoint(family)]
        joined = family.union(*(group for group in groups if group not in apart))
        groups = [*apart, joined] if joined else apart
    return groups


def has_law(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether Gibbs knows the full conditional of a variable."""
    return known_or_none(match, model, rv) is not None


def _scales_of(
    model: pm.Model, variables: set[TensorVariable], priors: Collection[type] = PRIORS
) -> set[TensorVariable]:
    """Positive free variables that control ``variables``, at every level, no coefficients."""
    scales: set[TensorVariable] = set()
    positive = [rv for rv in model.free_RVs if prior_kind(model, rv, POSITIVE) in priors]
    for rv in reversed(positive):
        is_factor = isinstance(known_or_none(match, model, rv), Factor)
        if not is_factor and not (variables | scales).isdisjoint(children(model, rv)):
            scales.add(rv)
    return scales


def _levels_of_noise(
    model: pm.Model, scales: Collection[TensorVariable], networks: Collection[TensorVariable]
) -> set[TensorVariable]:
    """Scales of responses that networks scale too: levels, which change little by themselves."""
    weights = set(model.free_RVs).intersection(networks)
    return {
        rv
        for rv in scales
        for response in set(children(model, rv)).intersection(model.observed_RVs)
        for parameter in parameters(response)
        if depends_on(parameter, {rv}) and depends_on(parameter, weights)
    }


def relabelled_units(model: pm.Model, moved: Collection[TensorVariable]) -> list[ExchangeableUnits]:
    """Layers of the networks of a model of which all variables with units are among some."""
    networks = networks_of(model)
    members = networks.of_gibbs | networks.functional
    return [
        units
        for units in exchangeable_units(model)
        if units.axes.keys() <= set(moved) and not members.isdisjoint(units.axes)
    ]


class Relabelling:
    """Random labels of the units of layers of which all variables are moved by a step."""

    def __init__(self, model: pm.Model, moved: Collection[TensorVariable]) -> None:
        names = {rv: model.rvs_to_values[rv].name for rv in moved}
        self._layers = [
            (
                {names[rv]: axis for rv, axis in units.axes.items()},
                [{names[rv] for rv in signs} for signs in units.signs],
            )
            for units in relabelled_units(model, moved)
        ]

    def __call__(
        self, rng: np.random.Generator, point: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """New values of what is relabelled."""
        new = dict(point)
        for axes, signs in self._layers:
            [name, *_] = axes
            order = rng.permutation(len(_units(new[name], axes[name])))
            for name, place in axes.items():
                new[name] = new[name].copy()
                _units(new[name], place)[:] = _units(new[name], place)[order]
            for turned in signs:
                sign = rng.choice([-1.0, 1.0], len(order))
                for name in turned:
                    units = _units(new[name], axes[name])
                    units *= sign.reshape(-1, *[1] * (units.ndim - 1)).astype(units.dtype)
        return {name: new[name] for axes, _ in self._layers for name in axes}


def _units(value: np.ndarray, place: Rows) -> np.ndarray:
    """A view of the entries of units, which run along its first axis."""
    entries = np.moveaxis(value, place.axis, 0)
    if place.within is None:
        return entries
    first, n_units = place.within
    return entries[first : first + n_units]

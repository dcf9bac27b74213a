"""What a sweep draws together and in which order, and when an order is valid."""

from collections.abc import Collection, Sequence
from typing import Literal

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.chain import GaussianChain, match_chains
from pymc_nnsteps.conditionals.collapse import Augmentation, CollapsedLayer, match_collapsed
from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.conditionals.gates import Gates
from pymc_nnsteps.conditionals.gaussian import Gaussian
from pymc_nnsteps.conditionals.structure import NotConjugate, depends_on, describe, parameters

Collapse = bool | Literal["auto"]

LAYERWISE = (GaussianChain, Augmentation)

LARGEST_COLLAPSED = 1500
"""Number of a layer's weights up to which they are drawn jointly where that is left open."""


def combine(
    conditionals: Sequence[Conditional], collapse: Collapse, shapes: Shapes
) -> list[Conditional]:
    """Join draws of one layer, and of several, that mix better together.

    Gates and weights of a layer are drawn with its activations integrated out, where ``collapse``
    says so and there are such; Gaussian layers that follow each other are drawn jointly.

    Parameters
    ----------
    conditionals : sequence of Conditional
        One for each block of variables, in the model's order.
    collapse : bool or "auto"
        "auto": layers with no more weights than is quick.
    shapes : mapping from random variable to tuple of int

    Raises
    ------
    ValueError
        If ``collapse`` is True and there is a layer, or no layer at all, for which it cannot be.
    """
    collapsed = _collapsed_layers(conditionals, collapse, shapes)
    chains = match_chains([c for c in conditionals if isinstance(c, Gaussian)])
    last = {chain.draws[-1]: chain for chain in chains}
    in_chains = {rv for chain in chains for rv in chain.draws}
    joined = {
        rv
        for layer in collapsed.values()
        for conditional in (layer.gates, layer.weights)
        for rv in conditional.draws
    }
    combined: list[Conditional] = []
    for conditional in conditionals:
        [rv, *_] = conditional.draws
        if rv in joined:
            continue
        if rv in collapsed:
            layer = collapsed[rv]
            drawn_by_chain = rv in last and not layer.is_augmented
            combined.extend(layer.draws[:-1] if drawn_by_chain else layer.draws)
        elif rv not in in_chains:
            combined.append(conditional)
        if rv in last:
            combined.append(last[rv])
    return combined


def _collapsed_layers(
    conditionals: Sequence[Conditional], collapse: Collapse, shapes: Shapes
) -> dict[TensorVariable, CollapsedLayer]:
    """Layers to be collapsed, by their activations."""
    if collapse is False:
        return {}
    behind_gates = {
        seen.child for c in conditionals if isinstance(c, Gates) for seen in c.observations
    }
    layers = {}
    for conditional in conditionals:
        if not isinstance(conditional, Gaussian) or behind_gates.isdisjoint(conditional.draws):
            continue
        try:
            layer = match_collapsed(conditional, conditionals)
        except NotConjugate as reason:
            if collapse is True:
                raise ValueError(f'collapse is True, but {reason}; use "auto".') from None
            continue
        if collapse is True or layer.size(shapes) <= LARGEST_COLLAPSED:
            layers[conditional.draws[0]] = layer
    if collapse is True and not layers:
        raise ValueError(
            "collapse is True, but no activations behind binary gates are drawn together with "
            'their gates and weights; use "auto".'
        )
    return layers


def order_scan(
    conditionals: Sequence[Conditional], scan: str, model: pm.Model
) -> list[Conditional]:
    """Order conditionals for a sweep.

    "sequential" keeps the model's order, from input to output. "parallel" draws Gaussian
    variables whose prior depends on other free variables first (post-activations), then the
    other Gaussian ones (weights), then the rest (pre-activations and utilities); within a group
    of a network no layer depends on another. Layers that are collapsed stay together.
    """
    if scan == "sequential":
        return list(conditionals)

    def group(conditional: Conditional) -> int:
        if isinstance(conditional, LAYERWISE) or conditional.integrates_out:
            return 0
        if not isinstance(conditional, Gaussian):
            return 2
        return 0 if any(_has_parents(model, rv) for rv in conditional.draws) else 1

    return sorted(conditionals, key=group)


def _has_parents(model: pm.Model, rv: TensorVariable) -> bool:
    others = [other for other in model.free_RVs if other is not rv]
    return any(depends_on(parameter, others) for parameter in parameters(rv))


def check_scan(
    conditionals: Sequence[Conditional], given: Sequence[Collection[TensorVariable]]
) -> None:
    """Check that no draw uses a variable after it was integrated out and before its fresh draw.

    Parameters
    ----------
    conditionals : sequence of Conditional
        In the order of the sweep, which is repeated.
    given : sequence of collection of TensorVariable
        What each draw conditions on.

    Raises
    ------
    ValueError
        If the order would not leave the posterior invariant.
    """
    stale: dict[TensorVariable, Conditional] = {}
    for conditional, conditions in 2 * list(zip(conditionals, given, strict=True)):
        for rv in stale.keys() & set(conditions):
            drawn = describe(conditional.draws[0]) if conditional.draws else conditional.name
            raise ValueError(
                f"{drawn} is drawn given {describe(rv)}, which was "
                f"integrated out of the draw of {describe(stale[rv].draws[0])} and has not been "
                "drawn afresh."
            )
        for rv in conditional.draws:
            stale.pop(rv, None)
        stale.update(dict.fromkeys(conditional.integrates_out, conditional))

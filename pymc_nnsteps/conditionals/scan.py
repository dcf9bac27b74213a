"""What a sweep draws together and in which order, and when an order is valid."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.above import Augmentation
from pymc_nnsteps.conditionals.chain import GaussianChain, match_chains
from pymc_nnsteps.conditionals.collapse import CollapsedLayer, match_collapsed
from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.conditionals.gates import Gates
from pymc_nnsteps.conditionals.gaussian import Gaussian
from pymc_nnsteps.conditionals.interweaving import Interweaving, match_interweaving
from pymc_nnsteps.conditionals.piecewise import PiecewiseGaussian
from pymc_nnsteps.conditionals.structure import NotConjugate, depends_on, describe, parameters

Choice = bool | Literal["auto"]

LAYERWISE = (GaussianChain, Augmentation)

LARGEST_COLLAPSED = 1500
"""Number of a layer's weights up to which they are drawn jointly where that is left open."""

LONGEST_ROW = 128
"""Number of a unit's weights up to which they are interwoven where that is left open."""


@dataclass(frozen=True)
class Combination:
    """How draws are combined.

    Attributes
    ----------
    collapse : bool or "auto"
        Whether gates and weights of a layer are drawn with its activations integrated out.
        "auto": layers with no more weights than is quick.
    interweave : bool or "auto"
        Whether weights are also moved together with their pre-activations. "auto": rows with no
        more weights than is quick.
    passes : int
        How often each of these is moved in a sweep.
    """

    collapse: Choice = "auto"
    interweave: Choice = "auto"
    passes: int = 5


def combine(
    model: pm.Model, conditionals: Sequence[Conditional], how: Combination, shapes: Shapes
) -> list[Conditional]:
    """Join draws of one layer, and of several, that mix better together.

    Gates and weights of a layer are drawn with its activations integrated out and weights are
    moved with their pre-activations, where that is asked for and there are such; Gaussian layers
    that follow each other are drawn jointly.

    Parameters
    ----------
    model : pm.Model
    conditionals : sequence of Conditional
        One for each block of variables, in the model's order.
    how : Combination
    shapes : mapping from random variable to tuple of int

    Raises
    ------
    ValueError
        If ``collapse`` or ``interweave`` is True and there is a layer, or no layer at all, for
        which it cannot be.
    """
    collapsed = _collapsed_layers(conditionals, how.collapse, shapes)
    found = _moves(model, conditionals, how, shapes)
    moves = {a: move for a, move in found.items() if a not in collapsed}
    chains = match_chains([c for c in conditionals if isinstance(c, Gaussian)])
    last = {chain.draws[-1]: chain for chain in chains}
    in_chains = {rv for chain in chains for rv in chain.draws}
    joined = {
        rv for layer in collapsed.values() for rv in (*layer.gates.draws, *layer.weights.draws)
    }
    own = {c.draws[0]: c for c in conditionals}
    after_move = {move.draws[-1] for move in moves.values()}
    combined: list[Conditional] = []
    for conditional in conditionals:
        [rv, *_] = conditional.draws
        if rv in joined or rv in after_move:
            continue
        if rv in collapsed:
            layer = collapsed[rv]
            drawn_by_chain = rv in last and not layer.above.before
            combined.extend(layer.draws[:-1] if drawn_by_chain else layer.draws)
        elif rv in moves:
            move = moves[rv]
            combined.extend((*move.above.before, move, move.above.fresh, own[move.draws[-1]]))
        elif rv not in in_chains:
            combined.append(conditional)
        if rv in last:
            combined.append(last[rv])
    return combined


def _moves(
    model: pm.Model, conditionals: Sequence[Conditional], how: Combination, shapes: Shapes
) -> dict[TensorVariable, Interweaving]:
    """Moves of weights with their pre-activations, by the activations."""
    if how.interweave is False:
        return {}
    moves: dict[TensorVariable, Interweaving] = {}
    for conditional in conditionals:
        [z, *others] = conditional.draws
        required = how.interweave is True and isinstance(conditional, PiecewiseGaussian)
        if others or not isinstance(conditional, PiecewiseGaussian | Gaussian):
            continue
        try:
            move = match_interweaving(model, z, conditionals, how.passes)
        except NotConjugate as reason:
            if required:
                raise ValueError(
                    f'interweave is True, but {describe(z)} cannot be: {reason}; use "auto".'
                ) from None
            continue
        [a] = move.integrates_out
        if required and a in moves:
            raise ValueError(
                f"interweave is True, but {describe(a)} is moved with {describe(z)} and with "
                f'{describe(moves[a].draws[-1])}; use "auto".'
            )
        if how.interweave is True or move.row_length(shapes) <= LONGEST_ROW:
            moves.setdefault(a, move)
    if how.interweave is True and not moves:
        raise ValueError(
            "interweave is True, but no pre-activations behind a piecewise-linear activation are "
            'drawn together with their weights and activations; use "auto".'
        )
    return moves


def _collapsed_layers(
    conditionals: Sequence[Conditional], collapse: Choice, shapes: Shapes
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

    That draw must be a part of the same sweep, whose end is what is stored.

    Parameters
    ----------
    conditionals : sequence of Conditional
        In the order of the sweep.
    given : sequence of collection of TensorVariable
        What each draw conditions on.

    Raises
    ------
    ValueError
        If the order would not leave the posterior invariant.
    """
    stale: dict[TensorVariable, Conditional] = {}
    for conditional, conditions in zip(conditionals, given, strict=True):
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
    for rv, conditional in stale.items():
        raise ValueError(
            f"{describe(rv)} was integrated out of the draw of {describe(conditional.draws[0])} "
            "and has not been drawn afresh when the sweep ends."
        )

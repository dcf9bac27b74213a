"""Which layers' rows of weights are interwoven with their pre-activations, and by which moves."""

from collections.abc import Mapping

from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.laws.conditional import Conditional
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.piecewise import PiecewiseGaussian
from pymc_nnsteps.moves.contract import Context, proposes
from pymc_nnsteps.moves.interweaving import (
    Interweaving,
    InterwovenKernels,
    match_interweaving,
    match_kernels,
)
from pymc_nnsteps.moves.layer_trajectories import find_trajectories
from pymc_nnsteps.moves.outgoing_weights import find_outgoing, find_unit_rays


@proposes(priority=300)
def propose_interwoven(context: Context) -> None:
    """Propose to move weights with their pre-activations."""
    interweave = context.options.interweave
    if interweave is False:
        return
    moves: dict[TensorVariable, Interweaving] = {}
    by_variable = {block.draws[0]: block for block in context.blocks}
    for block in context.blocks:
        [z, *others] = block.draws
        if others or not isinstance(block, PiecewiseGaussian | Gaussian):
            continue
        if isinstance(block, PiecewiseGaussian):
            move = context.read(z, "interwoven", _match, context, z, moves)
        else:
            move = known_or_none(_match, context, z, moves)
        if move is None:
            continue
        a = move.likelihood.activations
        moves[a] = move
        if a not in context.layers:
            draws = (
                *move.likelihood.before,
                move,
                *_moves_above(context, move),
                *move.refreshed,
                block,
            )
            context.put(draws, at=by_variable[a], removes=(*move.refreshed[1:], block))
    if interweave is True and not (moves or context.layers):
        raise ValueError(
            "interweave is True, but no pre-activations behind a piecewise-linear activation, and "
            "no binary gates, are drawn together with their weights and activations; use "
            '"auto".'
        )
    layers = {a: move.likelihood for a, move in moves.items() if a.ndim == 2}
    context.layers = layers | context.layers


def _match(
    context: Context, z: TensorVariable, moves: Mapping[TensorVariable, Interweaving]
) -> Interweaving:
    """The move of pre-activations whose activations are in none."""
    match = match_interweaving if z.ndim <= 2 else match_kernels
    move = match(context.model, z, context.blocks, context.options.passes)
    a = move.likelihood.activations
    if a in moves:
        raise NotConjugate(
            f"{describe(a)} is moved together with {describe(moves[a].pre_activations)}"
        )
    return move.unless_slow(context.options, context.shapes)


def _moves_above(context: Context, rows: Interweaving) -> list[Conditional]:
    """Draws of the weights that see a layer, which stand behind the move of its own."""
    outgoing = find_outgoing(context.model, rows, context.blocks)
    if outgoing is None:
        return []
    if isinstance(rows, InterwovenKernels):
        return [outgoing]
    given = context.model, outgoing, context.blocks, context.shapes
    moves: list[Conditional | None] = [outgoing]
    if context.options.rays:
        moves.append(find_unit_rays(*given))
    if context.options.trajectories:
        moves.append(
            context.read(outgoing.draws[0], "along trajectories", find_trajectories, *given)
        )
    return [move for move in moves if move is not None]

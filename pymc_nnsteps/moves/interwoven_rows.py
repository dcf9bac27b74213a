"""Which layers' rows of weights are interwoven with their pre-activations, and by which moves."""

from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.laws.conditional import Conditional
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.piecewise import PiecewiseGaussian
from pymc_nnsteps.moves.contract import Context, Proposals, Replacement, proposes
from pymc_nnsteps.moves.interweaving import Interweaving, match_interweaving
from pymc_nnsteps.moves.interwoven_kernels import InterwovenKernels, match_kernels
from pymc_nnsteps.moves.layer_trajectories import find_trajectories
from pymc_nnsteps.moves.outgoing_weights import find_outgoing
from pymc_nnsteps.moves.unit_rays import find_unit_rays


@proposes(priority=300)
def propose_interwoven(context: Context) -> Proposals:
    """Propose to move weights with their pre-activations."""
    model, blocks, interweave = context.model, context.blocks, context.options.interweave
    if interweave is False:
        return Proposals()
    moves: dict[TensorVariable, Interweaving] = {}
    replacements: list[Replacement] = []
    declined: dict[TensorVariable, str] = {}
    by_variable = {block.draws[0]: block for block in blocks}
    for block in blocks:
        [z, *others] = block.draws
        expected = isinstance(block, PiecewiseGaussian)
        if others or not isinstance(block, PiecewiseGaussian | Gaussian):
            continue
        try:
            match = match_interweaving if z.ndim <= 2 else match_kernels
            move = match(model, z, blocks, context.options.passes)
            a = move.likelihood.activations
            if a in moves:
                raise NotConjugate(
                    f"{describe(a)} is moved with {describe(moves[a].pre_activations)}"
                )
        except NotConjugate as reason:
            if expected and interweave is True:
                raise ValueError(
                    f'interweave is True, but {describe(z)} cannot be: {reason}; use "auto".'
                ) from None
            if expected:
                declined[z] = f"not interwoven: {reason}"
            continue
        if interweave == "auto" and (too_slow := move.why_slow(context.shapes)):
            if expected:
                declined[z] = too_slow
            continue
        moves[a] = move
        if a not in context.layers:
            above = _moves_above(context, move, declined)
            puts = (*move.likelihood.before, move, *above, *move.refreshed, block)
            replacements.append(Replacement(by_variable[a], (*move.refreshed[1:], block), puts))
    if interweave is True and not (moves or context.layers):
        raise ValueError(
            "interweave is True, but no pre-activations behind a piecewise-linear activation, and "
            "no binary gates, are drawn together with their weights and activations; use "
            '"auto".'
        )
    layers = {a: move.likelihood for a, move in moves.items() if a.ndim == 2}
    return Proposals(tuple(replacements), layers, declined)


def _moves_above(
    context: Context, rows: Interweaving, declined: dict[TensorVariable, str]
) -> tuple[Conditional, ...]:
    """Draws of the weights that see a layer, which stand behind the move of its own."""
    outgoing = find_outgoing(context.model, rows, context.blocks)
    if outgoing is None:
        return ()
    if isinstance(rows, InterwovenKernels):
        return (outgoing,)
    moves: list[Conditional | None] = [outgoing]
    if context.options.rays:
        moves.append(find_unit_rays(context.model, outgoing, context.blocks, context.shapes))
    if context.options.trajectories:
        try:
            moves.append(find_trajectories(context.model, outgoing, context.blocks, context.shapes))
        except NotConjugate as reason:
            declined[outgoing.draws[0]] = f"not along trajectories: {reason}"
    return tuple(move for move in moves if move is not None)

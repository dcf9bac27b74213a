"""Effects of groups drawn with all other linear terms of their children."""

from pymc_nnsteps.laws.effects import join_effects
from pymc_nnsteps.moves.contract import Context, proposes
from pymc_nnsteps.moves.replacement import Proposals, Replacement


@proposes(priority=500)
def propose_joined_effects(context: Context) -> Proposals:
    """Propose to draw effects of groups with all else that is linear."""
    joined = join_effects(context.model, context.sweep, context.shapes)
    return Proposals(
        tuple(Replacement(last, tuple(apart), (effects,)) for effects, (*apart, last) in joined)
    )

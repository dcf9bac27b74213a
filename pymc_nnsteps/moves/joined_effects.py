"""Effects of groups drawn with all other linear terms of their children."""

from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.laws.effects import Effects, largest
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.moves.contract import Context, proposes


@proposes(priority=500)
def propose_joined_effects(context: Context) -> None:
    """Propose to draw effects of groups with all else that is linear.

    Variables that other draws integrate out are not joined.
    """
    model = context.model
    latent = {rv for block in context.sweep for rv in block.integrates_out}
    left = [
        block
        for block in context.sweep
        if (
            (isinstance(block, Gaussian) and block.observations)
            or (isinstance(block, Effects) and not block.integrates_out)
        )
        and latent.isdisjoint(block.draws)
    ]
    while left:
        seen_by = children(model, left[0].draws[0])
        alike = [block for block in left if children(model, block.draws[0]) == seen_by]
        effects = largest(model, [block.draws for block in alike], context.shapes)
        taken = alike[:1]
        if effects is not None:
            taken = [block for block in alike if block.draws[0] in effects.draws]
            if len(taken) > 1 or effects.centred:
                *apart, last = taken
                context.put([effects], at=last, removes=apart)
        left = [block for block in left if block not in taken]

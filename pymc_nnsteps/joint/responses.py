"""What of a layer's response is drawn with the layer's activations integrated out, and when.

Such draws stand just before that of the activations, which then are drawn afresh.
"""

from collections.abc import Mapping, Sequence

from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.conditional import Conditional, Shapes
from pymc_nnsteps.conditionals.gaussian import Gaussian
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.joint.marginal_likelihood import MarginalLikelihood, marginal_likelihood
from pymc_nnsteps.joint.replacement import Replacement
from pymc_nnsteps.joint.residual_scales import find_residual_scales


def propose_responses(
    blocks: Sequence[Conditional],
    sweep: Sequence[Conditional],
    integrated: Mapping[TensorVariable, MarginalLikelihood],
    shapes: Shapes,
) -> list[Replacement]:
    """Propose to draw scales without the activations between them.

    Parameters
    ----------
    blocks : sequence of Conditional
        The conditionals as they were recognised.
    sweep : sequence of Conditional
        What has become of them.
    integrated : mapping from random variable to MarginalLikelihood
        Activations that other draws integrate out, by what these see of them.
    shapes : mapping from random variable to tuple of int
    """
    proposals = []
    for block in blocks:
        [a, *others] = block.draws
        if others or not isinstance(block, Gaussian) or not block.observations:
            continue
        try:
            likelihood = integrated.get(a) or marginal_likelihood(block)
        except NotConjugate:
            continue
        draws = find_residual_scales(likelihood, blocks, shapes)
        if draws:
            before = () if a in integrated else likelihood.before
            [own] = [draw for draw in sweep if isinstance(draw, Gaussian) and draw.draws == (a,)]
            proposals.append(Replacement(own, (), (*before, *draws, likelihood.fresh)))
    return proposals

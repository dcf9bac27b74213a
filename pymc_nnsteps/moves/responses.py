r"""What of a layer's response is drawn with the layer's activations integrated out, and when.

Model, with activations :math:`X_n` of a layer that one or several outputs see (columns of a
child, or children), and effects :math:`\beta` (an intercept, effects of groups, coefficients) that
enter them linearly:

.. math::

    X_n &\sim N(u_n, \Sigma), \qquad
    y_n \sim N(d_n \beta + C X_n, \text{diag}(w_n)^{-1}), \\
    y_n \mid u_n &\sim N(d_n \beta + C u_n, \text{diag}(w_n)^{-1} + C \Sigma C^T).

Without X the full conditional of :math:`\beta` is again that of :mod:`.effects`, at the mean of X
and with noise that outputs have in common (:mod:`pymc_nnsteps.gaussian.groups`). The weights
have draws of their own (:mod:`.outgoing_weights`), and so have scales
(:mod:`.residual_scales`).
All of them stand just before the draw of the activations. The bias alone is left to the draw that
it has with v: to draw it without X as well gains nothing.

Effects of groups that no activations stand beside are drawn with all other linear terms.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import equal_computations
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.groups import CommonNoise
from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.linear_terms import align, varies
from pymc_nnsteps.graphs.search import children, given_any
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import substitute_given, typed_like
from pymc_nnsteps.laws.conditional import Conditional, Shapes
from pymc_nnsteps.laws.effects import ChildParts, Effects, largest, row_axis
from pymc_nnsteps.laws.gaussian import BinaryObservation, Gaussian
from pymc_nnsteps.laws.scales import ScaleLaw
from pymc_nnsteps.moves.marginal_likelihood import (
    MarginalLikelihood,
    marginal_likelihood,
    samples_of,
)
from pymc_nnsteps.moves.noise_scales import find_noise_exchange, find_noise_scale
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.moves.residual_scales import (
    cover,
    find_residual_scales,
    find_vector_scales,
)


@proposes(priority=400)
def propose_responses(context: Context) -> None:
    """Propose to draw effects and scales without the activations beside or between them."""
    if context.options.collapse is False:
        return
    model, blocks, shapes = context.model, context.blocks, context.shapes
    moved: set[TensorVariable] = set()
    declined: dict[TensorVariable, str] = {}
    for block in blocks:
        [a, *others] = block.draws
        if others or not isinstance(block, Gaussian) or not block.observations:
            continue
        likelihood = context.layers.get(a) or known_or_none(marginal_likelihood, block)
        if likelihood is None:
            continue
        effects = find_effects(model, likelihood, blocks, shapes)
        scales = [
            *find_residual_scales(likelihood, blocks, shapes, declined),
            *find_vector_scales(likelihood, blocks, shapes),
            *find_noise_exchange(likelihood, blocks),
        ]
        noise = find_noise_scale(model, likelihood, blocks)
        draws = [*scales, *(move for move in (noise, effects) if move is not None)]
        if draws:
            before = () if a in context.layers else likelihood.before
            [own] = [d for d in context.sweep if isinstance(d, Gaussian) and d.draws == (a,)]
            laws = [law for law in context.sweep if isinstance(law, ScaleLaw)]
            given = [law for law in laws if cover(scales, law.draws[0], shapes)]
            context.put((*before, *draws, likelihood.fresh), at=own, removes=given)
            moved.update(rv for draw in draws for rv in draw.draws)
    left = {rv: reason for rv, reason in declined.items() if rv not in moved}
    context.declined = left | context.declined


def find_effects(
    model: pm.Model,
    likelihood: MarginalLikelihood,
    conditionals: Sequence[Conditional],
    shapes: Shapes,
) -> Effects | None:
    """The draw of all that enters the outputs of a layer linearly, beside the layer."""
    a = likelihood.activations
    beside = [
        rv
        for drawn in conditionals
        if isinstance(drawn, Gaussian | Effects)
        for rv in drawn.draws
        if rv is not a
        and set(children(model, rv)) <= set(children(model, a))
        and not given_any([likelihood.rows.design], [rv])
    ]
    effects = largest(model, [[rv] for rv in beside], shapes)
    if effects is None or {s.child.child for s in effects.seen} != set(children(model, a)):
        return None
    with_weights = [c for c in conditionals if given_any([likelihood.rows.design], c.draws)]
    seen_with_weights = {rv for drawn in with_weights for rv in drawn.draws}
    parts = [part for seen in effects.seen for part in seen.parts]
    are_biases = all(math.prod(shapes[rv]) == 1 for rv in effects.draws) or all(
        part.index is None and part.design.type.broadcastable[0] for part in parts
    )
    if are_biases and seen_with_weights.issuperset(effects.draws):
        return None
    if given_any([part.design for part in parts], [a]):
        return None
    noise = _common_noise(likelihood, effects.seen)
    if noise is None:
        return None
    seen = tuple(replace(s, child=_at_mean(likelihood, s.child)) for s in effects.seen)
    return replace(effects, seen=seen, common_noise=noise, integrates_out=(a,))


def _common_noise(
    likelihood: MarginalLikelihood, seen: Sequence[ChildParts]
) -> tuple[CommonNoise, ...] | None:
    """Noise of activations that outputs see beside them in common; None if not known by rows."""
    if not likelihood.sees_entries_once:
        return None
    a, found = likelihood.activations, []
    together, rows = [list(range(len(seen)))], {}
    if likelihood.sees_samples_once:
        seen_by = list(dict.fromkeys(each.child.child for each in seen))
        together = [[i for i, s in enumerate(seen) if s.child.child is child] for child in seen_by]
    else:
        picked = [samples_of(likelihood.seen_by(each.child.child)) for each in seen]
        n_obs = a.shape[likelihood.samples]
        rows = {i: (index, n_obs) for i, index in enumerate(picked) if index is not None}
    loadings = [_loadings(likelihood, each) for each in seen]
    for outputs in together:
        known = [row for i in outputs if (row := loadings[i]) is not None]
        some = [seen[i] for i in outputs]
        if len(known) < len(outputs) or not _indexed_alike(some):
            return None
        indexed = any(part.index is not None for each in some for part in each.parts)
        if rows and (indexed or any(varies(row, [0]) for row in known)):
            return None
        found.append(CommonNoise(tuple(outputs), tuple(known), likelihood.variance, rows))
    return tuple(found)


def _loadings(likelihood: MarginalLikelihood, seen: ChildParts) -> TensorVariable | None:
    """How rows see the activations, shape (n or 1, units); None if their axis is another one."""
    child = seen.child.child
    through = likelihood.seen_by(child)
    if through.label_axes != [row_axis(child) if seen.output is None else 0]:
        return None
    return likelihood.evidence_by(child).whole_design[:, seen.output or 0]


def _indexed_alike(seen: Sequence[ChildParts]) -> bool:
    """Whether all see each variable by the same index."""
    first, *others = ([part.index for part in each.parts] for each in seen)
    return all(
        a is b or (a is not None and b is not None and equal_computations([a], [b]))
        for other in others
        for a, b in zip(first, other, strict=True)
    )


def _at_mean(likelihood: MarginalLikelihood, child: Child) -> Child:
    """What a child says of effects, with the activations at their mean."""
    a = likelihood.activations
    if isinstance(child, BinaryObservation):
        [before] = likelihood.before
        [omega] = [omega for omega, held in before.fixed.items() if held.child is child.child]
        child = child.given(omega)
    if child.offset is None:
        return child
    mean = pt.broadcast_to(align(likelihood.layer.mean, a.ndim), lengths(a))
    [offset] = substitute_given([child.offset], {a: typed_like(a, mean)})
    return replace(child, offset=offset)


@proposes(priority=500)
def propose_joined_effects(context: Context) -> None:
    """Propose to draw effects with all else that is linear and not integrated out elsewhere."""
    model = context.model
    latent = context.integrated_out
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

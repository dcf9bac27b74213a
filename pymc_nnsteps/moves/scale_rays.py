"""Which scales are moved along a ray with what they scale, read off a model's graph.

A scale goes along a ray with all that it scales, down to effects or weights of which responses
are seen; with scales alone that it controls, those below unmoved; and against another scale with
which it multiplies.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children, given_any, parameters
from pymc_nnsteps.graphs.values import scalar_constant
from pymc_nnsteps.laws.conditional import Conditional, normal_prior
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import Gaussian, is_zero_sum, observe, zero_sum_prior
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.rays import Apart, Ray
from pymc_nnsteps.moves.replacement import Proposals

Degrees = Mapping[TensorVariable, float]


@proposes(priority=700)
def propose_rays(context: Context) -> Proposals:
    """Propose to move scales along rays when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    rays: list[Ray] = []
    for scales, deep in _starts(context):
        try:
            ray = find_ray(context, scales, deep=deep)
        except NotConjugate:
            continue
        if all(ray.degrees != other.degrees for other in rays):
            rays.append(ray)
    return at_the_end(context, rays)


def _starts(context: Context) -> Iterator[tuple[Degrees, bool]]:
    """Scales that begin a ray, and whether all below goes along or only scales do."""
    laws = scales_of(context.blocks)
    for rv, law in laws.items():
        smaller = [seen for seen in law.scaled if _size(context, rv) < _size(context, seen.child)]
        if smaller:
            yield {rv: 1.0}, True
        if any(seen.child in laws for seen in law.scaled):
            yield {rv: 1.0}, False
        for other, its_law in laws.items():
            for ours, theirs in ((a, b) for a in law.scaled for b in its_law.scaled):
                smaller_one = _size(context, rv) < _size(context, other)
                if ours.child is theirs.child and smaller_one:
                    yield {rv: 1.0, other: -ours.form.exponent / theirs.form.exponent}, False


def find_ray(
    context: Context,
    scales: Degrees,
    *,
    deep: bool = False,
    factors: Degrees = MappingProxyType({}),
) -> Ray:
    """The ray of scales that no other takes along, by their degrees, and of what goes with them.

    Effects and weights go along only if it is ``deep``; ``factors`` are those of products that stay
    as they are.
    """
    laws = scales_of(context.blocks)
    means = {
        member.rv: member.mean
        for block in context.blocks
        if isinstance(block, Gaussian | Effects)
        for member in block.members
    }
    degrees = {**scales, **factors}
    of_scales = dict.fromkeys(factors, 0.0)
    stay: list[tuple[Scaled, float]] = []
    for child in context.model.basic_RVs:
        seen_by = {
            rv: seen
            for rv in degrees.keys() & laws.keys()
            for seen in laws[rv].scaled
            if seen.child is child
        }
        degree = sum(degrees[rv] * seen.form.exponent for rv, seen in seen_by.items())
        if not seen_by or (child not in scales and math.isclose(degree, 0, abs_tol=1e-12)):
            continue
        _require_moved_alike(child, scales, degrees, seen_by.values())
        if child in factors:
            of_scales[child] = degree
        elif child in laws or (deep and child in means):
            degrees[child] = degree
        else:
            [seen, *_] = seen_by.values()
            if seen.role.mixing is not None:
                raise NotConjugate(f"{describe(child)} is given its own precision")
            stay.append((seen, degree))
    if len(degrees) == 1:
        raise NotConjugate("nothing goes along with it")
    moved = [rv for rv in degrees if rv in means and rv not in factors]
    return Ray(
        tuple(degrees),
        degrees,
        tuple(scales),
        {rv: means[rv] for rv in moved},
        tuple(stay),
        _linear(context, degrees, moved, [seen.child for seen, _ in stay]),
        _apart(context.model, factors, of_scales),
    )


def _apart(model: pm.Model, factors: Degrees, of_scales: Degrees) -> dict[TensorVariable, Apart]:
    """Factors whose density changes on a ray."""
    found = {}
    for rv, degree in of_scales.items():
        mean, precision = zero_sum_prior(model, rv) if is_zero_sum(rv) else normal_prior(model, rv)
        if not math.isclose(degree, factors[rv]) or scalar_constant(mean) != 0:
            found[rv] = Apart(mean, precision, degree)
    return found


def _require_moved_alike(
    child: TensorVariable, scales: Degrees, degrees: Degrees, seen_by: Iterable[Scaled]
) -> None:
    """Check that a child depends on what is moved by one power of it in all entries."""
    if child in scales:
        raise NotConjugate(f"{describe(child)} is scaled by another scale of the ray")
    if any(seen.form.where is not None for seen in seen_by):
        raise NotConjugate(f"some entries of {describe(child)} only are scaled")
    [role, *_] = [seen.role for seen in seen_by]
    given = [other for i, other in enumerate(parameters(child)) if i != role.scale]
    if given_any(given, degrees):
        raise NotConjugate(f"more than the scale of {describe(child)} depends on it")


def _linear(
    context: Context,
    degrees: Degrees,
    moved: Sequence[TensorVariable],
    stay: Sequence[TensorVariable],
) -> tuple[tuple[Child, float], ...]:
    """How responses see the Gaussian variables that are moved."""
    model = context.model
    found = []
    seen_by = {rv: children(model, rv) for rv in moved}
    for rv, responses in seen_by.items():
        if not _size(context, rv) < sum(_size(context, child) for child in responses):
            raise NotConjugate(f"{describe(rv)} has as many entries as what is seen of it")
    for child in dict.fromkeys(child for each in seen_by.values() for child in each):
        is_latent = child in model.free_RVs and children(model, child)
        if is_latent or child in stay:
            raise NotConjugate(f"{describe(child)}, a child of what is moved, is no response")
        rvs = [rv for rv, responses in seen_by.items() if child in responses]
        [degree, *others] = {degrees[rv] for rv in rvs}
        if others:
            raise NotConjugate(f"{describe(child)} sees variables of several degrees")
        found.append((observe(model, child, rvs), degree))
    return tuple(found)


def scales_of(blocks: Sequence[Conditional]) -> dict[TensorVariable, ScaleLaw]:
    """Laws of scales, by variable."""
    return {block.draws[0]: block for block in blocks if isinstance(block, ScaleLaw)}


def _size(context: Context, rv: TensorVariable) -> int:
    return math.prod(context.shapes[rv])

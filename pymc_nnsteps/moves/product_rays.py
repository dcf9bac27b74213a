r"""Factors of products moved against each other: children see the products, which stay as they are.

Effects that are written as a product, ``sd * raw[group]`` with ``raw ~ N(0, 1)``, are locked to
their factor where the data say much of the products: each of the two moves only as far as the
products are unknown. So are the two factors of a matrix, ``U @ V.T``, and their scales. Model, for
a Normal variable or a positive number a, and Normal variables b of which children see products
with a alone,

.. math:: a \sim p(a \mid \lambda), \qquad b_i \sim N(m_i, \tau_i^{-1}), \qquad
    y \mid a, b \sim p(y \mid a b).

With :math:`a e^u` and :math:`b e^{-u}` the children see what they saw before, whatever their laws
are. What counts are the priors and the Jacobian (:mod:`.rays`; Liu and Sabatti 2000; of
``sd * raw`` it is the draw of the scale of centred effects, an interweaving of both forms: Yu and
Meng 2011). The scale :math:`\lambda` of a goes along, so that the density of a counts no more, and
on a second ray those of b as well. Where the scales have an entry for each column of a and b, as
where there are none, and children see the products column by column, each column has a u of its
own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pymc as pm
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.linear_terms import Link
from pymc_nnsteps.graphs.search import children, given_any, parameters, stated_in
from pymc_nnsteps.laws.any_scales import Factor
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import Gaussian, is_zero_sum, observe
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.moves.rays import Degrees, Ray, find_ray, scales_of


@dataclass(frozen=True)
class Product:
    """A factor and what it multiplies."""

    up: TensorVariable
    down: tuple[TensorVariable, ...]  # all that children see by products with it
    # Axes of both of which children see products entry by entry; none: no such are known.
    columns: Mapping[TensorVariable, int]


@proposes(priority=1100)
def propose_product_rays(context: Context) -> None:
    """Propose to move factors against what they multiply when all else has been drawn."""
    if not context.options.rays:
        return
    rays: dict[frozenset[frozenset[object]], Ray] = {}
    declined: dict[TensorVariable, str] = {}
    laws = scales_of(context.blocks)
    for product in products(context, declined):
        for scales in _scales_along(product, laws):
            try:
                ray = _ray(context, product, *scales, laws)
            except NotConjugate as reason:
                declined.setdefault(product.up, f"not along a ray: {reason}")
                continue
            ways = [{(rv, s * e) for rv, e in ray.degrees.items()} for s in (1, -1)]
            rays.setdefault(frozenset(map(frozenset, ways)), ray)
    moved = {rv for ray in rays.values() for rv in ray.draws}
    left = {rv: reason for rv, reason in declined.items() if rv not in moved}
    context.sweep = [*context.sweep, *rays.values()]
    context.declined = left | context.declined


def products(
    context: Context, declined: dict[TensorVariable, str] | None = None
) -> Iterator[Product]:
    """Products of variables of a sweep; why factors are in none is added to ``declined``."""
    for up, pool in _factors(context):
        for seed in _multiplied(context.model, up, pool):
            try:
                yield _product(context.model, up, seed, pool)
            except NotConjugate as reason:
                if declined is not None:
                    declined.setdefault(up, f"not along a ray against {describe(seed)}: {reason}")


def _factors(context: Context) -> Iterator[tuple[TensorVariable, list[TensorVariable]]]:
    """Factors and what they may multiply, no activations, whose means other moves take along."""
    model, latent = context.model, context.integrated_out
    linear = [rv for c in context.blocks if isinstance(c, Gaussian | Effects) for rv in c.draws]
    stated = [rv for rv in linear if is_zero_sum(rv) or _has_stated_mean(model, rv)]
    for block in context.blocks:
        if isinstance(block, Factor):
            yield block.draws[0], [rv for rv in linear if rv in stated or rv not in latent]
    for rv in stated:
        if len(stated) > 1:
            yield rv, [other for other in stated if other is not rv]


def _has_stated_mean(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether entries along an axis share their means, or none of these depends on a variable."""
    mean = parameters(rv)[0]
    shared = [True] * (rv.ndim - mean.ndim) + list(mean.type.broadcastable)
    own = [one and not alone for one, alone in zip(shared, rv.type.broadcastable, strict=True)]
    return all(shared) or any(own) or not stated_in([mean], model.free_RVs)


def _multiplied(
    model: pm.Model, up: TensorVariable, pool: Collection[TensorVariable]
) -> list[TensorVariable]:
    """Variables by which a factor is multiplied in what its first child sees."""
    [first, *_] = children(model, up) or (None,)
    if first is None or len(stated_in(first.owner.inputs, pool)) == 0:
        return []
    seen = known_or_none(observe, model, first, [up])
    if seen is None:
        return []
    stated = stated_in([seen.terms[0].whole().coefficient], model.basic_RVs)
    return [rv for rv in pool if rv in stated]


def _product(
    model: pm.Model, up: TensorVariable, seed: TensorVariable, pool: Collection[TensorVariable]
) -> Product:
    """All that a factor multiplies, one variable among it."""
    seen_by = {child: observe(model, child, [up]) for child in children(model, up)}
    parts = {child: seen.terms[0].whole().coefficient for child, seen in seen_by.items()}
    down, n_before = [seed], 0
    while n_before < len(down):
        n_before, forms = len(down), {}
        for child, part in parts.items():
            forms[child] = affine(part, down, model.basic_RVs)
            left = forms[child].offset
            beside = [] if left is None else stated_in([left], model.basic_RVs)
            more = set(pool).intersection(beside).difference(down)
            if left is not None and not more:
                raise NotConjugate(
                    f"{describe(child)} depends on {describe(up)} besides the product"
                )
            down += [rv for rv in pool if rv in more]
    for child, seen in seen_by.items():
        if seen.offset is not None and given_any([seen.offset], down):
            raise NotConjugate(f"{describe(child)} depends on {describe(seed)} besides the product")
    for rv in down:
        if others := [child for child in children(model, rv) if child not in seen_by]:
            raise NotConjugate(f"{describe(others[0])} depends on {describe(rv)} alone")
    paired = {
        rv: [_paired(form.terms[rv].links, up) for form in forms.values() if rv in form.terms]
        for rv in down
    }
    alike = {rv: set(first).intersection(*others) for rv, (first, *others) in paired.items()}
    columns: dict[TensorVariable, int] = {}
    for axis in range(up.ndim):
        along = {rv: other for rv, pairs in alike.items() for own, other in pairs if own == axis}
        if len(along) == len(down) and not any(map(is_zero_sum, (up, *down))):
            columns = {up: axis} | along
    return Product(up, tuple(down), columns)


def _paired(links: Sequence[Link | None], up: TensorVariable) -> list[tuple[int, int]]:
    """Axes of a factor whose entries each multiply those of a variable, and the axes of these."""
    return [
        (axis, link.axis)
        for axis, link in enumerate(links[len(links) - up.ndim :])
        if link is not None and link.index is None and not link.inner
    ]


def _scales_along(
    product: Product, laws: Mapping[TensorVariable, ScaleLaw]
) -> list[tuple[Degrees, Degrees]]:
    """Scales that go along with a factor and with what it multiplies, on one ray or on two."""
    found: list[dict[TensorVariable, float]] = []
    for rvs, degree in (((product.up,), 1.0), (product.down, -1.0)):
        along: dict[TensorVariable, float] = {}
        for rv in rvs:
            own = {
                scale: degree / seen.form.exponent
                for scale, law in laws.items()
                for seen in law.scaled
                if seen.child is rv and not any(scale in other for other in found)
            }
            if own:
                coarsest = min(own, key=lambda s: sum(not one for one in s.type.broadcastable))
                along.setdefault(coarsest, own[coarsest])
        found.append(along)
    up, down = found
    return [(up, {}), (up, down)]


def _ray(
    context: Context, product: Product, up: Degrees, down: Degrees, laws: Mapping[Any, ScaleLaw]
) -> Ray:
    """The ray of a product and of scales that go along."""
    factors = {product.up: 1.0} | dict.fromkeys(product.down, -1.0)
    is_normal = is_zero_sum(product.up) or has_law(context.model, product.up, NormalRV)
    free = {} if is_normal else {product.up: factors.pop(product.up)}
    ray = find_ray(context, {**free, **up, **down}, factors=factors)
    scaled = [(scale, seen) for scale in (*up, *down) for seen in laws[scale].scaled]
    return replace(ray, against=(*product.down, *down), columns=_columns(product, scaled))


def _columns(
    product: Product, scaled: Sequence[tuple[TensorVariable, Scaled]]
) -> dict[TensorVariable, int]:
    """Axes along which each entry may have a number of its own; none where a scale has no such."""
    found = dict(product.columns)
    for scale, seen in scaled:
        own = product.columns.get(seen.child)
        link = None if own is None else seen.form.term.links[own]
        if link is None or link.index is not None or seen.form.picked:
            return {}
        if found.setdefault(scale, link.axis) != link.axis:
            return {}
    return found

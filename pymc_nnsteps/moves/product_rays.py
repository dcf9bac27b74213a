r"""Factors moved against the effects that they multiply, whose products stay as they are.

Effects that are written as a product, ``sd * raw[group]`` with ``raw ~ N(0, 1)``, are locked to
their factor where the data say much of the products: each of the two moves only as far as the
products are unknown. Model, for a positive number s of density p and Normal variables
:math:`r_i` of which its children see products with s alone,

.. math:: r_i \sim N(m_i, \lambda_i^{-1}), \qquad y \mid s, r \sim p(y \mid s r).

With :math:`s e^u` and :math:`r e^{-u}` the children see what they saw before. Given everything else
the log density of u is therefore that of the priors with the Jacobian of the move, up to a constant

.. math::

    \log p(s e^u) + (1 - n) u + e^{-u} \sum_i \lambda_i m_i r_i
    - \tfrac12 e^{-2u} \sum_i \lambda_i r_i^2,

with n free entries of r, whatever the laws of the children are (Liu and Sabatti 2000; it is the
draw of the scale of centred effects, an interweaving of both forms: Yu and Meng 2011). u is
stepped in by :mod:`pymc_nnsteps.random.lattice`; it is zero where all of r is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children, given_any, stated_in
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.laws.any_scales import number_of
from pymc_nnsteps.laws.augmentation import with_any_precision
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.factors import Factor, multiplied_by
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.zero_sum import is_zero_sum, zero_sum_axes, zero_sum_prior
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.replacement import Proposals
from pymc_nnsteps.random.lattice import lattice_step


@dataclass(frozen=True)
class ProductRay(Conditional):
    """A factor multiplied by a number by which all that it multiplies is divided.

    Attributes
    ----------
    priors : mapping from random variable to (TensorVariable, TensorVariable)
        Mean and precision of what the factor multiplies. The factor is drawn first.
    """

    draws: tuple[TensorVariable, ...]
    priors: Mapping[TensorVariable, tuple[TensorVariable, TensorVariable]]
    supplements: bool = True

    @property
    @override
    def name(self) -> str:
        return "step along a ray"

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        return [f"along a ray against {', '.join(map(describe, self._against(rv)))}"]

    def _against(self, rv: TensorVariable) -> Sequence[TensorVariable]:
        factor, *effects = self.draws
        return effects if rv is factor else [factor]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        factor, *effects = self.draws
        rng, shift = lattice_step(rng, self.log_density, 2 / pt.sqrt(1 + self._size))
        is_zero = pt.all([pt.all(pt.eq(rv, 0)) for rv in effects])
        shift = pt.switch(is_zero, 0.0, shift)
        values = {factor: typed_like(factor, factor * pt.exp(shift))}
        values |= {rv: typed_like(rv, rv * pt.exp(-shift)) for rv in effects}
        return Draw(rng, values)

    def log_density(self, shifts: TensorVariable) -> TensorVariable:
        """Log density at shifts of the factor's logarithm, up to a constant."""
        factor = self.draws[0]
        there = (number_of(factor) * pt.exp(shifts)).dimshuffle(0, *["x"] * factor.ndim)
        total = pm.logp(factor, there, warn_rvs=False).flatten() + (1 - self._size) * shifts
        for rv, (mean, precision) in self.priors.items():
            total += (precision * mean * rv).sum() * pt.exp(-shifts)
            total -= (precision * pt.sqr(rv)).sum() * pt.exp(-2 * shifts) / 2
        return total.astype("float64")

    @property
    def _size(self) -> TensorVariable:
        """Number of free entries of what is multiplied."""
        return sum(map(_free_entries, self.priors), pt.zeros((), dtype="float64"))


def _free_entries(rv: TensorVariable) -> TensorVariable:
    """Number of entries, those along an axis whose sum is zero less one."""
    fixed = zero_sum_axes(rv) if is_zero_sum(rv) else ()
    lengths = [rv.shape[axis] - int(axis in fixed) for axis in range(rv.ndim)]
    size: TensorVariable = pt.prod(pt.stack([pt.ones((), dtype="int64"), *lengths]))
    return size.astype("float64")


@proposes(priority=1100)
def propose_product_rays(context: Context) -> Proposals:
    """Propose to move factors against what they multiply when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    return at_the_end(context, _product_rays(context))


def _product_rays(context: Context) -> Iterator[ProductRay]:
    latent = {rv for drawn in context.sweep for rv in drawn.integrates_out}
    linear = [
        rv
        for block in context.blocks
        if isinstance(block, Gaussian | Effects)
        for rv in block.draws
        if rv not in latent
    ]
    for block in context.blocks:
        if isinstance(block, Factor):
            seen_by = children(context.model, block.draws[0])
            alike = [rv for rv in linear if children(context.model, rv) == seen_by]
            if effects := _multiplied(context.model, block, alike):
                priors = {rv: _prior(context.model, rv) for rv in effects}
                yield ProductRay((block.draws[0], *effects), priors)


def _multiplied(
    model: pm.Model, block: Factor, candidates: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Variables that all children see by their products with a factor alone."""
    [factor] = block.draws
    stated = []
    for child in block.observations:
        seen = with_any_precision(child)
        part = multiplied_by(factor, seen.terms[0])
        effects = stated_in([part], model.basic_RVs).intersection(candidates)
        others = [] if seen.offset is None else [seen.offset]
        try:
            form = affine(part, effects, model.basic_RVs)
        except NotConjugate:
            return []
        if form.offset is not None or given_any(others, effects):
            return []
        stated.append(effects)
    first = stated[0]
    return [rv for rv in candidates if rv in first] if all(each == first for each in stated) else []


def _prior(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    return zero_sum_prior(model, rv) if is_zero_sum(rv) else normal_prior(model, rv)

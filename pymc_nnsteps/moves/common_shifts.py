r"""Levels of correlated effects and of series, drawn with the numbers beside them.

Correlated effects of groups (vectors under one MvNormal law) and values of a series are drawn given
all else that a response sees. Their common level then moves only as far as a bias beside them lets
it, such as that of a network. Model, for vectors :math:`a_g` of groups (the values of a series are
vectors of one entry) and numbers :math:`\beta`:

.. math::

    a \sim p(a), \qquad \beta_i \sim N(m_i, \kappa_i^{-1}), \qquad
    y_n \sim N(o_n + z_n \cdot a_{g(n)} + x_n \cdot \beta, w_n^{-1}).

With one vector :math:`\delta` added to all :math:`a_g` (the Jacobian is one), the law of
:math:`\delta` and :math:`\beta` given the deviations is

.. math::

    \delta, \beta \sim N(P^{-1} h, P^{-1}), \quad
    P = \begin{pmatrix} \Lambda & \\ & \kappa \end{pmatrix} + \sum_n w_n
    \begin{pmatrix} z_n \\ x_n \end{pmatrix} \begin{pmatrix} z_n \\ x_n \end{pmatrix}^T, \quad
    h = \begin{pmatrix} \ell \\ \kappa m \end{pmatrix} + \sum_n w_n (y_n - o_n - z_n \cdot a_{g(n)})
    \begin{pmatrix} z_n \\ x_n \end{pmatrix},

where :math:`\log p(a + \delta) = \ell \cdot \delta - \tfrac12 \delta^T \Lambda \delta` up to a
constant. Logistic children enter by their Polya-Gamma variables.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import block_diag, cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.factor import draw_from_factor
from pymc_nnsteps.gaussian.observation import Child
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.linear_terms import Term
from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.values import typed_like
from pymc_nnsteps.kernels.ops import refuse_lost
from pymc_nnsteps.laws.any_scales import number_of
from pymc_nnsteps.laws.augmentation import augmented
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.laws.factors import multiplied_by
from pymc_nnsteps.laws.gaussian import Gaussian, observe
from pymc_nnsteps.laws.multivariate import GaussianVectors
from pymc_nnsteps.laws.series import GaussianSeries
from pymc_nnsteps.moves.contract import Context, at_the_end, proposes
from pymc_nnsteps.moves.replacement import Proposals
from pymc_nnsteps.random.standard_normal import standard_normal

Correlated = GaussianVectors | GaussianSeries


@dataclass(frozen=True)
class CommonShift(Conditional):
    """One vector added to all of a block, jointly with numbers that the same children see.

    Attributes
    ----------
    numbers : mapping from random variable to (TensorVariable, TensorVariable)
        Mean and precision of each number.
    observations : tuple of (Child, Term)
        How each child sees the numbers, with all else in its offset, and how it sees the effects.
    """

    name = "Gaussian"
    draws: tuple[TensorVariable, ...]
    effects: Correlated
    numbers: Mapping[TensorVariable, tuple[TensorVariable, TensorVariable]]
    observations: tuple[tuple[Child, Term], ...]
    supplements: bool = True

    @override
    def also(self, rv: TensorVariable) -> list[str]:
        [shifted] = self.effects.draws
        if rv is shifted:
            return [f"shifted with {', '.join(map(describe, self.numbers))}"]
        return [f"also jointly with the level of {describe(shifted)}"]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        [shifted] = self.effects.draws
        precision, linear = self._prior()
        for child, term in self.observations:
            rng, seen = augmented(rng, child)
            design = self._design(seen.child, seen.terms, term)
            weight, residual = (
                pt.broadcast_to(array, seen.child.shape).flatten().astype("float64")
                for array in (seen.precision, seen.residual)
            )
            weighted = design * weight
            precision += weighted @ design.T
            linear += weighted @ residual
        factor = cholesky(precision, lower=True)
        rng, noise = standard_normal(rng, (linear.shape[0],), "float64")
        drawn = draw_from_factor(factor, linear, noise)
        drawn = refuse_lost(pt.diagonal(precision), pt.diagonal(factor), drawn[None])[0]
        n = len(self.numbers)
        shift = drawn[0] if isinstance(self.effects, GaussianSeries) else drawn[:-n]
        values = {shifted: typed_like(shifted, shifted + shift)}
        for i, rv in enumerate(self.numbers):
            values[rv] = typed_like(rv, drawn[i - n].dimshuffle(["x"] * rv.ndim))
        return Draw(rng, values)

    def _prior(self) -> tuple[TensorVariable, TensorVariable]:
        """Precision matrix and linear part of the shift and the numbers."""
        precision, linear = (part.astype("float64") for part in self.effects.about_shift())
        means, own = (
            pt.stack([number_of(each) for each in part])
            for part in zip(*self.numbers.values(), strict=True)
        )
        return block_diag(precision, pt.diag(own)), pt.concatenate([linear, own * means])

    def _design(self, child: TensorVariable, terms: Sequence[Term], term: Term) -> TensorVariable:
        """What the child sees of the entries of the shift and of each number, in rows."""
        whole, n_out = term.whole().coefficient, term.out_ndim
        n_entries = 1 if isinstance(self.effects, GaussianSeries) else whole.shape[-1]
        last = "x" if isinstance(self.effects, GaussianSeries) else whole.ndim - 1
        entries = whole.dimshuffle(last, *range(n_out))
        parts = [pt.broadcast_to(entries, (n_entries, *child.shape)).reshape((n_entries, -1))]
        for rv, each in zip(self.numbers, terms, strict=True):
            part = pt.broadcast_to(multiplied_by(rv, each), child.shape)
            parts.append(part.reshape((1, -1)))
        return pt.concatenate(parts, axis=0).astype("float64")


@proposes(priority=1200)
def propose_common_shifts(context: Context) -> Proposals:
    """Propose to shift effects with the numbers beside them when all else has been drawn."""
    if not context.options.rays or not context.sweep:
        return Proposals()
    return at_the_end(context, _common_shifts(context))


def _common_shifts(context: Context) -> Iterator[CommonShift]:
    model = context.model
    latent = {rv for drawn in context.sweep for rv in drawn.integrates_out}
    linear = [rv for c in context.blocks if isinstance(c, Gaussian) for rv in c.draws]
    numbers = [rv for rv in linear if all(rv.type.broadcastable) and rv not in latent]
    for block in context.blocks:
        if isinstance(block, Correlated):
            seen_by = children(model, block.draws[0])
            beside = [rv for rv in numbers if seen_by and children(model, rv) == seen_by]
            if beside:
                with contextlib.suppress(NotConjugate):
                    yield _common_shift(model, block, beside)


def _common_shift(
    model: pm.Model, block: Correlated, beside: Sequence[TensorVariable]
) -> CommonShift:
    """The joint draw of a shift and of numbers."""
    observations = []
    for seen in block.observations:
        observe(model, seen.child, [*beside, *block.draws])
        observations.append((observe(model, seen.child, beside), seen.terms[0]))
    laws = {rv: normal_prior(model, rv) for rv in beside}
    return CommonShift((*block.draws, *beside), block, laws, tuple(observations))

r"""Gaussian block under Gaussian children with an affine mean.

Model, for a block :math:`v` of one or several Normal variables and each child :math:`y_c`:

.. math::

    v \sim N(\mu_0, \Lambda^{-1}), \qquad y_c \sim N(C_c v + o_c, P_c^{-1})

with diagonal :math:`\Lambda` and :math:`P_c`. Posterior:

.. math::

    v \mid y \sim N(P^{-1} h, P^{-1}), \quad
    P = \Lambda + \sum_c C_c^T P_c C_c, \quad
    h = \Lambda \mu_0 + \sum_c C_c^T P_c (y_c - o_c).

This one conditional draws weights, biases (as a column of the weights or alone) and
post-activations of the intermediate-noise network (Piccioli et al., eqs 8, 9, F1-F4), and the
coefficients, group effects and latent factors of ordinary models. Bernoulli and Binomial
children with an affine logit enter as below.

The draw uses the structure read by :mod:`.affine`. Axes of :math:`v` that every child carries
along entry by entry are *labels* (units of a layer, samples, groups): given the rest, labels are
independent. The other axes are *dense* and share a precision matrix. The room
:mod:`pymc_nnsteps.gaussian` has the forms in which such a block can be drawn.

**Polya-Gamma augmentation.** Model, for a Bernoulli child :math:`y_i` with logit :math:`\psi_i`:

.. math::

    p(y_i \mid \psi_i) = \frac{e^{y_i \psi_i}}{1 + e^{\psi_i}}
    = \tfrac12 e^{(y_i - 1/2)\psi_i} \int e^{-\omega \psi_i^2/2} \, PG(\omega \mid 1, 0) \, d\omega

Draw :math:`\omega_i \sim PG(1, \psi_i)` at the present logit and forget it after the draw. Given
:math:`\omega_i`, the likelihood equals that of a Normal observation of :math:`\psi_i` at
:math:`(y_i - \tfrac12)/\omega_i` with precision :math:`\omega_i` (Polson, Scott and Windle, 2013).
So a Bernoulli child is one more Gaussian child of a block: Bayesian logistic regression, and
weights or activations behind binary gates (Sheinkman and Wade, *Variational Bayesian Bow tie Neural
Networks with Shrinkage*).
A Binomial child of :math:`n_i` trials is a product of :math:`n_i` Bernoulli likelihoods:
:math:`y_i - n_i/2` replaces :math:`y_i - \tfrac12`, and :math:`\omega_i \sim PG(n_i, \psi_i)`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor import config
from pytensor.graph.basic import Variable
from pytensor.scalar import upcast
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV, LogNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.forms import Block, Sizes, draw
from pymc_nnsteps.gaussian.layout import Member, dense_size, prior_of, split
from pymc_nnsteps.gaussian.observation import (
    Child,
    Evidence,
    Observation,
    Total,
    evidence_of,
    total_of,
)
from pymc_nnsteps.graphs.affine import affine, broadcast
from pymc_nnsteps.graphs.centred import Deviations
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import describe, distribution, is_a
from pymc_nnsteps.graphs.linear_terms import Link, Term, cut_link
from pymc_nnsteps.graphs.search import children, depends_on, parameters
from pymc_nnsteps.laws.conditional import (
    Additive,
    Draw,
    Group,
    Shapes,
    normal_prior,
    precision_of,
    recognises,
    require_free,
    require_given,
    require_support,
    value_of,
)
from pymc_nnsteps.network.activations import decides, logit_of
from pymc_nnsteps.random import polya_gamma


@dataclass(frozen=True)
class BinaryObservation(Child):
    """Bernoulli (``trials`` None) or Binomial child: its logit and ``half = y - trials / 2``."""

    half: TensorVariable
    logit: TensorVariable
    trials: TensorVariable | None = None

    def draw_precision(self, rng: Variable) -> tuple[Variable, TensorVariable]:
        """Draw the Polya-Gamma variables at the present logit."""
        n = 1 if self.trials is None else self.trials
        return polya_gamma(rng, pt.broadcast_to(self.logit, self.half.shape), n)

    def given(self, omega: TensorVariable) -> Observation:
        """Equivalent Gaussian observation, given the Polya-Gamma variables."""
        offset = None if self.offset is None else self.offset.astype(omega.dtype)
        response = self.half / omega
        if self.trials is not None:
            response = pt.switch(pt.eq(self.trials, 0), pt.zeros_like(response), response)
        return Observation(self.child, offset, self.terms, response, omega)


def augmented(rng: Variable, seen: Child) -> tuple[Variable, Observation]:
    """Gaussian observation equivalent to a child; draws Polya-Gamma precisions if it needs any."""
    if isinstance(seen, BinaryObservation):
        rng, omega = seen.draw_precision(rng)
        return rng, seen.given(omega)
    assert isinstance(seen, Observation)
    return rng, seen


def with_any_precision(seen: Child) -> Observation:
    """Gaussian observation equivalent to a child, with arbitrary precisions."""
    if isinstance(seen, BinaryObservation):
        return seen.given(pt.ones_like(seen.half))
    assert isinstance(seen, Observation)
    return seen


NO_DEVIATIONS = Deviations()

OBSERVED = {NormalRV, LogNormalRV, BernoulliRV, BinomialRV}
"""Ops of children that see a Gaussian variable by their mean or logit."""


@dataclass(frozen=True)
class Gaussian(Additive):
    """Joint full conditional of Normal variables whose children are Normal with affine means."""

    members: tuple[Member, ...]
    observations: tuple[Child, ...]

    @property
    @override
    def name(self) -> str:
        logistic = any(isinstance(seen, BinaryObservation) for seen in self.observations)
        return "Gaussian given Polya-Gamma" if logistic else "Gaussian"

    @override
    def group(self, model: pm.Model) -> Group:
        parents = [rv for rv in model.free_RVs if rv not in self.draws]
        stated = [parameter for rv in self.draws for parameter in parameters(rv)]
        has_parents = any(depends_on(parameter, parents) for parameter in stated)
        return Group.POST_ACTIVATIONS if has_parents else Group.WEIGHTS

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rng, evidence = self._evidence(rng, self.observations)
        return self._draw(rng, self._block(shapes, evidence))

    @override
    def link(self, child: TensorVariable, axis: int) -> Link | None:
        [seen] = [seen for seen in self.observations if seen.child is child]
        return seen.terms[0].links[axis]

    @override
    def sums(
        self, rng: Variable, children: Collection[TensorVariable]
    ) -> tuple[Variable, tuple[TensorVariable, ...]]:
        chosen = [seen for seen in self.observations if seen.child in children]
        rng, evidence = self._evidence(rng, chosen)
        total = total_of(evidence, elementwise=self._elementwise)
        return rng, (total.information, total.linear)

    @override
    def draw_given(self, rng: Variable, shapes: Shapes, sums: Sequence[TensorVariable]) -> Draw:
        return self._draw(rng, self._block(shapes, (), Total(*sums)))

    @property
    def _elementwise(self) -> bool:
        """Whether the block's entries are independent."""
        return len(self.members) == 1 and not self.members[0].dense

    def _evidence(
        self, rng: Variable, observations: Sequence[Child]
    ) -> tuple[Variable, list[Evidence]]:
        """Likelihoods of children; draws the auxiliary variables of those with a logit."""
        evidence = []
        for observation in observations:
            rng, seen = augmented(rng, observation)
            evidence.append(evidence_of(self.members, seen))
        return rng, evidence

    def _block(
        self, shapes: Shapes, evidence: Sequence[Evidence], summed: Total | None = None
    ) -> Block:
        first, *others = self.members
        dense = () if others else tuple(first.lengths[axis] for axis in first.dense)
        sizes = Sizes(
            math.prod(shapes[first.rv][axis] for axis in first.labels),
            dense_size(self.members, shapes),
            tuple(
                math.prod(shapes[seen.child][axis] for axis in seen.varying_axes)
                for seen in self.observations
            ),
        )
        prior = prior_of(self.members)
        return Block(prior, tuple(evidence), dense, self._elementwise, sizes, summed)

    def _draw(self, rng: Variable, block: Block) -> Draw:
        rng, drawn = draw(rng, block)
        return Draw(rng, split(drawn, self.members))


def match_gaussian(model: pm.Model, rvs: Sequence[TensorVariable]) -> Gaussian:
    """Recognise the joint full conditional of variables with the same children as Gaussian."""
    direct = children(model, rvs[0])
    if any(children(model, rv) != direct for rv in rvs):
        raise NotConjugate(f"{', '.join(map(describe, rvs))} do not have the same children")
    return gaussian_of(model, rvs, [observe(model, child, rvs) for child in direct])


def gaussian_of(
    model: pm.Model, rvs: Sequence[TensorVariable], observations: Sequence[Child]
) -> Gaussian:
    """The joint full conditional of variables, from what their children say of them."""
    priors = {rv: normal_prior(model, rv) for rv in rvs}
    if len(rvs) == 1:
        [rv] = rvs
        terms = [seen.terms[0] for seen in observations]
        linked = [term.linked_axes for term in terms]
        dense = [a for a in range(rv.ndim) if any(a not in axes for axes in linked)]
        labels = {rv: tuple(axis for axis in range(rv.ndim) if axis not in dense)}
        observations = [cut_axes(seen, rv, dense) for seen in observations]
    else:
        labels = _common_labels(rvs, observations)
    members = tuple(
        Member(
            rv,
            labels[rv],
            tuple(axis for axis in range(rv.ndim) if axis not in labels[rv]),
            *priors[rv],
        )
        for rv in rvs
    )
    return Gaussian(tuple(rvs), members, tuple(observations))


def decides_nothing(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether no child is the decision of a gate."""
    return not any(decides(child) for child in children(model, rv))


@recognises(
    100,
    "Gaussian, given Polya-Gamma variables where children have logits",
    {NormalRV},
    OBSERVED,
    when=decides_nothing,
)
def match_one(model: pm.Model, rv: TensorVariable) -> Gaussian:
    """Recognise the full conditional of one variable as Gaussian."""
    return match_gaussian(model, [rv])


def observe(
    model: pm.Model,
    child: TensorVariable,
    rvs: Sequence[TensorVariable],
    deviations: Deviations = NO_DEVIATIONS,
) -> Child:
    """Read how a child sees variables: by its mean, the mean of its logarithm, or its logit."""
    logit, moved = logit_of(child), [*rvs, *deviations.means]
    if logit is not None:
        offset, terms = _read_affine(model, child, logit, rvs, "logit", deviations)
        logit = logit.astype(upcast(*(rv.dtype for rv in rvs), config.floatX))
        [*stated, _] = parameters(child)
        require_given(model, child, "the number of trials", stated, moved)
        trials = stated[0].astype(logit.dtype) if stated else None
        half = pt.constant(0.5, dtype=logit.dtype)
        centred = value_of(model, child).astype(logit.dtype) - (
            half if trials is None else half * trials
        )
        return BinaryObservation(child, offset, terms, centred, logit, trials)
    if not is_a(child, NormalRV, LogNormalRV):
        raise NotConjugate(f"child {describe(child)} is {distribution(child)}, not Normal")
    mean, sigma = parameters(child)
    require_given(model, child, "the scale", [sigma], moved)
    offset, terms = _read_affine(model, child, mean, rvs, "mean", deviations)
    value = value_of(model, child)
    value = pt.log(value) if is_a(child, LogNormalRV) else value
    return Observation(child, offset, terms, value, precision_of(child, sigma))


def _read_affine(
    model: pm.Model,
    child: TensorVariable,
    parameter: TensorVariable,
    rvs: Sequence[TensorVariable],
    role: str,
    deviations: Deviations,
) -> tuple[TensorVariable | None, tuple[Term, ...]]:
    """Offset and terms of a child's mean or logit."""
    with declined_as(f"the {role} of child {describe(child)} is not affine in it"):
        stated, barriers = deviations.restate(parameter), [*model.basic_RVs, *deviations.barriers]
        form = broadcast(affine(stated, set(rvs), barriers), stated, child)
    if any(rv not in form.terms for rv in rvs):
        raise NotConjugate(f"not all variables of the block enter the {role} of {describe(child)}")
    return form.offset, tuple(form.terms[rv] for rv in rvs)


def cut_axes(seen: Child, rv: TensorVariable, dense: Sequence[int]) -> Child:
    """How a child sees a variable, with some of the axes carried along made dense."""
    [term] = seen.terms
    for out_axis, link in enumerate(term.links):
        if link is not None and link.axis in dense:
            term = cut_link(term, out_axis, rv)
    return replace(seen, terms=(term,))


def _common_labels(
    rvs: Sequence[TensorVariable], observations: Sequence[Child]
) -> dict[TensorVariable, tuple[int, ...]]:
    """Label axes of each variable of a block, in the order of the first child's axes."""
    names = ", ".join(describe(rv) for rv in rvs)
    if not observations:
        raise NotConjugate(f"{names} have no children")
    carried = [_carried_together(seen, names) for seen in observations]
    for seen, labels in zip(observations, carried, strict=True):
        if set(labels) != set(carried[0]):
            raise NotConjugate(f"{names} enter {describe(seen.child)} along different axes")
    return {rv: tuple(label[i] for label in carried[0]) for i, rv in enumerate(rvs)}


def _carried_together(seen: Child, names: str) -> list[tuple[int, ...]]:
    """Axes of the block's variables, for each axis of the child that carries the block along."""
    labels = []
    for links in zip(*(term.links for term in seen.terms), strict=True):
        known = [link for link in links if link is not None]
        if known and (len(known) < len(links) or any(link.index is not None for link in known)):
            raise NotConjugate(f"{names} vary along different axes of {describe(seen.child)}")
        if known:
            labels.append(tuple(link.axis for link in known))
    return labels


def is_zero_sum(rv: TensorVariable) -> bool:
    """Whether a variable is ``pm.ZeroSumNormal``."""
    return is_a(rv, ZeroSumNormalRV)


def zero_sum_axes(rv: TensorVariable) -> tuple[int, ...]:
    """Axes of a ``pm.ZeroSumNormal`` along each of which its entries sum to zero."""
    return tuple(range(rv.ndim - rv.owner.op.ndim_supp, rv.ndim))


def zero_sum_prior(model: pm.Model, rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mean and precision of entries of ``pm.ZeroSumNormal`` before their sums are given."""
    require_free(model, rv)
    require_support(model, rv, ZeroSumTransform)
    sigma, _ = parameters(rv)
    return pt.zeros((), dtype=rv.dtype), precision_of(rv, sigma)

r"""Scales moved along orbits with what they scale.

A scale and what it scales are locked together when each is drawn given the other. The move here
takes both along, by the log density of :mod:`pymc_nnsteps.laws.any_scales`. There :math:`n_s` are
the entries of each scale s that no other takes along; children that stay are those whose scale
alone is moved; and Gaussian children c of what is moved, :math:`y_c = o_c + H_c w + \epsilon_c`,
:math:`\epsilon_c \sim N(0, \Lambda_c^{-1})`, have

.. math::

    a_c = (H_c (w - \mu))^T \Lambda_c (y_c - o_c - H_c \mu), \qquad
    b_c = (H_c (w - \mu))^T \Lambda_c \, H_c (w - \mu),

logistic ones by their Polya-Gamma variables: one pass over the rows. A Gaussian variable x that
is multiplied by :math:`e^{e u}` where its scale is by :math:`e^{q u}`, as a factor of products that
children see (:mod:`.product_rays`), keeps what is left of its :math:`n` entries' own density,

.. math::

    (e - q) n u - \tfrac12 \sum_i \lambda_i (x_i e^{e u} - \mu_i)^2 e^{-2 q u}.

u is stepped in by :mod:`pymc_nnsteps.random.lattice`. It is zero where all of such a variable is,
or where all of a child that stays equals its mean, as weights do that start at zero: there q may
have no integral.

A scale goes along a ray with all that it scales, down to effects or weights of which responses
are seen; with scales alone that it controls, those below unmoved; and against another scale with
which it multiplies.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from types import MappingProxyType
from typing import override

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Child, Observation
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import children, given_any, parameters
from pymc_nnsteps.graphs.shapes import lengths
from pymc_nnsteps.graphs.values import scalar_constant, substitute_given, typed_like
from pymc_nnsteps.laws.any_scales import Powers, of_linear, of_scaled, order_and_rate
from pymc_nnsteps.laws.conditional import Conditional, Draw, Shapes, normal_prior
from pymc_nnsteps.laws.effects import Effects
from pymc_nnsteps.laws.gaussian import (
    BinaryObservation,
    Gaussian,
    augmented,
    is_zero_sum,
    observe,
    zero_sum_axes,
    zero_sum_prior,
)
from pymc_nnsteps.laws.scales import Scaled, ScaleLaw
from pymc_nnsteps.moves.plan import Context, follows
from pymc_nnsteps.random.lattice import lattice_step

WIDEST = 0.3
"""Largest spacing of the lattice, in units of the logarithm of a scale."""

Degrees = Mapping[TensorVariable, float]


@dataclass(frozen=True)
class Apart:
    """Prior of a Gaussian variable that moves by another degree than its scale, or about zero."""

    mean: TensorVariable
    precision: TensorVariable
    degree: float  # that of its scale


@dataclass(frozen=True)
class Ray(Conditional):
    """Scales with what they scale, multiplied by the same number to the power of their degrees."""

    name = "step along a ray"
    degrees: Degrees  # of all that is moved
    scales: tuple[TensorVariable, ...]  # those that no other takes along
    about: Mapping[TensorVariable, TensorVariable]  # means of the Gaussian ones
    # Children that are not moved, and the degree by which their scale is.
    stay: tuple[tuple[Scaled, float], ...]
    # Gaussian children of Gaussian variables, and the degree of these.
    linear: tuple[tuple[Child, float], ...]
    apart: Mapping[TensorVariable, Apart] = field(default_factory=dict)
    # Those by whose products with the others children see both.
    against: tuple[TensorVariable, ...] = ()
    # The axis of each variable along which each entry has a number of its own; none: there is one
    # number.
    columns: Mapping[TensorVariable, int] = field(default_factory=dict)
    supplements = True

    @override
    def explain_move(self, rv: TensorVariable) -> list[str]:
        sides: tuple[list[str], list[str]] = [], []
        for other in self.partners(rv):
            sides[(other in self.against) != (rv in self.against)].append(describe(other))
        words = zip(("with", "against"), sides, strict=True)
        return [" ".join(["along a ray", *(f"{how} {', '.join(n)}" for how, n in words if n)])]

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        observations = []
        for child, _ in self.linear:
            rng, observation = augmented(rng, child)
            observations.append(observation)
        widest = WIDEST if not self.apart else pt.minimum(WIDEST, 2 / pt.sqrt(1 + self._entries()))
        log_density = partial(self.log_density, observations)
        n_columns = None
        for rv, axis in self.columns.items():
            n_columns = rv.shape[axis]
        rng, shift = lattice_step(rng, log_density, widest, size=n_columns)
        for rv in self.apart:
            shift = pt.switch(pt.eq(self._sum(rv, abs(rv)), 0), 0.0, shift)
        for seen, _ in self.stay:
            _, rate = order_and_rate(seen)
            shift = pt.switch(pt.eq(rate, 0), 0.0, shift)
        return Draw(rng, {rv: self._moved(rv, shift) for rv in self.draws})

    def log_density(
        self, observations: Sequence[Observation], shifts: TensorVariable
    ) -> TensorVariable:
        """Log density of u, given what the Gaussian children say, up to a constant."""
        parts = [of_scaled(seen, degree) for seen, degree in self.stay]
        for (child, degree), observation in zip(self.linear, observations, strict=True):
            parts.append(of_linear(*self._squares(child, observation), degree))
        parts += [self._of_apart(rv) for rv in self.apart]
        log_density = reduce(add, parts, Powers(0.0))(shifts)
        for rv in self.scales:
            log_density += self._prior(rv, shifts)
        return log_density.astype("float64")

    def _moved(self, rv: TensorVariable, shift: TensorVariable) -> TensorVariable:
        along = self._along(rv, shift[None])[0]
        factor, mean = pt.exp(self.degrees[rv] * along), self.about.get(rv)
        return typed_like(rv, rv * factor if mean is None else mean + (rv - mean) * factor)

    def _prior(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """Log density of the logarithm of a scale that is shifted."""
        degree = self.degrees[rv]
        along = self._along(rv, shifts)
        prior = pm.logp(rv, rv * pt.exp(degree * along), warn_rvs=False) + degree * along
        total: TensorVariable = self._sum(rv, prior + pt.zeros_like(rv))
        return total

    def _of_apart(self, rv: TensorVariable) -> Powers:
        """What is left of a Gaussian density and of the Jacobian."""
        prior, degree = self.apart[rv], self.degrees[rv]
        left, precision = degree - prior.degree, prior.precision.astype("float64")
        squares, products, means = (
            self._sum(rv, precision * each + pt.zeros_like(rv))
            for each in (pt.sqr(rv), rv * prior.mean, pt.sqr(prior.mean))
        )
        terms = (
            *((2 * left, -squares / 2), (left - prior.degree, products)),
            (-2 * prior.degree, -means / 2),
        )
        return Powers(left * self._free_entries(rv), terms)

    def _entries(self) -> TensorVariable:
        """Number of entries by which the width of the density goes."""
        found = [
            (self.degrees[rv] - prior.degree) ** 2 * self._free_entries(rv)
            for rv, prior in self.apart.items()
        ]
        return sum(found, pt.zeros((), dtype="float64"))

    def _free_entries(self, rv: TensorVariable) -> TensorVariable:
        """Number of entries that have one number, less one along each axis whose sum is zero."""
        fixed = zero_sum_axes(rv) if is_zero_sum(rv) else ()
        own = self.columns.get(rv)
        sizes = [rv.shape[a] - int(a in fixed) for a in range(rv.ndim) if a != own]
        size: TensorVariable = pt.prod(pt.stack([pt.ones((), dtype="int64"), *sizes]))
        return size.astype("float64")

    def _along(self, rv: TensorVariable, shifts: TensorVariable) -> TensorVariable:
        """Shifts with the axes (points, those of a variable)."""
        own = self.columns.get(rv)
        return shifts.dimshuffle(0, *(1 if axis == own else "x" for axis in range(rv.ndim)))

    def _sum(self, rv: TensorVariable, array: TensorVariable) -> TensorVariable:
        """Sum over entries of a variable that have one number; points come first, if any."""
        own, first = self.columns.get(rv), array.ndim - rv.ndim
        axes = tuple(first + axis for axis in range(rv.ndim) if axis != own)
        total: TensorVariable = array.sum(axes) if axes else array
        return total

    def _squares(
        self, child: Child, observation: Observation
    ) -> tuple[TensorVariable, TensorVariable]:
        """``a`` and ``b`` of a Gaussian child."""
        at_means = {
            rv: typed_like(rv, pt.broadcast_to(mean, lengths(rv)))
            for rv, mean in self.about.items()
        }
        [mean, *_] = parameters(child.child)
        predictor = child.logit if isinstance(child, BinaryObservation) else mean
        [rest] = substitute_given([predictor], at_means)
        fit = predictor - rest + pt.zeros_like(observation.value)
        weighted = observation.precision * fit
        return (weighted * (observation.value - rest)).sum(), (weighted * fit).sum()


@follows(priority=700)
def _rays(context: Context) -> list[Ray]:
    """Rays of scales, each once."""
    rays: list[Ray] = []
    for scales, deep in _starts(context):
        ray = known_or_none(find_ray, context, scales, deep=deep)
        if ray is not None and all(ray.degrees != other.degrees for other in rays):
            rays.append(ray)
    return rays


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

    Effects and weights go along only if it is ``deep``; ``factors`` of products stay as they are.
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
        raise NotConjugate("no variable is rescaled with it")
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
    """Check that a child depends on the moved variables by one power of it in all entries."""
    if child in scales:
        raise NotConjugate(f"{describe(child)} is scaled by another scale of the ray")
    if any(seen.form.where is not None for seen in seen_by):
        raise NotConjugate(f"only some entries of {describe(child)} are scaled")
    [role, *_] = [seen.role for seen in seen_by]
    given = [other for i, other in enumerate(parameters(child)) if i != role.scale]
    if given_any(given, degrees):
        raise NotConjugate(f"a parameter other than the scale of {describe(child)} depends on it")


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
            raise NotConjugate(f"{describe(rv)} has at least as many entries as its children")
    for child in dict.fromkeys(child for each in seen_by.values() for child in each):
        is_latent = child in model.free_RVs and children(model, child)
        if is_latent or child in stay:
            raise NotConjugate(
                f"{describe(child)}, a child of the moved variables, is not a response"
            )
        rvs = [rv for rv, responses in seen_by.items() if child in responses]
        [degree, *others] = {degrees[rv] for rv in rvs}
        if others:
            raise NotConjugate(
                f"{describe(child)} depends on variables that are scaled by different powers"
            )
        found.append((observe(model, child, rvs), degree))
    return tuple(found)


def scales_of(blocks: Sequence[Conditional]) -> dict[TensorVariable, ScaleLaw]:
    """Laws of scales, by variable."""
    return {block.draws[0]: block for block in blocks if isinstance(block, ScaleLaw)}


def _size(context: Context, rv: TensorVariable) -> int:
    return math.prod(context.shapes[rv])

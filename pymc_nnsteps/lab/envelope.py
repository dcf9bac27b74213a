r"""Envelopes: a prior to propose from, and a bound on what is left of the likelihood.

Exact draws by rejection need a proposal q with :math:`p(\theta) L(\theta) \le C q(\theta)`. The
probability of a discrete observation is at most one. The density of a real one with location
:math:`\mu` and scale s is at most its value at :math:`\mu`, a constant over s. Where s is fixed
the prior serves as q. Where it is a power :math:`a v^p` of a positive variable, :math:`1/s` would
have no bound, so that it goes into the proposal:

.. math::

    q(v) \propto p(v) \prod_i s_i^{-1} \propto p(v)\, v^k, \qquad k = -\sum_i p_i,

which for a Gamma or inverse Gamma prior is one again, with another shape. If the prior of v has a
scale t of its own, integrating :math:`v^k` leaves :math:`t^k`, which in the same way goes into the
proposal of the variables that t depends on (Neal, *Neural Network Models Implemented in the
Flexible Bayesian Modelling Software*, eq. 69, for two levels of precisions).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.basic import conditional_logp
from pytensor.tensor.random.basic import (
    ExponentialRV,
    GammaRV,
    InvGammaRV,
    LaplaceRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
    gamma,
    invgamma,
)
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, declined_as
from pymc_nnsteps.graphs.known import (
    LINE,
    POSITIVE,
    describe,
    distribution,
    has_foreign_density,
    has_prior,
    is_onto,
    prior_kind,
)
from pymc_nnsteps.graphs.search import parameters, stated_in
from pymc_nnsteps.graphs.values import observed_values, substitute
from pymc_nnsteps.laws.entries import summed
from pymc_nnsteps.laws.scales import CHILDREN, scaled_child

LOCATION: dict[type, int] = {NormalRV: 0, StudentTRV: 1, LaplaceRV: 0, MvNormalRV: 0}
"""Position of the parameter at which a density is greatest."""


@dataclass(frozen=True)
class Envelope:
    """A proposal and the log of the probability to accept it."""

    # Random variables to draw in the place of free ones.
    proposals: Mapping[TensorVariable, TensorVariable]
    log_ratio: TensorVariable  # at most zero, in terms of the model's random variables


def envelope(model: pm.Model) -> Envelope:
    """Bound the likelihood of a model."""
    if model.potentials:
        raise NotConjugate(f"the potential {describe(model.potentials[0])} has no known bound")
    powers: dict[TensorVariable, NDArray[np.floating]] = {}
    ratios = []
    densities = log_densities(model)
    free = set(model.free_RVs)
    for y in model.observed_RVs:
        log_density = densities[y]
        if y.dtype not in discrete_dtypes:
            if stated_in(y.owner.inputs, model.basic_RVs).isdisjoint(free):
                continue
            mode = _mode(model, y)
            log_density -= pm.logp(y, mode, warn_rvs=False)
            role = CHILDREN.get(prior_kind(model, y))
            if role is not None:
                _raise_scales(model, y, role.scale, -pt.ones_like(mode), powers)
        ratios.append(log_density.sum())
    proposals = {v: _tilted(model, v, powers) for v in reversed(model.free_RVs) if v in powers}
    return Envelope(proposals, reduce(add, ratios, pt.zeros(())))


def log_densities(model: pm.Model) -> dict[TensorVariable, TensorVariable]:
    """Log densities of all variables, of the observed ones at their data, given the others."""
    for rv in model.free_RVs:
        if has_foreign_density(rv):
            raise ValueError(
                f"{describe(rv)} is {distribution(rv)}, from which PyMC need not draw; "
                "rejection_sample needs the priors of PyMC."
            )
    for y in model.observed_RVs:
        if not is_onto(model, y, LINE):
            raise ValueError(
                f"{describe(y)} is observed with a transform; transform its data instead."
            )
        if has_prior(model, y, PartialObservedRV) and y.owner.op.ndim_supp > 0:
            raise ValueError(
                f"{describe(y)} observes parts of vectors, but rejection_sample needs whole ones; "
                "observe these, or use pm.sample."
            )
    values = {rv: rv.type() for rv in model.free_RVs}
    values_and_data = {**values, **observed_values(model)}
    terms = conditional_logp(values_and_data, warn_rvs=False)
    given = {value: rv for rv, value in values.items()}
    return {rv: substitute([terms[value]], given)[0] for rv, value in values_and_data.items()}


def _mode(model: pm.Model, y: TensorVariable) -> TensorVariable:
    """Mode of ``y``, if the density at the mode depends on the scale alone."""
    op = prior_kind(model, y)
    if op not in LOCATION:
        raise NotConjugate(f"the density of {describe(y)}, {distribution(y)}, has no known bound")
    given = parameters(y)
    role = CHILDREN.get(op)
    free = set(model.free_RVs)
    for position, parameter in enumerate(given):
        is_scale = role is not None and position == role.scale
        unknown = stated_in([parameter], model.basic_RVs) & free
        if unknown and not is_scale and position != LOCATION[op]:
            raise NotConjugate(
                f"the density of {describe(y)} has no known bound: a parameter other than its "
                f"location and scale depends on {describe(min(unknown, key=describe))}"
            )
    location = given[LOCATION[op]].astype(y.dtype)
    return pt.broadcast_to(location, model.rvs_to_values[y].shape)


def _raise_scales(
    model: pm.Model,
    child: TensorVariable,
    position: int,
    exponent: TensorVariable | NDArray[np.floating],
    powers: dict[TensorVariable, NDArray[np.floating]],
) -> None:
    """Note the factor ``s**exponent`` of a child's scale with the variables s depends on."""
    scale = parameters(child)[position]
    for v in stated_in([scale], model.basic_RVs) & set(model.free_RVs):
        with declined_as(describe(v)):
            scaled = scaled_child(model, child, v)
        powers_of_entries = pt.as_tensor(scaled.form.exponent * exponent)
        power = _evaluate(model, summed(powers_of_entries, scaled.form, v, scaled.value))
        powers[v] = powers[v] + power if v in powers else power


def _tilted(
    model: pm.Model, v: TensorVariable, powers: dict[TensorVariable, NDArray[np.floating]]
) -> TensorVariable:
    """A variable with the prior of ``v`` times a power of it."""
    op, given, power = prior_kind(model, v, POSITIVE), parameters(v), powers[v]
    rng, size = v.owner.inputs[0], v.owner.op.size_param(v.owner)
    if op not in (GammaRV, ExponentialRV, InvGammaRV):
        raise NotConjugate(
            f"the likelihood has no known bound under the prior of {describe(v)}, "
            f"{distribution(v)}; a scale needs a Gamma, Exponential or InverseGamma prior"
        )
    shape = pt.ones((), dtype=v.dtype) if op is ExponentialRV else given[0]
    unknown = stated_in([shape], model.basic_RVs) & set(model.free_RVs)
    if unknown:
        raise NotConjugate(f"the shape of {describe(v)} depends on {describe(unknown.pop())}")
    _raise_scales(model, v, len(given) - 1, power, powers)
    raised = shape - power if op is InvGammaRV else shape + power
    if np.any(_evaluate(model, raised) <= 0):
        raise NotConjugate(f"the likelihood is unbounded under the prior of {describe(v)}")
    draw = invgamma if op is InvGammaRV else gamma
    _, value = draw(
        raised, scale=given[-1], rng=rng, size=size, dtype=v.dtype, return_next_rng=True
    )
    return value


def _evaluate(model: pm.Model, expression: TensorVariable) -> NDArray[np.floating]:
    """Value of an expression of constants and data."""
    known = substitute([expression], observed_values(model))
    return np.asarray(pytensor.function([], known, mode="FAST_COMPILE")()[0])

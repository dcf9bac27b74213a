"""Networks of one noisy hidden layer and one output: a sum of independent hidden units.

Given the weights, the mean of the target is ``offset + sum_j coefficient_j x_j`` with independent
``x_j``, each a mixture: with a weight, ``location + scale e`` of a standard normal e between two
bounds. Such are activations behind piecewise-linear functions of normal pre-activations (a
component for each piece), behind binary gates (open and closed) and mixtures of normals.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.gates import match_gates
from pymc_nnsteps.conditionals.piecewise import read_activation
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.search import children, depends_on, parameters
from pymc_nnsteps.prediction.forward import length_of
from pymc_nnsteps.prediction.places import Place, Rows
from pymc_nnsteps.prediction.rows import follow_rows

__all__ = ["Units", "read_units"]


@dataclass(frozen=True)
class Units:
    """The hidden units, as graphs in terms of inputs and weights.

    Attributes
    ----------
    activations : TensorVariable, shape (n_obs, units)
        An input, to be zero.
    offset, sd : TensorVariable, shape (n_obs, ...)
        Mean of the target where all activations are zero, and its own standard deviation.
    activation_sd : TensorVariable, shape (n_obs, units)
        Of the activations about their component's value.
    components : tuple of (weight, location, scale, lower, upper)
        Each of a shape that broadcasts to (n_obs, units).
    """

    activations: TensorVariable
    offset: TensorVariable
    sd: TensorVariable
    activation_sd: TensorVariable
    components: tuple[tuple[TensorVariable, ...], ...]


Known = Mapping[Variable, tuple[Variable, Place]]


def read_units(
    model: pm.Model,
    child: TensorVariable,
    stated: Sequence[TensorVariable],
    latents: Sequence[TensorVariable],
    linear: Sequence[TensorVariable],
    known: Known,
) -> Units | None:
    """Read a network as a sum of units; None if it is not established that it is one.

    Parameters
    ----------
    model : pm.Model
    child : TensorVariable
        The target, or its utility.
    stated : sequence of TensorVariable
        Mean and standard deviation of the child.
    latents, linear : sequence of TensorVariable
        Latent variables, and those that the mean is affine in.
    known : mapping
        What stands for inputs and weights.

    Raises
    ------
    MixesRows
    """
    if len(linear) != 1 or linear[0].ndim != 2 or len(latents) > 2:
        return None
    [x] = linear
    [behind, *_] = [*(rv for rv in latents if rv is not x), None]
    if behind is not None and (children(model, behind) != (x,) or behind.ndim != 2):
        return None

    def followed(expression: TensorVariable, **others: tuple[Variable, Variable]) -> TensorVariable:
        more = {old: (new, Rows(0)) for old, new in others.values()}
        return follow_rows(expression, {**known, **more}, lambda _: None)[0]

    found = None
    with suppress(NotConjugate):
        found = _components(model, x, behind, followed)
    if found is None:
        return None
    components, activation_sd = found
    activations = x.type.clone(dtype="float64", shape=(None, length_of(model, x, 1)))(
        f"{x.name} of zero"
    )
    offset, sd = (followed(each, x=(x, activations.astype(x.dtype))) for each in stated)
    return Units(activations, offset, sd, activation_sd, components)


def _components(
    model: pm.Model,
    x: TensorVariable,
    behind: TensorVariable | None,
    followed: Callable[..., TensorVariable],
) -> tuple[tuple[tuple[TensorVariable, ...], ...], TensorVariable] | None:
    """Components of the activations, and their noise beside these."""
    zero, one, infinity = (pt.constant(value, dtype="float64") for value in (0.0, 1.0, np.inf))
    if behind is None:
        component = x.owner.inputs[2] if has_law(model, x, MixtureRV) else None
        if component is None or len(x.owner.inputs) != 3:
            return None
        weights, mean, sigma = map(followed, (x.owner.inputs[1], *parameters(component)))
        weights, mean, sigma = pt.broadcast_arrays(weights, mean, sigma)
        n = x.owner.inputs[1].type.shape[-1]
        if n is None:
            return None
        return tuple(
            (weights[..., k], mean[..., k], sigma[..., k], -infinity, infinity) for k in range(n)
        ), zero
    if not has_law(model, x, NormalRV):
        return None
    mean, sigma = parameters(x)
    if depends_on(sigma, {behind}, model.basic_RVs):
        return None
    if has_law(model, behind, BernoulliRV):
        match_gates(model, behind)
        p = followed(parameters(behind)[0])
        gates = pt.ones_like(p).astype(behind.dtype)
        opened, closed = (followed(mean, gate=(behind, gates * level)) for level in (1, 0))
        return (
            (p, opened, zero, -infinity, infinity),
            (one - p, closed, zero, -infinity, infinity),
        ), followed(sigma)
    if not has_law(model, behind, NormalRV):
        return None
    form = read_activation(model, behind, x)
    if form.offset is not None:
        return None
    m, s = map(followed, parameters(behind))
    knots = [(pt.constant(knot) - m) / s for knot in form.function.knots]
    bounds = [-infinity, *knots, infinity]
    return tuple(
        (one, slope * m + intercept, slope * s, bounds[k], bounds[k + 1])
        for k, (slope, intercept) in enumerate(form.function.lines)
    ), followed(sigma)

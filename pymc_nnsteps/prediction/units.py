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
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.lengths import length_of
from pymc_nnsteps.graphs.places import Place, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import children, depends_on
from pymc_nnsteps.laws.gates import match_gates
from pymc_nnsteps.network.activations import read_activation
from pymc_nnsteps.network.layers import Gates, Layer, Mixture, Normal

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
    latents: Mapping[TensorVariable, Layer],
    linear: Sequence[TensorVariable],
    known: Known,
) -> Units | None:
    """Read a network as a sum of units; None if it is not established that it is one.

    Parameters
    ----------
    child : TensorVariable
        The target, or its utility.
    stated : sequence of TensorVariable
        Mean and standard deviation of the child.
    latents : mapping of TensorVariable to Layer
        Latent variables.
    linear : sequence of TensorVariable
        Those that the mean is affine in.
    known : mapping
        What stands for inputs and weights.
    """
    if len(linear) != 1 or linear[0].ndim != 2 or len(latents) > 2:
        return None
    [x] = linear
    [behind, *_] = [*(rv for rv in latents if rv is not x), None]
    if behind is not None and (children(model, behind) != (x,) or behind.ndim != 2):
        return None

    def followed(expression: TensorVariable, **others: tuple[Variable, Variable]) -> TensorVariable:
        more = {old: (new, Rows(0)) for old, new in others.values()}
        return follow_rows(expression, {**known, **more})[0]

    found = None
    with suppress(NotConjugate):
        found = _components(model, latents, x, behind, followed)
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
    latents: Mapping[TensorVariable, Layer],
    x: TensorVariable,
    behind: TensorVariable | None,
    followed: Callable[..., TensorVariable],
) -> tuple[tuple[tuple[TensorVariable, ...], ...], TensorVariable] | None:
    """Components of the activations, and their noise beside these."""
    zero, one, infinity = (pt.constant(value, dtype="float64") for value in (0.0, 1.0, np.inf))
    layer = latents[x]
    if isinstance(layer, Mixture):
        n = layer.weights.type.shape[-1]
        if behind is not None or n is None:
            return None
        stated = map(followed, (layer.weights, layer.means, layer.sds))
        weights, mean, sd = pt.broadcast_arrays(*stated)
        return tuple(
            (weights[..., k], mean[..., k], sd[..., k], -infinity, infinity) for k in range(n)
        ), zero
    assert isinstance(layer, Normal)
    if behind is None or depends_on(layer.sd, {behind}, model.basic_RVs):
        return None
    below = latents[behind]
    if isinstance(below, Gates):
        match_gates(model, behind)
        p = followed(below.mean)
        gates = pt.ones_like(p).astype(behind.dtype)
        opened, closed = (followed(layer.mean, gate=(behind, gates * level)) for level in (1, 0))
        return (
            (p, opened, zero, -infinity, infinity),
            (one - p, closed, zero, -infinity, infinity),
        ), followed(layer.sd)
    if not isinstance(below, Normal):
        return None
    form = read_activation(model, behind, x)
    if form.offset is not None:
        return None
    m, s = followed(below.mean), followed(below.sd)
    knots = [(pt.constant(knot) - m) / s for knot in form.function.knots]
    bounds = [-infinity, *knots, infinity]
    return tuple(
        (one, slope * m + intercept, slope * s, bounds[k], bounds[k + 1])
        for k, (slope, intercept) in enumerate(form.function.lines)
    ), followed(layer.sd)

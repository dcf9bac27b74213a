"""Forward pass of a network for each row of its inputs, as a function of its layers' noise.

Where :mod:`.forward` puts the means of latent layers, here are the layers themselves: normal ones
as mean and standard normal noise, gates and mixtures as comparisons of a uniform level. What is
observed is read as one of three laws of the row, given the noise: a :class:`Normal`, a decision
(:class:`Threshold`, :class:`Largest`), whose utilities are integrated out, or :class:`Other`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import DTypeLike
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals import probit
from pymc_nnsteps.conditionals.gaussian import decides
from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law, prior_kind
from pymc_nnsteps.graphs.names import describe, distribution, law_as_stated
from pymc_nnsteps.graphs.search import children, depends_on, parameters
from pymc_nnsteps.prediction.forward import (
    NO_LENGTHS,
    Lengths,
    latents_of,
    length_of,
    observed_of,
    of_each_row,
    stand_ins_of,
    targets_of,
)
from pymc_nnsteps.prediction.gaps import with_gaps
from pymc_nnsteps.prediction.places import MixesRows, Place, Rows
from pymc_nnsteps.prediction.readout import read_readout
from pymc_nnsteps.prediction.row_data import Known, RowData, with_row_data
from pymc_nnsteps.prediction.rows import follow_rows
from pymc_nnsteps.prediction.units import Units, read_units

__all__ = ["Largest", "Law", "NoisyPass", "Normal", "Other", "Threshold", "noisy_pass"]


@dataclass(frozen=True)
class Normal:
    """``y ~ N(mean, sd^2)``, of parameters mean and sd."""


@dataclass(frozen=True)
class Threshold:
    """``y = 1[z > level]`` (or ``<``) with ``z ~ N(mean, sd^2)``, of parameters mean and sd."""

    level: float
    increasing: bool


@dataclass(frozen=True)
class Largest:
    """``y = argmax z`` along the last axis, ``z ~ N(mean, sd^2)``, of parameters mean and sd."""


@dataclass(frozen=True)
class Other:
    """A distribution of PyMC, with its own parameters."""

    op: RandomVariable
    kind: type


Law = Normal | Threshold | Largest | Other


@dataclass(frozen=True)
class NoisyPass:
    """The law of the targets of each row, given the noise.

    Attributes
    ----------
    y : TensorVariable
        The observed variable.
    value : TensorVariable, shape (n_obs,) or (n_obs, n_outputs)
        What is observed of it; NaN where it is missing.
    law : Law
    parameters : tuple of TensorVariable
        Those of the law, rows along their first axis if they have as many axes as the law.
    rows : dict of Variable to TensorVariable
        What stands for the container of the inputs, and for data that go with its rows.
    weights : dict of TensorVariable to TensorVariable
        What stands for each stored variable of the model.
    normal, uniform : tuple of TensorVariable, shape (n_obs, ...)
        Noise: standard normal, and uniform between 0 and 1.
    linear : tuple of TensorVariable
        Normal noise that the law's mean is affine in and its standard deviation does not depend on.
    units : Units or None
        The mean as a sum of independent hidden units, where there is one noisy layer.
    """

    y: TensorVariable
    value: TensorVariable
    law: Law
    parameters: tuple[TensorVariable, ...]
    rows: RowData
    weights: dict[TensorVariable, TensorVariable]
    normal: tuple[TensorVariable, ...]
    uniform: tuple[TensorVariable, ...]
    linear: tuple[TensorVariable, ...]
    units: Units | None


def noisy_pass(
    model: pm.Model,
    container: TensorSharedVariable,
    dtype: DTypeLike | None = None,
    lengths: Lengths = NO_LENGTHS,
) -> NoisyPass:
    """Read the law of the targets given inputs, weights and noise.

    Parameters
    ----------
    model : pm.Model
    container : TensorSharedVariable
        The data container of the inputs.
    dtype : dtype_like, optional
        Type of the inputs; the container's if not given.
    lengths : mapping
        As for :func:`.forward_pass`.

    Raises
    ------
    ValueError
        If there is a latent variable that is neither Normal, Bernoulli nor a mixture of normals,
        or if it is not established that each row depends on its own row of the inputs alone.
    """
    model = with_gaps(model)
    y = observed_of(model, container)
    law, stated, integrated, value = _law(model, y, container)
    latents = [rv for rv in model.free_RVs if rv in latents_of(model, container) - integrated]
    for potential in model.potentials:
        if depends_on(potential, {container}):
            raise ValueError(
                f"{describe(potential)} is a potential that depends on the inputs, so that the "
                "law of latent variables is not that of the network; state it as a distribution."
            )
    stand_ins = stand_ins_of(model, container, y, stated, lengths)
    noise = {rv: _noise(model, rv) for rv in latents}
    others: Known = {weight: (stand_in, None) for weight, stand_in in stand_ins.items()}
    others |= {each: (each, Rows(0)) for kinds in noise.values() for each in kinds.values()}
    layers: dict[Variable, TensorVariable] = {}

    def layer(variable: Any) -> Variable | None:
        if variable not in noise:
            return None
        if variable not in layers:
            layers[variable] = _layer(model, variable, container, **noise[variable])
        return layers[variable]

    [child] = integrated or {y}
    linear = [] if isinstance(law, Other) else _linear(model, child, stated, latents)

    def read(rows: Known) -> tuple[list[TensorVariable], Units | None]:
        known = others | rows
        followed = [follow_rows(parameter, known, layer) for parameter in stated]
        supports = law.op.ndims_params if isinstance(law, Other) else (0, 0)
        for (new, place), support in zip(followed, supports, strict=True):
            _require_aligned(new, place, child.ndim + support)
        units = read_units(model, child, stated, latents, linear, known) if linear else None
        return [new for new, _ in followed], units

    try:
        (computed, units), rows = with_row_data(read, model, container, targets_of(model, y), dtype)
    except MixesRows as reason:
        raise ValueError(
            f"the law of {describe(y)} is not known row by row of {describe(container)}: {reason}."
        ) from None
    entered = set(graph_inputs(computed))
    return NoisyPass(
        y,
        value,
        law,
        tuple(computed),
        rows,
        {weight: stand_in for weight, stand_in in stand_ins.items() if stand_in in entered},
        tuple(kinds["normal"] for kinds in noise.values() if "normal" in kinds),
        tuple(kinds["uniform"] for kinds in noise.values() if "uniform" in kinds),
        tuple(noise[rv]["normal"] for rv in linear),
        units,
    )


Reading = tuple[Law, tuple[TensorVariable, ...], set[TensorVariable], TensorVariable]


def _law(model: pm.Model, y: TensorVariable, container: TensorSharedVariable) -> Reading:
    """The law of what is observed, its parameters, the latents integrated out, and the values."""
    value: TensorVariable = model.rvs_to_values[y]
    if has_law(model, y, NormalRV):
        mean, sigma = parameters(y)
        return Normal(), (of_each_row(model, y, mean, container), sigma), set(), value
    latents = latents_of(model, container)
    for z in model.free_RVs:
        if z in latents and decides(y) and children(model, z) == (y,):
            with suppress(NotConjugate):
                return _decision(model, z, container, value)
    readout = read_readout(model, y, container)
    if readout is not None:
        return Normal(), readout, set(), value.T
    if not isinstance(y.owner.op, RandomVariable) or y.owner.op.ndim_supp > 0:
        raise ValueError(
            f"{describe(y)} is {distribution(y)}, which is not known to have independent rows; "
            "observe a distribution of numbers, such as pm.Normal."
        )
    return Other(y.owner.op, prior_kind(model, y)), parameters(y), set(), value


def _decision(
    model: pm.Model, z: TensorVariable, container: TensorSharedVariable, value: TensorVariable
) -> Reading:
    read = probit.match_probit(model, z)
    mean, sigma = parameters(z)
    stated = of_each_row(model, z, mean, container), sigma
    if isinstance(read, probit.Threshold):
        return Threshold(read.threshold, read.increasing), stated, {z}, value
    return Largest(), stated, {z}, value


def _noise(model: pm.Model, rv: TensorVariable) -> dict[str, TensorVariable]:
    """The noise that a latent variable is a function of, with rows along its first axis."""
    lengths = [length_of(model, rv, axis) for axis in range(1, rv.ndim)]
    kinds = {NormalRV: ("normal",), BernoulliRV: ("uniform",), MixtureRV: ("normal", "uniform")}
    for kind, names in kinds.items():
        if has_law(model, rv, kind) and rv.ndim > 0:
            return {
                name: pt.tensor(f"{name} of {rv.name}", dtype="float64", shape=(None, *lengths))
                for name in names
            }
    raise ValueError(
        f"{describe(rv)} depends on the inputs and is {law_as_stated(model, rv)}; known "
        "are layers that are Normal, Bernoulli or mixtures of normals."
    )


def _layer(
    model: pm.Model,
    rv: TensorVariable,
    container: TensorSharedVariable,
    normal: TensorVariable | None = None,
    uniform: TensorVariable | None = None,
) -> TensorVariable:
    """A latent variable as a function of its noise."""
    if normal is None:
        return pt.lt(uniform, of_each_row(model, rv, parameters(rv)[0], container)).astype(rv.dtype)
    if uniform is None:
        mean, sigma = parameters(rv)
        return (of_each_row(model, rv, mean, container) + sigma * normal).astype(rv.dtype)
    component = rv.owner.inputs[2]
    if len(rv.owner.inputs) != 3 or not has_law(model, component, NormalRV):
        raise ValueError(f"{describe(rv)} is a mixture of others than normals of one kind.")
    weights = rv.owner.inputs[1]
    above = pt.gt(uniform[..., None], weights.cumsum(-1)[..., :-1])
    number = above.sum(-1, keepdims=True)
    chosen = pt.eq(number, pt.arange(weights.type.shape[-1] or weights.shape[-1]))
    mean, sigma = ((chosen * each).sum(-1) for each in parameters(component))
    return (of_each_row(model, rv, mean, container) + sigma * normal).astype(rv.dtype)


def _require_aligned(parameter: TensorVariable, place: Place, n_axes: int) -> None:
    """Check that a parameter has rows along the law's first axis, or nothing there."""
    if place is None:
        if parameter.ndim == n_axes and n_axes and not parameter.type.broadcastable[0]:
            lacking = parameter, 0
            raise MixesRows(f"{describe(parameter)} has entries along its own rows", lacking)
    elif place != Rows(0) or parameter.ndim != n_axes:
        raise MixesRows(f"{describe(parameter)} has rows along another axis than the first")


def _linear(
    model: pm.Model,
    child: TensorVariable,
    stated: Sequence[TensorVariable],
    latents: Sequence[TensorVariable],
) -> list[TensorVariable]:
    """Latents, normal given gates, that enter the law of ``child`` by an affine mean alone."""
    mean, sigma = stated
    found: list[TensorVariable] = []
    for rv in latents:
        alone = children(model, rv) == (child,) and not depends_on(sigma, {rv}, model.basic_RVs)
        if alone and has_law(model, rv, NormalRV, MixtureRV):
            with suppress(NotConjugate):
                affine(mean, {*found, rv}, model.basic_RVs)
                found.append(rv)
    return found

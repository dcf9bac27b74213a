"""Forward pass of a network for each row of its inputs, as a function of its layers' noise.

Where :mod:`.forward` puts the means of latent layers, here are the layers themselves: normal ones
as mean and standard normal noise, gates and mixtures as comparisons of a uniform level. What is
observed is read as one of three laws of the row, given the noise: normal, a decision
(:mod:`~pymc_nnsteps.network.activations`) by utilities of parameters mean and sd, which are
integrated out, or :class:`Other`. That rows are independent is established from what is computed:
the parameters of the first two, the log density of all others.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import DTypeLike, NDArray
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law, prior_kind
from pymc_nnsteps.graphs.lengths import length_of
from pymc_nnsteps.graphs.names import describe, distribution
from pymc_nnsteps.graphs.places import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows, require_aligned
from pymc_nnsteps.graphs.search import children, depends_on, random_in
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.laws.probit import match_probit
from pymc_nnsteps.network.activations import Largest, Threshold, decides, read_decision
from pymc_nnsteps.network.layers import Gates, Layer, Normal
from pymc_nnsteps.network.network import Network, network_of
from pymc_nnsteps.prediction.forward import (
    NO_LENGTHS,
    Lengths,
    stand_ins_of,
    targets_of,
    without_rows,
)
from pymc_nnsteps.prediction.gaps import some_rows, with_gaps
from pymc_nnsteps.prediction.readout import read_readout
from pymc_nnsteps.prediction.row_data import Known, RowData, with_row_data
from pymc_nnsteps.prediction.units import Units, read_units

__all__ = ["Law", "NoisyPass", "Other", "noisy_pass"]


@dataclass(frozen=True)
class Other:
    """Any other distribution, by the log density that PyMC computes at a value."""

    value: TensorVariable
    kind: type


ELSEWHERE = (
    "draw responses by pm.sample_posterior_predictive, and have the likelihood by "
    "pm.compute_log_likelihood if the network has no latent layers"
)
"""What is left where the law of rows is not known."""

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
    parameters : tuple of TensorVariable
        Mean and standard deviation, rows along their first axis if they have as many axes as the
        law; of any other law its log density alone.
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
    numbers : ndarray of int, or None
        Of the rows that are observed, if these are not all.
    known, made : dict
        What stands for variables of the model, and what is passed on in place of others: latent
        layers as functions of the layers before and of noise, and all rows for some.
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
    numbers: NDArray[np.intp] | None
    known: Known
    made: dict[Any, TensorVariable]

    @property
    def columns(self) -> tuple[int, ...]:
        """Shape of what is observed of a row."""
        return tuple(int(length) for length in self.value.shape.eval(mode="FAST_COMPILE")[1:])

    def at_rows(self, expression: TensorVariable) -> TensorVariable:
        """An expression, of random variables too, at rows that are known to stay apart."""
        found: TensorVariable
        found, _ = follow_rows(expression, self.known, self.made.get, lambda *_: Rows(0))
        return found


def noisy_pass(
    model: pm.Model,
    container: TensorSharedVariable,
    dtype: DTypeLike | None = None,
    lengths: Lengths = NO_LENGTHS,
    *,
    named: str | None = None,
) -> NoisyPass:
    """Read the law of the targets given inputs, weights and noise.

    Parameters
    ----------
    container : TensorSharedVariable
        The data container of the inputs.
    dtype : dtype_like, optional
        Type of the inputs; the container's if not given.
    lengths : mapping
        As for :func:`.forward_pass`.
    named : str, optional
        Name of the observed variable, of several.
    """
    model = with_gaps(model)
    network = network_of(model, container, named=named)
    y = network.response
    law, stated, utilities, value = _law(network)
    numbers, whole = some_rows(model, y)
    _require_no_potential(model, container)
    stand_ins = stand_ins_of(network, stated, lengths)
    latents = [rv for rv in network.latents if rv is not utilities and depends_on(y, {rv})]
    read_as = {rv: network.layer(rv) for rv in latents}
    noise = {rv: _noise(model, rv, layer.noise) for rv, layer in read_as.items()}
    others = without_rows(model, stand_ins, stated)
    others |= {each: (each, Rows(0)) for kinds in noise.values() for each in kinds.values()}
    others |= {law.value: (law.value, Rows(0))} if isinstance(law, Other) else {}
    made: dict[Any, TensorVariable] = whole | {
        rv: layer.given(**noise[rv]).astype(rv.dtype) for rv, layer in read_as.items()
    }
    child = y if utilities is None else utilities
    linear = [] if isinstance(law, Other) else _linear(model, child, stated, read_as)

    def read(rows: Known) -> tuple[list[TensorVariable], Units | None]:
        known = others | rows
        followed = [follow_rows(parameter, known, made.get) for parameter in stated]
        for new, place in followed:
            require_aligned(new, place, new.ndim if isinstance(law, Other) else child.ndim)
        for table, place in (follow_rows(table, known, made.get) for table in whole.values()):
            require_aligned(table, place, table.ndim)
        units = read_units(model, child, stated, read_as, linear, known) if linear else None
        return [new for new, _ in followed], units

    try:
        (computed, units), rows = with_row_data(read, model, container, targets_of(model, y), dtype)
    except MixesRows as reason:
        raise ValueError(
            f"the law of {describe(y)} is not known row by row of {describe(container)}: {reason}; "
            f"{ELSEWHERE}."
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
        numbers,
        others | {each: (new, Rows(0)) for each, new in rows.items()},
        made,
    )


Reading = tuple[Law, tuple[TensorVariable, ...], TensorVariable | None, TensorVariable]


def _law(network: Network) -> Reading:
    """The law of what is observed, its parameters, utilities integrated out, and the values."""
    model, y = network.model, network.response
    value: TensorVariable = model.rvs_to_values[y]
    if has_law(model, y, NormalRV):
        return *_normal(network, y), None, value
    for z in network.latents:
        decision = _decision(model, z, y)
        if decision is not None:
            return decision, _normal(network, z)[1], z, value
    readout = read_readout(model, y, network.inputs)
    if readout is not None:
        return Normal(*readout), readout, None, value.T
    with suppress(NotImplementedError):
        placeholder = y.type.clone(shape=(None, *y.type.shape[1:])[: y.ndim])("y")
        law = Other(placeholder, prior_kind(model, y))
        return law, (_log_density(model, y, placeholder),), None, value
    raise ValueError(
        f"{describe(y)} is {distribution(y)}, whose density of a row PyMC does not tell; "
        f"{ELSEWHERE}."
    )


def _log_density(model: pm.Model, y: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Log density of a variable as PyMC computes it.

    PyMC copies and rewrites what random variables are made of, which is put in afterwards.
    """
    n_batch = y.ndim - getattr(y.owner.op, "ndim_supp", 0)
    law = change_dist_size(y, tuple(value.shape)[:n_batch])
    others: dict[Any, Any] = {}
    pending = [law]
    while pending:
        for part in pending.pop().owner.inputs:
            if random_in([part], model.basic_RVs):
                pending.append(part)
            elif isinstance(part, TensorVariable) and (part.ndim > 0 or part.owner is not None):
                others[part.type()] = part
    [law] = substitute([law], {part: other for other, part in others.items()})
    found: list[TensorVariable] = substitute([pm.logp(law, value)], others)
    return found[0]


def _require_no_potential(model: pm.Model, container: TensorSharedVariable) -> None:
    """Check that no potential changes the law of latent variables."""
    for potential in model.potentials:
        if depends_on(potential, {container}):
            raise ValueError(
                f"{describe(potential)} is a potential that depends on the inputs, so that the "
                "law of latent variables is not that of the network; state it as a distribution."
            )


def _normal(network: Network, rv: TensorVariable) -> tuple[Normal, tuple[TensorVariable, ...]]:
    """A normal variable, and its mean and standard deviation."""
    layer = network.layer(rv)
    assert isinstance(layer, Normal)
    return layer, (layer.mean, layer.sd)


def _decision(model: pm.Model, z: TensorVariable, y: TensorVariable) -> Law | None:
    """The law of ``y`` as a decision by utilities, if it is one."""
    if decides(y) and children(model, z) == (y,):
        with suppress(NotConjugate):
            match_probit(model, z)
            return read_decision(model, z, y)
    return None


def _noise(model: pm.Model, rv: TensorVariable, names: Sequence[str]) -> dict[str, TensorVariable]:
    """The noise that a latent variable is a function of, with rows along its first axis."""
    lengths = [length_of(model, rv, axis) for axis in range(1, rv.ndim)]
    return {
        name: pt.tensor(f"{name} of {rv.name}", dtype="float64", shape=(None, *lengths))
        for name in names
    }


def _linear(
    model: pm.Model,
    child: TensorVariable,
    stated: Sequence[TensorVariable],
    latents: Mapping[TensorVariable, Layer],
) -> list[TensorVariable]:
    """Latents, normal given gates, that enter the law of ``child`` by an affine mean alone."""
    mean, sigma = stated
    found: list[TensorVariable] = []
    for rv, layer in latents.items():
        alone = children(model, rv) == (child,) and not depends_on(sigma, {rv}, model.basic_RVs)
        if alone and not isinstance(layer, Gates):
            with suppress(NotConjugate):
                affine(mean, {*found, rv}, model.basic_RVs)
                found.append(rv)
    return found

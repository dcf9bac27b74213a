"""Latent variables of rows, and targets with missing entries, read as one observed variable.

PyMC makes two variables of one with missing entries: the observed entries and the others. A
``pm.Deterministic`` joins them. The law of a row is that of all its entries. So the two
are put together again here, and observed as NaN where entries are missing.

A variable that is observed of some rows, as of ``f[:40]``, has the law of ``f`` in these
(:func:`some_rows`).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.builders import infer_shape
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.row_axes import Rows
from pymc_nnsteps.graphs.search import children, parameters, partly_observed, random_in, size_of
from pymc_nnsteps.prediction.row_data import arrays_in, behind, own_rows

Mask = np.ndarray


def with_gaps(model: pm.Model) -> pm.Model:
    """The model with one observed variable for each that has missing entries, for reading only.

    It is ``model`` itself if nothing is missing or the missing entries enter something else.
    """
    for observed, missing, joined in apart(model):
        mask = _mask(joined)
        whole = None if mask is None else _whole(observed, mask)
        if mask is not None and whole is not None and not children(model, missing):
            whole.name = joined.name
            value = np.full(mask.shape, np.nan)
            value[mask] = model.rvs_to_values[observed].eval(mode="FAST_COMPILE")
            other = without(model, {observed, missing, joined})
            other.observed_RVs.insert(model.observed_RVs.index(observed), whole)
            other.rvs_to_values = {**model.rvs_to_values, whole: pt.constant(value)}
            other.named_vars = {**other.named_vars, joined.name: whole}
            return with_gaps(other)
    return model


def apart(model: pm.Model) -> Iterator[tuple[Any, Any, Any]]:
    """Observed entries of each variable with missing ones, these, and what joins the two."""
    for observed in model.observed_RVs:
        name = observed.name.removesuffix("_observed")
        missing, joined = (model.named_vars.get(each) for each in (f"{name}_unobserved", name))
        if missing in model.free_RVs and joined in model.deterministics:
            yield observed, missing, joined


def values_of_observed(model: pm.Model) -> dict[Any, Any]:
    """Values of observed variables, for what is read given these.

    Missing entries are parameters, of the model's own rows: these are picked by a constant with the
    variable's name.
    """
    made: dict[Any, Any] = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    for observed, missing, joined in apart(model):
        if (mask := _mask(joined)) is not None:
            x = pt.zeros(mask.shape, joined.dtype)[~mask].set(missing)[mask].set(made[observed])
            made[joined] = x[pt.constant(np.arange(len(mask)), joined.name)]
    return made


def _mask(joined: TensorVariable) -> Mask | None:
    """Where entries are observed, of a deterministic that joins those and others."""
    [joining] = joined.owner.inputs
    if joining.owner is None or not isinstance(joining.owner.op, AdvancedIncSubtensor):
        return None
    _, _, *indices = joining.owner.inputs
    if len(indices) != 1 or not isinstance(indices[0], Constant):
        return None
    mask = np.asarray(indices[0].data)
    return mask if mask.dtype == bool and mask.ndim == joined.ndim else None


def _whole(observed: TensorVariable, mask: Mask) -> TensorVariable | None:
    """Variable of all entries, given its observed entries at a mask."""
    op = observed.owner.op
    if (inner := partly_observed(observed)) is not None:
        whole: TensorVariable = inner.owner.clone().outputs[inner.index]
        return whole if inner.owner.op.ndim_supp == 0 and whole.ndim == mask.ndim else None
    if not isinstance(op, RandomVariable) or op.ndim_supp > 0:
        return None
    found = [
        _of_all_entries(parameter, mask, n_axes)
        for parameter, n_axes in zip(parameters(observed), op.ndims_params, strict=True)
    ]
    stated = [parameter for parameter in found if parameter is not None]
    if len(stated) < len(found):
        return None
    _, whole = op(*stated, rng=pt.random.shared_rng(seed=None), return_next_rng=True)
    return whole if whole.ndim == mask.ndim else None


def _of_all_entries(parameter: TensorVariable, mask: Mask, n_axes: int) -> TensorVariable | None:
    """A parameter of all entries, given that of the entries of a mask.

    Each entry has ``n_axes`` axes, which come last.
    """
    if parameter.owner is None or not isinstance(parameter.owner.op, AdvancedSubtensor):
        is_one = parameter.ndim == 1 + n_axes and parameter.type.broadcastable[0]
        return parameter[0] if is_one else None
    full, *indices = parameter.owner.inputs
    if full.ndim != mask.ndim + n_axes:
        return None
    repeated = full.type.broadcastable[: mask.ndim]
    stated = [1 if one else n for one, n in zip(repeated, mask.shape, strict=True)]
    positions = np.arange(np.prod(stated)).reshape(stated)
    with suppress(ValueError, TypeError):
        entries = pt.constant(np.expand_dims(positions, tuple(range(mask.ndim, full.ndim))))
        picked = parameter.owner.op.make_node(entries, *indices).outputs[0]
        wanted = np.broadcast_to(positions, mask.shape)[mask]
        if np.array_equal(picked.eval(mode="FAST_COMPILE").ravel(), wanted):
            return full
    return None


def without(model: pm.Model, gone: Collection[Variable]) -> pm.Model:
    """A model, for reading only, that shares all but these variables with another."""
    other: pm.Model = object.__new__(pm.Model)
    vars(other).update(vars(model))
    for name in ("free_RVs", "observed_RVs", "deterministics"):
        setattr(other, name, [rv for rv in getattr(model, name) if rv not in gone])
    other.named_vars = {name: rv for name, rv in model.named_vars.items() if rv not in gone}
    return other


def some_rows(
    model: pm.Model, y: TensorVariable, container: TensorSharedVariable
) -> tuple[NDArray[np.intp] | None, dict[Variable, TensorVariable]]:
    """The numbers of the rows that a variable is observed of, if constants or data pick them.

    They are None if these are all. With them: from what is picked to what it is picked of, which
    has a row for each of the inputs.
    """
    found: NDArray[np.intp] | None = None
    whole: dict[Variable, TensorVariable] = {}
    random, n_obs = model.basic_RVs, len(own_rows(container))
    for part in set(ancestors(y.owner.inputs, random)).difference(random):
        if part.owner is None or not isinstance(part.owner.op, Subtensor | AdvancedSubtensor):
            continue
        table, *given = part.owner.inputs
        indices: Sequence[Any] = indices_from_subtensor(given, part.owner.op.idx_list)
        if not all(isinstance(leaf, Constant | SharedVariable) for leaf in graph_inputs(given)):
            continue
        for axis, index in enumerate(indices):
            picked = _of_all_rows(table, indices, axis)
            leaves = [] if picked is None else graph_inputs([table], random)
            data = behind(table, Rows(axis), set(leaves).difference(random))
            if picked is None or n_obs not in map(len, map(own_rows, data)):
                continue
            numbers = pt.arange(n_obs)[index].eval(mode="FAST_COMPILE")
            is_same = found is None or np.array_equal(numbers, found)
            if not is_same or not len({*numbers}) == len(numbers) < n_obs:
                return None, {}
            found, whole[part] = numbers, picked
    return found, whole


def _of_all_rows(table: Any, indices: Sequence[Any], axis: int) -> TensorVariable | None:
    """What is picked from a table with all rows along an axis, if an index picks some of them."""
    index = indices[axis]
    if index == slice(None) or getattr(index, "ndim", 1) != 1:
        return None
    others = [*indices[:axis], slice(None), *indices[axis + 1 :]]
    where = [i for i, each in enumerate(indices) if not isinstance(each, slice)]
    apart = where and where[-1] - where[0] >= len(where)
    if axis in where and (apart or any(indices[i].ndim for i in where if i != axis)):
        return None
    picked: TensorVariable = table[tuple(others)]
    return picked


def without_latents(model: pm.Model | None = None) -> list[str]:
    """Names of a model's variables, except those with an entry for each row of the data.

    Pre-activations, activations, gates, utilities and other latent variables of rows take up most
    of the memory of a trace and belong to the rows that were sampled. Predictions do not need them,
    neither by :func:`~pymc_nnsteps.predict`, :func:`~pymc_nnsteps.log_likelihood` nor
    ``pm.sample_posterior_predictive``. If they are stored, the last of these does not accept new
    rows.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.

    Returns
    -------
    list of str
        All free variables and deterministics, except those whose first axis runs over the rows of
        the observed data. This is read from the graph: a variable that has the same length by
        chance is kept.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,)) as model:
    ...     kept = nns.without_latents()
    ...     idata = pm.sample(
    ...         20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=kept,
    ...     )
    >>> kept
    ['W1', 'b1', 'noise_Z2', 'noise_X2', 'W2', 'b2', 'noise_y']
    """
    model = model_to_read(model)
    whole = with_gaps(model)
    joined = set(model.deterministics).difference(whole.deterministics)
    latents = {variable.name for variable in (*joined, *_of_rows(whole))}
    return [each.name for each in model.unobserved_RVs if each.name not in latents]


def _of_rows(model: pm.Model) -> list[TensorVariable]:
    """Variables whose first axis takes its length from the data that give observed ones theirs.

    The type of a random variable may state its length as a number, which tells nothing of where it
    comes from: its parameters do.
    """
    observed = [rv for rv in model.observed_RVs if rv.ndim > 0]
    variables = [v for v in (*model.basic_RVs, *model.deterministics) if v.ndim > 0]
    lengths = dict(zip(variables, _lengths(variables), strict=True))
    n_rows = {lengths[rv] for rv in observed}
    variables = [variable for variable in variables if lengths[variable] in n_rows]
    sizes = {size_of(rv) for rv in random_in(variables) if isinstance(rv, TensorVariable)}
    rows = {
        data: {data}
        for data in arrays_in(variables)
        if data not in sizes and len(own_rows(data)) in n_rows
    }
    for variable in variables:
        found = {leaf for part in _with_its_rows(variable) for leaf in behind(part, Rows(0), rows)}
        rows[variable] = {data for leaf in found for data in rows[leaf]}
    of_data = {data for rv in observed for data in rows[rv]}
    return [variable for variable in variables if not of_data.isdisjoint(rows[variable])]


def _lengths(variables: Sequence[TensorVariable]) -> list[int]:
    """Lengths of first axes, at the present values of data."""
    shapes = infer_shape(variables, [], [])
    function = pytensor.function([], [shape[0] for shape in shapes], mode="FAST_COMPILE")
    return list(map(int, function()))


def _with_its_rows(variable: TensorVariable) -> list[TensorVariable]:
    """A variable, and those of its parameters that begin with the same axis."""
    op = variable.owner.op
    supports = getattr(op, "ndims_params", None)
    if supports is None:
        return [variable]
    n_batch = variable.ndim - op.ndim_supp
    given = zip(parameters(variable), supports, strict=True)
    return [variable, *(each for each, n in given if each.ndim and each.ndim - n == n_batch)]

"""Noise-free forward pass of a posterior on new inputs."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import ArrayLike
from pymc.distributions.mixture import MixtureRV
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compiling import c_by_default, without_blas_notice
from pymc_nnsteps.conditionals.gates import match_gates
from pymc_nnsteps.conditionals.structure import (
    NotConjugate,
    dependents,
    depends_on,
    describe,
    distribution,
    model_or_context,
    parameters,
    stated_in,
    substitute,
)
from pymc_nnsteps.tables import Table, numbers

BLOCK_BYTES = 2**26
"""Memory that the hidden layers of one block of draws and inputs may take."""


def predict(
    idata: Any,
    X_new: ArrayLike | pd.DataFrame,
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
) -> xr.DataArray:
    """Pass new inputs through the network without noise, for each posterior draw.

    Variables that depend on the inputs (pre- and post-activations, gates, utilities) are replaced
    by their means given the layer before; the others are taken from the posterior. So are the
    ``pm.Deterministic`` that the training data enter as a whole, inputs and targets, such as the
    readout weights of :func:`~pymc_nnsteps.wide_mlp`: they are what the chain has learnt.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior. Latent layers need not be stored.
    X_new : array_like or DataFrame, shape (n_obs, n_features)
        Columns of a table are found by their names where the model's inputs have names.
    model : pm.Model, optional
        The model that was sampled; that of the context if not given. It has one observed
        variable: Normal, any other beside a ``pm.Deterministic`` called ``"f"``, the network's
        output, or a decision (Bernoulli or Categorical) on latent utilities.
    inputs : str, optional
        Name of the data container that ``X_new`` stands for; ``"inputs"``, or the only table
        that the observed variable's parameters depend on, if not given.

    Returns
    -------
    DataArray, dims (chain, draw, obs, output)
        Means of the observed variable; or ``f`` (of classes: their logits); or the utilities of a
        decision. The sign of a logit or utility, or ``.idxmax("output")``, is the predicted
        class. With ``y`` of one axis ``output`` has length one, unless there are classes.

    Raises
    ------
    ValueError
        If ``X_new`` has other columns than the model's inputs or is not finite, if there is no
        such container, or if the posterior lacks a variable that is needed.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 2))
    >>> model = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1)
    >>> with model:
    ...     idata = pm.sample(
    ...         20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=["W1", "b1", "W2", "b2"],
    ...     )
    >>> nns.predict(idata, X[:5], model=model).sizes
    Frozen({'chain': 1, 'draw': 20, 'obs': 5, 'output': 1})
    """
    model = model_or_context(model)
    container = _container(model, inputs)
    table, X = _read(X_new, model, container)
    output, learnt = forward_mean(model, container)
    posterior = _posterior(idata)
    stored = [*model.free_RVs, *learnt]
    weights = [variable for variable in stored if depends_on(output, {variable}, stored)]
    missing = [describe(rv) for rv in weights if rv.name not in posterior]
    if missing:
        raise ValueError(
            f"idata lacks {', '.join(missing)}; store what the prediction needs, with "
            f"pm.sample(var_names={[rv.name for rv in weights]})."
        )
    draws = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in weights]
    for rv, value in zip(weights, draws, strict=True):
        if not rv.type.is_super(pytensor.tensor.tensor(dtype=rv.dtype, shape=value.shape[2:]).type):
            raise ValueError(
                f"idata has {describe(rv)} of shape {value.shape[2:]}, but the model of shape "
                f"{rv.type.shape}; pass the model that was sampled."
            )
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    flat = [
        np.asarray(value, rv.dtype).reshape((n_chains * n_draws, *value.shape[2:]))
        for rv, value in zip(weights, draws, strict=True)
    ]
    values = _evaluate(output, container, weights, flat, X)
    values = values.reshape((n_chains, n_draws, *values.shape[1:]))
    if values.ndim == 3:
        values = values[..., None]
    coords: dict[Hashable, Any] = {
        "chain": posterior["chain"].values,
        "draw": posterior["draw"].values,
    }
    if table.rows is not None:
        coords["obs"] = table.rows
    labels = model.coords.get("output")
    if labels is not None and len(labels) == values.shape[-1]:
        coords["output"] = list(labels)
    return xr.DataArray(values, dims=("chain", "draw", "obs", "output"), coords=coords, name="f")


def forward_mean(
    model: pm.Model, container: TensorSharedVariable
) -> tuple[TensorVariable, list[TensorVariable]]:
    """Mean of the observed variable with all latent layers at their means.

    Parameters
    ----------
    model : pm.Model
    container : TensorSharedVariable
        The data container of the inputs.

    Returns
    -------
    output : TensorVariable
        In terms of the free variables that do not depend on the inputs, and of ``learnt``.
    learnt : list of TensorVariable
        Stand-ins, of the same names, for the deterministics that the chain has learnt from
        inputs and targets.
    """
    observed = [rv for rv in model.observed_RVs if depends_on(rv, {container})]
    if len(observed) != 1:
        names = ", ".join(map(describe, observed)) or "none"
        raise ValueError(
            f"predict needs one observed variable that depends on {describe(container)}; "
            f"the model has {names}."
        )
    [y] = observed
    output = _output(model, y, container)
    targets = _targets(model, y, output)
    learnt = {
        variable: variable.type(name=variable.name)
        for variable in _learnt(model, targets, container)
    }
    named = output in model.deterministics
    [output] = substitute([output], learnt)
    sees_targets = depends_on(output, targets, model.free_RVs)
    if named and (sees_targets or not _is_row_by_row(output, container)):
        raise ValueError(
            "predict cannot tell what f computes from each row of the inputs from what it has "
            f"learnt of the values of {describe(y)}; make all that it has learnt (such as readout "
            "weights) a pm.Deterministic of its own."
        )
    means = {rv: _latent_mean(model, rv) for rv in model.free_RVs if depends_on(rv, {container})}
    while stated_in([output], means):
        [output] = substitute([output], means)
    return output, list(learnt.values())


def _output(model: pm.Model, y: TensorVariable, container: TensorSharedVariable) -> TensorVariable:
    """The network's output, of which ``y`` is an observation."""
    if isinstance(y.owner.op, NormalRV):
        return _mean(y)
    named = [
        variable
        for variable in model.deterministics
        if variable.name.rpartition("::")[2] == "f" and depends_on(variable, {container})
    ]
    if isinstance(y.owner.op, BernoulliRV | CategoricalRV) and not named:
        return _mean(_utilities(model, y))
    if len(named) != 1:
        raise ValueError(
            f"{describe(y)} depends on the inputs and is {distribution(y)}, whose forward mean "
            'predict does not know; name the network\'s output, with pm.Deterministic("f", ...).'
        )
    return named[0]


def _targets(model: pm.Model, y: TensorVariable, output: TensorVariable) -> set[Variable]:
    """Data in the graph of ``output`` that are those observed of ``y``."""
    values: TensorVariable = model.rvs_to_values[y]
    observed = {leaf for leaf in graph_inputs([values]) if leaf.type.ndim > 0}
    constants = [leaf for leaf in observed if isinstance(leaf, Constant)]
    return {
        leaf
        for leaf in graph_inputs([output])
        if leaf in observed or any(constant.equals(leaf) for constant in constants)
    }


def _learnt(
    model: pm.Model, targets: set[Variable], container: TensorSharedVariable
) -> list[TensorVariable]:
    """Deterministics that inputs and targets enter as a whole, not row by row."""
    return [
        variable
        for variable in model.deterministics
        if depends_on(variable, targets, model.free_RVs)
        and depends_on(variable, {container})
        and _n_axes_of_rows(variable, container) == 0
    ]


def _is_row_by_row(output: TensorVariable, container: TensorSharedVariable) -> bool:
    """Whether each row of ``output`` is computed from one row of the container."""
    steps = dependents(output, {container})
    return all(_n_axes_of_rows(step, container) == 1 for step in steps)


def _n_axes_of_rows(variable: Variable, container: TensorSharedVariable) -> int:
    """Number of axes of ``variable`` whose lengths vary with the container's number of rows."""
    n_rows = Shape_i(0)
    [lengths] = infer_shape([variable], [], [])
    return sum(
        any(
            part.owner is not None and part.owner.op == n_rows and part.owner.inputs[0] is container
            for part in ancestors([length])
        )
        for length in lengths
    )


def _latent_mean(model: pm.Model, rv: TensorVariable) -> TensorVariable:
    """Mean of a latent variable; a gate passes on what it does on average."""
    if isinstance(rv.owner.op, BernoulliRV):
        try:
            match_gates(model, rv)
        except NotConjugate as reason:
            raise ValueError(f"predict cannot average over {describe(rv)}: {reason}.") from None
        return parameters(rv)[0]
    if isinstance(rv.owner.op, MixtureRV) and len(rv.owner.inputs) == 3:
        _, weights, component = rv.owner.inputs
        return (weights * _mean(component)).sum(-1).astype(rv.dtype)
    return _mean(rv)


def _mean(rv: TensorVariable) -> TensorVariable:
    if not isinstance(rv.owner.op, NormalRV):
        raise ValueError(
            f"{describe(rv)} depends on the inputs and is {distribution(rv)}; predict knows the "
            "forward mean of Normal layers only."
        )
    return parameters(rv)[0].astype(rv.dtype)


def _utilities(model: pm.Model, y: TensorVariable) -> TensorVariable:
    """The latent variable that a decision is taken on."""
    parents = [rv for rv in model.free_RVs if depends_on(parameters(y)[0], {rv}, model.free_RVs)]
    if len(parents) != 1:
        raise ValueError(f"{describe(y)} is not a decision on one latent variable.")
    return parents[0]


def _container(model: pm.Model, name: str | None) -> TensorSharedVariable:
    containers = {data.name: data for data in model.data_vars}
    if name is None:
        means = [parameter for rv in model.observed_RVs for parameter in parameters(rv)]
        tables = [
            data.name
            for data in model.data_vars
            if data.ndim == 2 and any(depends_on(mean, {data}) for mean in means)
        ]
        name = "inputs" if "inputs" in containers else tables[0] if len(tables) == 1 else None
    if name not in containers:
        known = ", ".join(containers) or "none"
        raise ValueError(
            f"inputs must name the pm.Data container that X_new stands for; the model has {known}; "
            "put the network's inputs in pm.Data."
        )
    return containers[name]


def _posterior(idata: Any) -> xr.Dataset:
    if isinstance(idata, xr.DataTree):
        idata = idata.children.get("posterior", idata).to_dataset()
    if not isinstance(idata, xr.Dataset) or not {"chain", "draw"} <= set(idata.dims):
        raise ValueError(
            "idata has no posterior with the dimensions chain and draw; pass the result of "
            "pm.sample."
        )
    return idata


def _read(
    X_new: object, model: pm.Model, container: TensorSharedVariable
) -> tuple[Table, np.ndarray]:
    """The table of new inputs, and its values with the columns of the container in their order."""
    dims = model.named_vars_to_dims.get(container.name) or ("obs", "feature")
    table = numbers("X_new", X_new, dims)
    labels = model.coords.get(dims[1]) if len(dims) == 2 else None
    X = table.arranged("X_new", labels).astype(container.dtype)
    old = container.get_value(borrow=True)
    if X.ndim != old.ndim or X.shape[1:] != old.shape[1:]:
        raise ValueError(
            f"X_new must have shape (n_obs, {', '.join(map(str, old.shape[1:]))}) like the "
            f"model's {container.name}; got {X.shape}."
        )
    if not np.isfinite(X).all():
        raise ValueError("X_new must be finite.")
    return table, X


def _evaluate(
    output: TensorVariable,
    container: TensorSharedVariable,
    weights: list[TensorVariable],
    draws: list[np.ndarray],
    X: np.ndarray,
) -> np.ndarray:
    """``output`` for all draws and inputs, in blocks of bounded memory."""
    new_inputs = container.type()
    batched = [
        pytensor.tensor.tensor(dtype=rv.dtype, shape=(None, *rv.type.shape)) for rv in weights
    ]
    [single] = substitute([output], {container: new_inputs})
    many = vectorize_graph(single, dict(zip(weights, batched, strict=True)))
    with without_blas_notice():
        function = pytensor.function([new_inputs, *batched], many, **c_by_default())
    n_obs, n_draws = len(X), len(draws[0])
    width = max(1, X.shape[-1], *(max(value.shape[1:], default=1) for value in draws))
    rows = max(1, min(n_obs, BLOCK_BYTES // (8 * width)))
    step = max(1, BLOCK_BYTES // (8 * width * rows))
    blocks = [
        np.concatenate(
            [
                function(X[i : i + rows], *(value[start : start + step] for value in draws))
                for i in range(0, max(n_obs, 1), rows)
            ],
            axis=1,
        )
        for start in range(0, max(n_draws, 1), step)
    ]
    return np.concatenate(blocks)

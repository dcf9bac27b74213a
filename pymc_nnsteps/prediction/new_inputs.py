"""Predictions at new inputs."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import (
    in_type,
    positive_integer,
    require_bool,
    require_choice,
    require_finite,
)
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import depends_on, parameters
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.prediction.blocks import evaluate
from pymc_nnsteps.prediction.forward import (
    ForwardPass,
    Lengths,
    NoisyPass,
    forward_pass,
    noisy_pass,
)
from pymc_nnsteps.prediction.imputation import imputation_of, imputations_of, with_missing
from pymc_nnsteps.prediction.kinds import predicted_probabilities, predicted_responses
from pymc_nnsteps.prediction.new_groups import (
    draws_with_new_groups,
    embeddings,
    group_numbers,
    lengths_with_new_groups,
    numbers_groups,
    parts_with_new_levels,
    require_entries,
)
from pymc_nnsteps.prediction.posterior import (
    add_predictions,
    holds,
    labelled,
    posterior_of,
    stacked,
    thinned,
    unstacked,
)
from pymc_nnsteps.prediction.row_data import RowData, given_rows, own_rows, read_rows, rows_of
from pymc_nnsteps.tables import Table, is_table, require_same_rows, sources, without_columns

Kind = Literal["function", "probability", "response"]


@one_thread
def predict(
    idata: Any,
    X_new: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
    kind: Kind = "function",
    num_samples: int | None = None,
    noise_draws: int = 100,
    groups: ArrayLike | dict[str, Any] | None = None,
    sample_new_groups: bool = False,
    random_seed: Any = None,
    progressbar: bool = True,
    extend_inferencedata: bool = False,
) -> xr.DataArray:
    """Predict function values, class probabilities or responses at new rows.

    For each posterior draw the new inputs are passed through the network without noise. Latent
    layers, which have one row for each row of the inputs (pre- and post-activations, gates,
    utilities), are replaced by their means given the layer before. All other variables are taken
    from the posterior. So is each ``pm.Deterministic`` that depends on all training data, inputs
    and targets, such as the readout weights of :func:`~pymc_nnsteps.wide_mlp`. Probabilities and
    responses are those of the model, including the noise of hidden layers.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, its posterior, or draws from it by ``az.extract``. Latent layers
        need not be stored. Dimensions and their labels are matched by name.
    X_new : array_like or table, shape (n_obs, n_features), or dict
        Columns of a table (pandas, polars, Arrow, xarray) are matched by name if the model's inputs
        have names, others are left out, and text and categories are encoded as in the model. A dict
        also gives other data of the new rows, by the names of their ``pm.Data``, as for
        ``pm.set_data``: ``{"inputs": X_new, "group": group_new}`` if the output contains
        ``a[group]``. Groups are given by their numbers, or by the labels of the dimension of ``a``
        in ``coords``. Columns of a data frame with these names are used as such data. For rows that
        the model currently holds the inputs suffice.
    model : pm.Model, optional
        The model that was sampled; taken from the context if not given. It has one observed
        variable: Normal, any other beside a ``pm.Deterministic`` named ``"f"``, the network's
        output, or a decision (Bernoulli or Categorical) on latent utilities.
    inputs : str, optional
        Name of the data container that ``X_new`` replaces. By default ``"inputs"``, or the only
        table (if there is none, the only array) on which an observed variable's parameters or a
        potential depend; with ``output``, that on which this depends.
    output : str, optional
        With ``kind="function"`` the name of the ``pm.Deterministic`` to compute, such as that of
        one of several networks (:mod:`pymc_nnsteps.models.blocks`); with the other kinds the name
        of an observed variable. It is required if several observed variables depend on the inputs.
    kind : {"function", "probability", "response"}
        What to predict. ``"function"``: the network without noise. ``"probability"``: the
        probability of each class given the weights, or of class 1 if the classes are 0 and 1.
        ``"response"``: a draw of a new observation, with the noise of all layers; for classes,
        their index.
    num_samples : int, optional
        Number of draws to use from all chains together, evenly spaced in each; all by default.
    noise_draws : int
        Number of draws of the noise of hidden layers over which a probability is averaged. Given
        the hidden layers, and in networks without such noise, probabilities are integrated,
        accurate to the last digits, rather than drawn.
    groups : array_like or dict, optional
        The group of each row: its number, counted from 0, or its label. Where labels are numbers
        and what is given may be either, an error says so. An array suffices if the model has
        ``pm.Data`` of one kind of groups. With several kinds, pass a dict with the names of their
        ``pm.Data``.
    sample_new_groups : bool
        Whether rows may belong to new groups, whose numbers continue those of the model's groups or
        whose labels are new, and have new levels of embedded columns. For each posterior draw their
        effects (or embeddings) are drawn from their distribution given the hyperparameters, such as
        ``Normal(mu, sd)`` at the draw of ``mu`` and ``sd``.
    random_seed : int, Generator or None
        Seed of noise and of effects of new groups.
    progressbar : bool
        Whether to show a progress bar if the computation takes more than three seconds.
    extend_inferencedata : bool
        Whether to add the predictions and their new rows to ``idata``, a DataTree, as the groups
        ``predictions`` and ``predictions_constant_data`` of ArviZ's schema. Existing groups of
        these names are replaced.

    Returns
    -------
    DataArray, dims (chain, draw, obs, output) or (sample, obs, output)
        Means of the observed variable; or ``f`` (for classes, the logits); or the utilities of a
        decision. Rows have the labels of the new rows, or the model's labels for rows that it
        holds; outputs have the model's labels. The sign of a logit or utility, or
        ``.idxmax("output")``, gives the predicted class. If ``y`` has one axis, ``output`` has
        length one, unless there are classes.

    Raises
    ------
    ValueError
        If an argument is invalid, or if probabilities are requested without classes. If ``X_new``
        lacks columns of the model's inputs or is not finite, if there is no such container,
        if it cannot be shown that each row of the output depends only on its own row of the inputs,
        or if the posterior lacks a required variable or has it with other dimensions or labels than
        the model.

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
    >>> responses = nns.predict(idata, X[:5], model=model, kind="response", random_seed=2)
    >>> lower, upper = responses.quantile([0.05, 0.95], ("chain", "draw"))
    """
    require_choice("kind", kind, get_args(Kind))
    require_bool("extend_inferencedata", extend_inferencedata)
    if extend_inferencedata and not isinstance(idata, xr.DataTree):
        raise ValueError("extend_inferencedata needs the DataTree that pm.sample returns as idata.")
    posterior, samples = unstacked(idata)
    model = model_to_read(model)
    posterior = thinned(posterior, num_samples)
    container = input_container("X_new", model, inputs, output)
    if groups is not None:
        X_new = _with_groups(X_new, groups, model, container)
    predicted = _predicted(
        kind,
        "X_new",
        X_new,
        posterior,
        model,
        container,
        output,
        positive_integer("noise_draws", noise_draws),
        sample_new_groups,
        random_seed,
        progressbar,
    )
    if extend_inferencedata:
        _, values, others = _read("X_new", X_new, model, container, True)
        add_predictions(idata, predicted, {container: values, **others}, model)
    return stacked(predicted, samples, posterior)


def _predicted(
    kind: Kind,
    argument: str,
    X: object,
    posterior: xr.Dataset,
    model: pm.Model,
    container: TensorSharedVariable,
    output: str | None,
    noise_draws: int = 1,
    sample_new_groups: bool = False,
    random_seed: Any = None,
    progressbar: bool = False,
) -> xr.DataArray:
    """Predictions as of :func:`predict`; ``argument`` is what the caller calls ``X``."""
    read: Callable[..., ForwardPass] = partial(noisy_pass, model, container, named=output)
    if kind == "function":
        read = partial(forward_pass, model, container, output)
    table, rows, network, lengths = _at(argument, X, model, container, read, sample_new_groups)
    rng = np.random.default_rng(random_seed)
    draws = draws_with_new_groups(posterior, model, network.weights, lengths, rng)
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    name = output or "f"
    if isinstance(network, NoisyPass):
        name = "p" if kind == "probability" else str(network.y.name)

    def evaluated(rows: Sequence[NDArray[Any]], draws: Sequence[NDArray[Any]]) -> NDArray[Any]:
        if not isinstance(network, NoisyPass):
            return evaluate(network, rows, draws, n_draws, rng, progressbar)
        seed = int(rng.integers(2**63))
        if kind == "probability":
            return predicted_probabilities(
                network, rows, draws, n_draws, noise_draws, seed, progressbar
            )
        return predicted_responses(network, rows, draws, n_draws, seed, progressbar)

    values = evaluated(rows, draws)
    if table.new_levels:
        given = table, network, container, rows, draws, model, posterior, rng
        for at, *part in parts_with_new_levels(*given):
            values[:, at] = evaluated(*part)
    return labelled(values, name, model, table, posterior, container)


@one_thread
def function_values(
    idata: Any, X: object, model: pm.Model, inputs: str | None, output: str | None = None
) -> xr.DataArray:
    """Pass inputs through the network, as :func:`predict` does."""
    container = input_container("X", model, inputs, output)
    return _predicted("function", "X", X, posterior_of(idata), model, container, output)


def function_expression(X: object, model: pm.Model, inputs: str | None) -> TensorVariable:
    """What the network computes from inputs, (n_obs,) or (n_obs, n_outputs), of variables."""
    container = input_container("X", model, inputs)
    read = partial(forward_pass, model, container, None)
    _, rows, network, _ = _at("X", X, model, container, read)
    stated: dict[TensorVariable, TensorVariable] = {
        stand_in: variable for variable, stand_in in network.weights.items()
    }
    for stand_in, values in zip(network.rows.values(), rows, strict=True):
        stated[stand_in] = pt.constant(values)
    [output] = substitute([network.parameters[0]], stated)
    return output


def encode(
    X: ArrayLike | pd.DataFrame | dict[Any, Any],
    *,
    model: pm.Model | None = None,
    inputs: str | None = None,
) -> dict[str, NDArray[Any]]:
    """Encode new rows as numbers for a model's data containers, for ``pm.set_data``.

    Parameters
    ----------
    X : array_like or table, shape (n_obs, n_features), or dict
        New rows and other data that belong to them, as for :func:`~pymc_nnsteps.predict`.
    model, inputs
        As for :func:`~pymc_nnsteps.predict`.

    Returns
    -------
    dict of str to ndarray

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.predict`.

    Examples
    --------
    >>> import pandas as pd, pymc as pm, pymc_nnsteps as nns
    >>> table = pd.DataFrame({"km": [1.0, 7.0, 2.0], "depot": ["north", "south", "south"]})
    >>> with nns.intermediate_noise_mlp(table, [0.0, 1.0, 2.0], hidden=(3,)) as model:
    ...     pm.set_data(nns.prediction.encode(table[1:]) | {"targets": [1.0, 2.0]})
    >>> model["inputs"].get_value()
    array([[7., 0., 1.],
           [2., 0., 1.]])
    """
    model = model_to_read(model)
    container = input_container("X", model, inputs)
    _, values, others = _read("X", X, model, container, False)
    given: RowData = dict.fromkeys((container, *others), container)
    rows = rows_of("X", model, given, container, values, others)
    return {str(each.name): array for each, array in zip(given, rows, strict=True)}


def _with_groups(
    X: object, groups: object, model: pm.Model, container: TensorSharedVariable
) -> dict[Any, object]:
    """New inputs and other data, with the groups of their rows."""
    if not isinstance(groups, dict):
        numbered = [
            data.name
            for data in model.data_vars
            if data.ndim == 1 and data is not container and numbers_groups(model, data)
        ]
        if not numbered:
            raise ValueError("groups must be left out, as no pm.Data of the model has groups.")
        if len(numbered) > 1:
            raise ValueError(
                f"groups must be a dict from names of pm.Data, which are {', '.join(numbered)}."
            )
        groups = {numbered[0]: groups}
    given = _by_name(X, model, container)
    if twice := [name for name in groups if name in given]:
        raise ValueError(f"groups has {twice[0]!r}, which X_new has too; leave out one of them.")
    return given | groups


def _by_name(X: object, model: pm.Model, container: TensorSharedVariable) -> dict[Any, object]:
    """New inputs and other data, which columns of a frame may be, by their names."""
    if isinstance(X, dict):
        return X
    apart = [str(data.name) for data in model.data_vars if data.ndim == 1]
    inputs, beside = without_columns(X, apart)
    return {container.name: inputs} | beside


def _at(
    argument: str,
    X: object,
    model: pm.Model,
    container: TensorSharedVariable,
    read: Callable[..., ForwardPass],
    sample_new_groups: bool = False,
) -> tuple[Table, list[np.ndarray], ForwardPass, Lengths]:
    """The table of new inputs, values of all rows, a network of these, and of new groups."""
    require_bool("sample_new_groups", sample_new_groups)
    table, values, others = _read(argument, X, model, container, sample_new_groups)
    tables = [each.container for each in imputations_of(model)]
    if holds(own_rows(container), values):
        own = {each: own_rows(each) for each in tables if each not in {container, *others}}
        others |= with_missing(model, own)
    lengths: Lengths = {}
    of_tables = [values, *(np.asarray(others[each]) for each in tables if each in others)]
    gaps = any(bool(np.isnan(each).any()) for each in of_tables)
    network = read(values.dtype, lengths, gaps)
    rows = rows_of(argument, model, network.rows, container, values, others, tables)
    if sample_new_groups:
        lengths = lengths_with_new_groups(argument, network, rows)
        network = read(values.dtype, lengths, gaps)
    require_entries(argument, network, rows)
    return table, rows, network, lengths


def _used(model: pm.Model, variables: Collection[Any]) -> list[Any]:
    """Data with rows on which some variables depend."""
    data = [each for each in model.data_vars if each.ndim > 0]
    return [each for each in data if any(depends_on(v, {each}) for v in variables)]


def input_container(
    argument: str, model: pm.Model, name: str | None, output: int | str | None = None
) -> TensorSharedVariable:
    """The data container of this name, or that of the inputs of the network of ``output``."""
    containers = {data.name: data for data in model.data_vars}
    tables = list(containers)
    if name is None:
        of_responses = [each for rv in model.observed_RVs for each in parameters(rv)]
        of_output = isinstance(output, str) and output in model.named_vars
        used = _used(model, [model[output]]) if of_output else []
        of_output = bool(used)
        used = used or _used(model, [*model.potentials, *of_responses])
        tables = [data.name for data in used if data.ndim == 2] or [data.name for data in used]
        has_default = "inputs" in (tables if of_output else containers)
        name = "inputs" if has_default else tables[0] if len(tables) == 1 else None
    if name not in containers:
        known = ", ".join(containers) or "none"
        advice = "put the network's inputs in pm.Data"
        if containers:
            advice = "give the network one of these itself, not the array in it"
        if tables:
            advice = f'name one of these, such as inputs="{tables[0]}"'
        raise ValueError(
            f"inputs must name the pm.Data container that {argument} replaces; the model has "
            f"{known}; {advice}."
        )
    container: TensorSharedVariable = containers[name]
    if not isinstance(container, SharedVariable):
        raise ValueError(
            f"{name} is a constant of the model, which takes no other rows; pass the model as it "
            "was before freeze_dims_and_data."
        )
    return container


def _read(
    argument: str,
    given: object,
    model: pm.Model,
    container: TensorSharedVariable,
    sample_new_groups: bool,
) -> tuple[Table, np.ndarray, dict[Any, object]]:
    """The table of new inputs, its values with the columns of the container, and other data."""
    by_name = _by_name(given, model, container)
    others: dict[Any, object] = given_rows(argument, by_name, model)
    if container not in others:
        raise ValueError(
            f"{argument} must have {container.name!r}, the network's inputs; it has "
            f"{', '.join(map(repr, by_name)) or 'nothing'}."
        )
    given = others.pop(container)
    for data, values in others.items():
        names = f"{argument}[{container.name!r}]", f"{argument}[{describe(data)!r}]"
        require_same_rows(given, values, names=names)
        is_frame = isinstance(data, TensorSharedVariable) and data.ndim == 2
        if is_frame and (is_table(values) or imputation_of(model, data) is not None):
            others[data] = _table(names[1], model, data, values)[1]
        else:
            others[data] = group_numbers(names[1], values, model, data, sample_new_groups)
    new = embeddings(model, container) if sample_new_groups else ()
    return *_table(argument, model, container, given, new), others


def _table(
    argument: str,
    model: pm.Model,
    container: TensorSharedVariable,
    given: object,
    with_new_levels: Collection[object] = (),
) -> tuple[Table, NDArray[Any]]:
    """A table with the columns of a container, finite, or missing if the model has their law."""
    table = read_rows(argument, model, container, given, with_new_levels)
    X = in_type(table.values, container.dtype)
    old = container.get_value(borrow=True)
    if X.ndim != old.ndim or X.shape[1:] != old.shape[1:]:
        single = "; give a single row two dimensions" if X.shape == old.shape[1:] else ""
        raise ValueError(
            f"{argument} must have shape (n_obs, {', '.join(map(str, old.shape[1:]))}) like the "
            f"model's {container.name}; got {X.shape}{single}."
        )
    imputation = imputation_of(model, container) if np.isnan(X).any() else None
    columns = sources(table.columns or ())
    if imputation is None:
        require_finite(argument, X, columns=columns)
    else:
        drawn = np.isnan(X) & imputation.missing.any(axis=0)
        advice = "only columns with missing entries in the model's own rows can be drawn"
        if np.isinf(X).any():
            advice = "make those NaN that are to be drawn"
        require_finite(argument, np.where(drawn, 0, X), advice, columns)
        for each in imputation.categories:
            gone = np.isnan(X[:, each.numbers]).sum(axis=1)
            if rows := np.flatnonzero((gone > 0) & (gone < len(each.numbers))).tolist():
                raise ValueError(
                    f"{argument} has NaN in some but not all of the columns "
                    f"{each.numbers.tolist()} in row {rows[0]}, which are indicators of one "
                    "category; make all of them NaN, or none."
                )
    return table, X

"""A table as the inputs of blocks: its data container, and learnt rows of its categories."""

from collections.abc import Mapping

import pandas as pd
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.context import Dim, add_dims, check_dims, check_names
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.scaffold import BEGIN


def table(
    X: ArrayLike | pd.DataFrame,
    *,
    name: str = "inputs",
    dims: tuple[str, str] = ("obs", "feature"),
    standardize: bool = False,
    missing: Missing = None,
    embed: Mapping[str, int] | None = None,
) -> TensorVariable:
    r"""Add a table to the model of the context as the inputs of one or several blocks.

    Each level of text and categories becomes an indicator, with a label such as ``"depot[north]"``.
    Predictions, and other functions that take inputs, match the columns of later tables to these
    labels.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
    name : str
        Name of the ``pm.Data``, whose numbers are in the units of ``X``.
    dims : tuple of str
        Dimensions of rows and columns.
    standardize : bool
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.
    missing : {None, "impute"}
        ``"impute"``: missing entries (NaN) are variables of the model, drawn with the others. Each
        column of numbers with gaps, such as ``"age"``, is Normal given the columns without gaps and
        those with fewer gaps, in a linear regression: ``"inputs::age_weights"``, the intercept
        first, are N(0, 1), ``"inputs::age_sigma"`` is half-normal, and ``"inputs::age_missing"``
        are the entries, in the units of the inputs of the network. Categories, booleans and columns
        of 0 and 1 with gaps are Categorical and enter no regression (indicators side by side, with
        one 1 in each complete row, are one category): ``"inputs::depot_shares"`` are
        uniform on the simplex, ``"inputs::depot_missing"`` are the numbers of the levels. Entries
        are assumed to be missing at random: whether an entry is missing depends only on observed
        values.
    embed : mapping of str to int, optional
        Columns of text or categories to embed, with the dimension of each embedding. Row
        :math:`x_i` has the entries :math:`E_{c_i \cdot}` of a learnt matrix in place of the
        indicators of the category :math:`c_i`. The entries of ``"depot::E"`` are standard normal.

    Returns
    -------
    TensorVariable, shape (n_obs, n_inputs)
        Inputs of blocks.

    Raises
    ------
    ValueError
        If the table is invalid, lacks such categories, or clashes with the names of the model. The
        model is then left unchanged.

    Examples
    --------
    >>> import pandas as pd, pymc as pm, pymc_nnsteps as nns
    >>> X = pd.DataFrame({"km": [1.0, 7.0, 2.0, 5.0], "depot": ["north", "south", "east", "south"]})
    >>> with pm.Model() as model:
    ...     x = nns.blocks.table(X, standardize=True, embed={"depot": 2})
    ...     f = nns.blocks.hierarchical(x, hidden=(3,))
    ...     y = pm.Normal("y", f, 1, observed=[0.0, 1.0, 2.0, 1.0])
    >>> model.coords["feature"]
    ('km', 'depot[east]', 'depot[north]', 'depot[south]')
    >>> model.named_vars_to_dims["depot::E"]
    ('depot::level', 'depot::embedding')
    """
    model = model_or_context(None, BEGIN)
    if not isinstance(dims, tuple | list) or len(dims) != 2:
        raise ValueError(f"dims must be two names, of the rows and of the columns; got {dims!r}.")
    inputs = data.inputs(X, standardize, missing, embed)
    dims_of_columns = inputs.dims(dims[1])
    every_dim = {dims[0]: Dim(len(inputs.table)), **dims_of_columns}
    check_names(model, [name, *(each.name for each in inputs.embeddings)], every_dim)
    check_dims(model, every_dim, f'name the columns by dims=("{dims[0]}", "{name}_feature")')
    add_dims(model, dims_of_columns)
    return inputs.add(name, (dims[0], dims[1]))

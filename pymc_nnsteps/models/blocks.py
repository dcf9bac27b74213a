"""Networks as parts of a model, to be used with any inputs and in any likelihood.

Inside ``with pm.Model()`` each function adds a network with the input ``x`` of shape (n_obs,
n_features): data, another variable, or an embedding of group indices. It returns the output ``f``,
which may enter any expression or likelihood. A block named ``"f"`` has the output ``"f"`` and
variables ``"f::W1"``, ..., like those of a nested model ``pm.Model(name="f")``. A model may have
several blocks:

>>> import numpy as np, pymc as pm, pymc_nnsteps as nns
>>> with pm.Model() as model:
...     x = pm.Data("inputs", np.zeros((5, 2)))
...     mean = nns.blocks.wide(x, hidden=(8,), name="mean")
...     log_sigma = nns.blocks.wide(x, hidden=(8,), name="log_sigma")
...     y = pm.Normal("y", mean, pm.math.exp(log_sigma), observed=np.zeros(5))
>>> [variable.name for variable in model.free_RVs][::4]
['mean::W1', 'log_sigma::W1']
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation, AnyActivation
from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.models.bow_tie import BowTieLayers
from pymc_nnsteps.models.hierarchical import USUAL, HierarchicalLayers
from pymc_nnsteps.models.intermediate_noise import NoisyLayers
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.context import Dim, add_dims, check_dims, check_names
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.groups import PriorLike
from pymc_nnsteps.models.parts.layers import Noise
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import BEGIN, NetworkBlock
from pymc_nnsteps.models.parts.shrinkage import AnyShrinkage, PerLayer
from pymc_nnsteps.models.wide import WideLayers

__all__ = ["bow_tie", "hierarchical", "intermediate_noise", "table", "wide"]


def bow_tie(
    x: Any,
    *,
    hidden: Sequence[int] = (20,),
    outputs: int | None = None,
    name: str = "f",
    dims: str | Sequence[str] | None = None,
    temperature: float = 0.1,
    shrinkage: AnyShrinkage = "student_t",
    bias_var: PerLayer = 1.0,
    hidden_alpha: float = 2.0,
    hidden_beta: float = 0.01,
    marginalize_gates: bool = False,
    start: Start = "support_point",
) -> TensorVariable:
    """Add a bow-tie network with shrinkage priors to the model of the context.

    Parameters
    ----------
    x : tensor_like, shape (n_obs, n_features)
        Inputs: data, another variable, or any expression of them.
    hidden, temperature, hidden_alpha, hidden_beta, marginalize_gates
        As for :func:`~pymc_nnsteps.bow_tie`.
    outputs : int, optional
        Number of outputs. None means one output of shape (n_obs,).
    name : str
        Name of the output, and prefix of the names of the variables.
    dims : str or sequence of str, optional
        Dimensions of the output; by default those of ``x``, if it is a variable of the model with
        dimensions.
    shrinkage, bias_var
        As for :func:`~pymc_nnsteps.bow_tie`, but the defaults are for inputs and outputs on a scale
        of 1, as if the largest coefficient of a regression were 1, because a block has no targets.
    start : {"support_point", "prior"}
        Initial values of the chains: zero weights, or a separate draw from the prior for each
        chain.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` named ``name``, of variables ``"f::tau1"``,
        ``"f::psi1"``, ``"f::W1"``, ``"f::b1"``, ``"f::gamma1"``, ``"f::eta_sq1"``, ``"f::a1"``,
        ..., without noise of the output.

    Raises
    ------
    ValueError
        If an argument is invalid, or clashes with the names of the model. The model is then left
        unchanged.

    References
    ----------
    Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*,
    arXiv 2411.11132, Section 2.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> with pm.Model() as model:
    ...     f = nns.blocks.bow_tie(pm.Data("inputs", X), hidden=(4,), shrinkage="gaussian")
    ...     y = pm.Normal("y", f, pm.HalfNormal("sigma"), observed=X[:, 0])
    >>> [variable.name for variable in model.free_RVs]
    ['f::W1', 'f::b1', 'f::gamma1', 'f::eta_sq1', 'f::a1', 'f::W2', 'f::b2', 'sigma']
    """
    within = NetworkBlock(x, hidden, outputs, name, dims, start)
    gates = hidden_alpha, hidden_beta, marginalize_gates
    return within.add(BowTieLayers(within.stack, temperature, shrinkage, 1.0, bias_var, *gates))


def hierarchical(
    x: Any,
    *,
    hidden: Sequence[int] = (16, 16, 16),
    outputs: int | None = None,
    name: str = "f",
    dims: str | Sequence[str] | None = None,
    activation: AnyActivation | Sequence[AnyActivation] = "tanh",
    priors: Mapping[str, PriorLike] | None = None,
    connections: Mapping[str, ArrayLike] | None = None,
    start: Start = "support_point",
) -> TensorVariable:
    """Add a network with hierarchical priors to the model of the context.

    Parameters
    ----------
    x, outputs, name, dims
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.
    hidden, activation, priors, connections, start
        As for :func:`~pymc_nnsteps.hierarchical_mlp`; there is no ``"noise"`` among the priors.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` named ``name``, of variables ``"f::W_ih1"``,
        ``"f::tau_ih1"``, ..., named as those of :func:`~pymc_nnsteps.hierarchical_mlp`.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    Sections 1-3.

    Examples
    --------
    Counts, with a rate for each group:

    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(20, 2)), np.arange(20) % 4
    >>> with pm.Model(coords={"group": range(4)}) as model:
    ...     x = pm.Data("inputs", X)
    ...     level = pm.Normal("level", 0, 1, dims="group")
    ...     f = nns.blocks.hierarchical(x, hidden=(3,))
    ...     y = pm.Poisson("y", pm.math.exp(level[group] + f), observed=rng.poisson(2, size=20))
    >>> [variable.name for variable in model.free_RVs][:4]
    ['level', 'f::tau_ih1', 'f::tau_ih1_unit', 'f::W_ih1']
    """
    within = NetworkBlock(x, hidden, outputs, name, dims, start)
    network = HierarchicalLayers(within.stack, activation, priors, connections, None, start)
    return within.add(lambda x: network(x)[0], USUAL)


def intermediate_noise(
    x: Any,
    *,
    hidden: Sequence[int] = (10,),
    outputs: int | None = None,
    name: str = "f",
    dims: str | Sequence[str] | None = None,
    activation: Activation = "relu",
    noise: Noise | None = None,
    sigma: Noise | None = None,
    weight_precision: float | Sequence[float] | None = None,
    bias_precision: float | Sequence[float] | None = None,
    bias: bool = True,
    start: Start = "support_point",
) -> TensorVariable:
    """Add a network with intermediate noise to the model of the context.

    Parameters
    ----------
    x, outputs, name, dims, start
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.
    hidden, activation, weight_precision, bias_precision, bias
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    noise : float, "learnt", Prior or dict
        Variance of all hidden layers' pre- and post-activations, or
        ``{"pre": ..., "post": ..., "output": ...}``, as for
        :func:`~pymc_nnsteps.intermediate_noise_mlp`; 1e-2 if neither ``noise`` nor ``sigma`` is
        given. With ``"output"`` above zero the output is itself a normal variable about the last
        linear map, so that the weights have known conditionals under any likelihood.
    sigma : float, "learnt", Prior or dict
        Standard deviations in place of variances.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` named ``name``, of variables ``"f::W1"``, ``"f::b1"``,
        ``"f::Z2"``, ``"f::X2"``, ``"f::W2"``, ... with dimensions ``"f::input"`` (or that of
        ``x``), ``"f::hidden1"``, ..., ``"f::output"``.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*,
    arXiv 2306.02729, Section II.

    Examples
    --------
    A partially linear model:

    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> with pm.Model() as model:
    ...     x = pm.Data("inputs", X)
    ...     slope = pm.Normal("slope")
    ...     f = nns.blocks.intermediate_noise(x[:, 1:], hidden=(4,), noise=0.1)
    ...     y = pm.Normal("y", slope * x[:, 0] + f, 0.3, observed=np.abs(X[:, 1]))
    >>> [variable.name for variable in model.free_RVs]
    ['slope', 'f::W1', 'f::b1', 'f::Z2', 'f::X2', 'f::W2', 'f::b2']
    """
    within = NetworkBlock(x, hidden, outputs, name, dims, start)
    precisions = weight_precision, bias_precision, bias
    return within.add(NoisyLayers(within.stack, activation, noise, sigma, *precisions))


def wide(
    x: Any,
    *,
    hidden: Sequence[int] = (512,),
    outputs: int | None = None,
    name: str = "f",
    dims: str | Sequence[str] | None = None,
    activation: AnyActivation = "gelu",
    weight_var: float = 2.0,
    bias_var: float = 0.01,
    readout_var: float = 1.0,
    start: Start = "support_point",
) -> TensorVariable:
    """Add a wide network to the model of the context.

    Parameters
    ----------
    x, outputs, name, dims, start
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.
    hidden, activation, weight_var, bias_var, readout_var
        As for :func:`~pymc_nnsteps.wide_mlp`.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` named ``name``, of standard normal variables ``"f::W1"``,
        ``"f::b1"``, ..., including those of the readout.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.

    References
    ----------
    Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural Networks*
    (2025), Section 2.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> with pm.Model() as model:
    ...     f = nns.blocks.wide(pm.Data("inputs", X), hidden=(64,), outputs=2)
    ...     shape, rate = pm.math.exp(f[:, 0]), pm.math.exp(f[:, 1])
    ...     y = pm.Gamma("y", shape, rate, observed=np.exp(X[:, 0]))
    >>> [variable.name for variable in model.free_RVs]
    ['f::W1', 'f::b1', 'f::W2', 'f::b2']
    """
    within = NetworkBlock(x, hidden, outputs, name, dims, start)
    variances = weight_var, bias_var, readout_var
    return within.add(WideLayers(within.stack, activation, *variances))


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

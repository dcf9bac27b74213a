"""Wide networks: standard normal weights, NTK scaling, and a readout layer whitened by the data.

With widths ``d_0`` (inputs), ..., ``d_L`` and ``f^(0)`` the inputs, for hidden layers
``l = 1, ..., L`` with activation ``psi``::

    W^(l), b^(l) ~ N(0, 1)
    h^(l) = psi(sigma_W / sqrt(d_{l-1}) h^(l-1) W^(l)T + sigma_b b^(l)),   h^(0) = X
    f = s_W / sqrt(d_L) h^(L) W^(L+1)T + sigma_b b^(L+1),   y ~ N(f, sigma^2)

In the reparametrised posterior the readout weights are a function of the hidden layers, the
targets and standard normal variables ``phi`` that the likelihood does not depend on
(see :mod:`~pymc_nnsteps.models.parts.readout`). As the width grows it tends to the prior, and
samplers that leave a Gaussian prior invariant accept ever more of their proposals.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import (
    ACTIVATIONS,
    SMOOTH_ACTIVATIONS,
    AnyActivation,
    activation_function,
)
from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.models.parts import data, layers, readout
from pymc_nnsteps.models.parts.context import Dim
from pymc_nnsteps.models.parts.layers import standard_deviation
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import scaffold
from pymc_nnsteps.models.parts.scales import warn_of_scales

__all__ = ["wide_mlp"]


def wide_mlp(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame,
    *,
    hidden: Sequence[int] = (512,),
    activation: AnyActivation = "gelu",
    weight_var: float = 2.0,
    bias_var: float = 0.01,
    readout_var: float = 1.0,
    noise: float = 0.1,
    reparametrize: bool = True,
    start: Start = "prior",
) -> pm.Model:
    """Build a wide network for regression as a plain PyMC model.

    Inside ``with pm.Model(...)`` the network is added to that model, whose ``coords`` are used
    where they name one of the network's dimensions; otherwise a new model is made.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs. The columns of a DataFrame become the coordinates of ``"feature"``.
    y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)
        Targets: real numbers, one or several outputs. For classes see
        :func:`~pymc_nnsteps.models.parts.data.one_hot`.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str, PiecewiseLinear or callable
        ``"gelu"`` (the exact ``z Phi(z)``), ``"tanh"``, ``"erf"``, ``"softplus"``,
        ``"softplus0"``, ``"relu"``, ``"leaky_relu"``, ``"abs"``, ``"sign"``, ``"hard_tanh"``,
        ``"identity"``, a
        :class:`~pymc_nnsteps.activations.PiecewiseLinear`, or a function of a PyTensor tensor
        that works entry by entry.
    weight_var, bias_var : float
        ``sigma_W^2`` and ``sigma_b^2`` of the hidden layers; the bias of the readout has
        ``sigma_b^2`` too. ``bias_var=0`` leaves all biases out.
    readout_var : float
        ``s_W^2`` of the readout layer.
    noise : float
        **Standard deviation** ``sigma`` of the observations, in the units of ``y``. (The
        ``noise`` of :func:`~pymc_nnsteps.models.intermediate_noise_mlp` is a variance.)
    reparametrize : bool
        Whether ``phi`` takes the place of the readout weights among the free variables.
    start : {"support_point", "prior"}
        Initial values of the chains: zero weights, or a draw from the prior, another one for
        each chain.

    Returns
    -------
    pm.Model
        With free variables ``W1``, ``b1``, ... of the hidden layers (``W{l}`` of shape
        (fan_out, fan_in), ``b{l}`` (fan_out,)), readout ``W{L+1}`` and ``b{L+1}``, network
        function ``f`` (shape of ``y``), observed ``y``, data containers ``inputs`` and
        ``targets``, and dimensions ``"obs"``, ``"feature"``, ``"hidden1"``, ..., ``"output"``.
        Reparametrised, the readout is ``pm.Deterministic``, ``phi`` is free, of shape
        (n_outputs, fan_in + 1) with dimensions ``"output"`` and ``"readout"`` (the bias last;
        fan_in without biases), and ``y`` with several outputs has dimensions ``"output"`` and
        ``"obs"``.

    Raises
    ------
    ValueError
        If an argument is unusable, or clashes with the names or coordinates of the model
        around it. Nothing has been added to that model then.

    Warns
    -----
    UserWarning
        If columns of ``X`` or of real ``y`` are on a scale far from 1, or ``X`` or ``y`` is
        constant.

    Notes
    -----
    **Sampling.** ``phi`` is independent of all else and its full conditional is its prior, so
    each stored draw can have a new readout layer::

        with nns.wide_mlp(X, y) as model:
            step = [nns.PCN([model["W1"], model["b1"]]), nns.Gibbs([model["phi"]])]
            idata = pm.sample(step=step)

    Judge convergence by function values (``f``, or ``nns.predict`` at some inputs) and by the
    likelihood of the hidden layers, not by single weights: hidden units can be exchanged.

    **Prediction.** ``nns.predict(idata, X_new, model=model)`` passes new inputs through the
    network of each draw. In the reparametrised form, forward sampling of ``y`` draws from its
    law given the hidden layers with the readout integrated over its *prior*: that is right for
    prior predictive sampling (whose ``f`` and readout still are those given the targets), not
    for posterior predictive sampling. The latter is done by the plain form of the same network,
    whose variables have the same names and shapes::

        plain = nns.wide_mlp(X, y, ..., reparametrize=False)
        with plain:
            pm.set_data({"inputs": X_new})
            pm.sample_posterior_predictive(idata, predictions=True)

    **Cost.** With no more observations than columns of the readout, ``y`` is a ``pm.MvNormal``
    with the covariance ``K`` of the observations; with more, the same density is computed from
    a matrix of the readout's size. The data given here decide on the form, which is right for
    whatever ``pm.set_data`` puts in their place.

    ``start="prior"`` sets initial values, which PyMC's model transformations (``pm.do``,
    ``pm.observe``, ``pm.compute_log_likelihood``) refuse: call
    ``model.set_initval(variable, None)`` for each free variable before these.

    References
    ----------
    Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural Networks*
    (2025), Section 2 (model and reparametrisation; its reference setting is the default here).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_nnsteps.models import wide_mlp
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> model = wide_mlp(X, np.sin(X[:, 0]), hidden=(64,))
    >>> [variable.name for variable in model.free_RVs]
    ['W1', 'b1', 'phi']
    >>> [variable.name for variable in model.deterministics]
    ['W2', 'b2', 'f']
    >>> plain = wide_mlp(X, np.sin(X[:, 0]), hidden=(64,), reparametrize=False)
    >>> [variable.name for variable in plain.free_RVs]
    ['W1', 'b1', 'W2', 'b2']
    """
    require_choice("start", start, get_args(Start))
    function = activation_function(activation, ACTIVATIONS | SMOOTH_ACTIVATIONS, functions=True)
    network = scaffold(X, y, data.regression_targets, hidden)
    units, n_layers, unit_dims = network.units, network.n_layers, tuple(network.dims)
    hidden_var = _positive("weight_var", weight_var)
    last_var = _positive("readout_var", readout_var)
    bias_var = _bias_variance(bias_var)
    sigma = _positive("noise", noise, "is a standard deviation and ")
    layers.require_resolved(sigma**2, "noise", noise)
    if not isinstance(reparametrize, bool | np.bool_):
        raise ValueError(f"reparametrize must be True or False; got {reparametrize!r}.")
    has_bias = bias_var > 0
    n_columns = units[-2] + has_bias

    more_dims = {"readout": Dim(n_columns)} if reparametrize else {}
    dims, row_dims = network.dims | more_dims, network.row_dims
    model = network.open(_variable_names(n_layers, has_bias, reparametrize), more_dims)
    warn_of_scales(network.inputs.values, network.targets.values)

    with model:
        x, observed = network.add_data(model, more_dims)

        def normal(name: str, *dims_of: str) -> TensorVariable:
            shape = tuple(dims[dim].length for dim in dims_of)
            initval = "prior" if start == "prior" else None
            return pm.Normal(name, 0.0, 1.0, shape=shape, dims=dims_of, initval=initval)

        def weights(layer: int) -> tuple[TensorVariable, TensorVariable | None]:
            fan_in, fan_out = unit_dims[layer - 1 : layer + 1]
            return (
                normal(f"W{layer}", fan_out, fan_in),
                normal(f"b{layer}", fan_out) if has_bias else None,
            )

        for layer in range(1, n_layers):
            scaled = x * standard_deviation(hidden_var / units[layer - 1])
            x = function(_linear(scaled, *weights(layer), bias_var))
        scaled = x * standard_deviation(last_var / units[-2])

        if reparametrize:
            phi = normal("phi", "output", "readout")
            rows = observed if observed.ndim == 1 else observed.T
            integrate_out = readout.by_rows if network.n_obs <= n_columns else readout.by_columns
            theta = integrate_out(scaled, bias_var, sigma, rows, phi)
            W = pm.Deterministic(
                f"W{n_layers}", theta[:, : units[-2]], dims=("output", unit_dims[-2])
            )
            b = pm.Deterministic(f"b{n_layers}", theta[:, -1], dims="output") if has_bias else None
        else:
            W, b = weights(n_layers)
        f = _linear(scaled, W, b, bias_var)
        f = pm.Deterministic("f", f if observed.ndim == 2 else f[:, 0], dims=row_dims)
        if not reparametrize:
            scale = pt.constant(sigma, dtype=config.floatX)
            pm.Normal("y", f, scale, observed=observed, dims=row_dims)
    return model


def _linear(
    inputs: TensorVariable, weights: TensorVariable, bias: TensorVariable | None, bias_var: float
) -> TensorVariable:
    outputs = inputs @ weights.T
    return outputs if bias is None else outputs + standard_deviation(bias_var) * bias


def _positive(name: str, value: float, meaning: str = "") -> float:
    (number,) = layers.per_layer(name, value, 1, None)
    if number <= 0:
        raise ValueError(f"{name} {meaning}must be positive; got {value!r}.")
    return number


def _bias_variance(value: float) -> float:
    (number,) = layers.per_layer("bias_var", value, 1, None)
    if number < 0:
        raise ValueError(f"bias_var must not be negative; 0 leaves the biases out; got {value!r}.")
    return number


def _variable_names(n_layers: int, has_bias: bool, reparametrize: bool) -> list[str]:
    """Every variable the model will have."""
    names = ["inputs", "targets", "f", "y"] + ["phi"] * reparametrize
    for layer in range(1, n_layers + 1):
        names += [f"W{layer}"] + [f"b{layer}"] * has_bias
    return names

"""Wide networks: standard normal weights, NTK scaling, and a readout layer whitened by the data.

With widths ``d_0`` (inputs), ..., ``d_L`` and ``f^(0)`` the inputs, for hidden layers
``l = 1, ..., L`` with activation ``psi``::

    W^(l), b^(l) ~ N(0, 1)
    h^(l) = psi(sigma_W / sqrt(d_{l-1}) h^(l-1) W^(l)T + sigma_b b^(l)),   h^(0) = X
    f = s_W / sqrt(d_L) h^(L) W^(L+1)T + sigma_b b^(L+1),   y ~ N(f, sigma^2)

Noise that varies with the inputs has a readout of its own, and standard normal variables alone::

    sigma(X) = 0.1 exp(beta + omega s_W / sqrt(d_L) h^(L) W^(s)T),   omega, beta, W^(s) ~ N(0, 1)

In the reparametrised posterior the readout weights are a function of the hidden layers, the
targets and standard normal variables ``phi`` that the likelihood does not depend on
(see :mod:`~pymc_nnsteps.models.parts.readout`). As the width grows it tends to the prior, and
samplers that leave a Gaussian prior invariant accept ever more of their proposals.
"""

from collections.abc import Sequence
from typing import Literal

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
from pymc_nnsteps.arguments import finite_number, is_word, positive_number, require_bool
from pymc_nnsteps.models.parts import readout
from pymc_nnsteps.models.parts.context import Dim, Stack, recorded
from pymc_nnsteps.models.parts.data import Missing, Observed
from pymc_nnsteps.models.parts.layers import known_sigma, standard_deviation
from pymc_nnsteps.models.parts.likelihoods import AnyNetwork, ObservedData, Start
from pymc_nnsteps.models.parts.scaffold import Scaffold

SIGMA = 0.1
"""Standard deviation of noise, and a typical one of noise that varies with the inputs."""


@recorded
def wide_mlp(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame,
    *,
    hidden: Sequence[int] = (512,),
    activation: AnyActivation = "gelu",
    weight_var: float = 2.0,
    bias_var: float = 0.01,
    readout_var: float = 1.0,
    likelihood: Literal["normal"] | AnyNetwork = "normal",
    exposure: ArrayLike | pd.Series | None = None,
    censored: ArrayLike | pd.Series | None = None,
    sigma: float | Literal["network"] | None = None,
    reparametrize: bool = True,
    start: Start = "prior",
    standardize: bool = False,
    missing: Missing = None,
) -> pm.Model:
    """Build a wide network as a plain PyMC model.

    Inside ``with pm.Model(...)`` the network is added to that model, and uses its ``coords`` for
    dimensions of the same name. Otherwise a new model is created.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs, as for :func:`~pymc_nnsteps.hierarchical_mlp`.
    y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)
        Targets: real numbers of one or several outputs. Missing ones are NaN, which requires
        ``reparametrize=False``. For a regression on class labels see
        :func:`~pymc_nnsteps.models.one_hot`.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str, PiecewiseLinear or callable
        ``"gelu"`` (the exact ``z Phi(z)``), ``"tanh"``, ``"erf"``, ``"softplus"``, ``"softplus0"``,
        ``"relu"``, ``"leaky_relu"``, ``"abs"``, ``"sign"``, ``"hard_tanh"``, ``"identity"``, a
        :class:`~pymc_nnsteps.activations.PiecewiseLinear`, or an elementwise function of a PyTensor
        tensor.
    weight_var, bias_var : float
        ``sigma_W^2`` and ``sigma_b^2`` of the hidden layers; the bias of the readout has
        ``sigma_b^2`` too. ``bias_var=0`` omits all biases.
    readout_var : float
        ``s_W^2`` of the readout layer.
    likelihood : str
        ``"normal"``, or with ``reparametrize=False`` any of :func:`~pymc_nnsteps.hierarchical_mlp`
        except ``"student_t"``.
    exposure, censored, standardize, missing
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.
    sigma : float or "network", optional
        Standard deviation of the observations, in the units of ``y``; 0.1 by default. With
        ``"network"``, which requires ``reparametrize=False``, it varies with the inputs.
    reparametrize : bool
        Whether ``phi`` replaces the readout weights as a free variable.
    start : {"support_point", "prior"}
        Initial values of the chains: zero weights, or a separate draw from the prior for each
        chain.

    Returns
    -------
    pm.Model
        With free variables ``W1``, ``b1``, ... of the hidden layers (``W{l}`` of shape (fan_out,
        fan_in), ``b{l}`` (fan_out,)), readout ``W{L+1}`` and ``b{L+1}``, network function ``f``
        (shape of ``y``), observed ``y``, data containers ``inputs`` and ``targets``, and dimensions
        ``"obs"``, ``"feature"``, ``"hidden1"``, ..., ``"output"``. In the reparametrised form the
        readout is a ``pm.Deterministic``; ``phi`` is free, of shape (n_outputs, fan_in + 1) with
        dimensions ``"output"`` and ``"readout"`` (the bias last; fan_in without biases), and ``y``
        with several outputs has dimensions ``"output"`` and ``"obs"``. Varying noise adds
        ``W_noise`` (n_outputs, fan_in), ``b_noise`` (n_outputs,), ``omega`` and ``sigma``, of the
        shape of ``y``.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.

    Warns
    -----
    UserWarning
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.

    Notes
    -----
    **Sampling.** ``phi`` is independent of all other variables and its full conditional is its
    prior, so each stored draw can have a new readout layer::

        with nns.wide_mlp(X, y) as model:
            step = [nns.PCN([model["W1"], model["b1"]]), nns.Gibbs([model["phi"]])]
            idata = pm.sample(step=step)

    Judge convergence by function values (``f``, or ``nns.predict`` at some inputs) and by the
    likelihood of the hidden layers, not by single weights: hidden units are interchangeable.

    **Prediction.** ``nns.predict(idata, X_new, model=model)`` passes new inputs through the network
    of each draw. In the reparametrised form, forward sampling of ``y`` integrates the readout over
    its *prior*. That is right for prior predictive sampling (whose ``f`` and readout are still
    conditional on the targets), but not for posterior predictive sampling, which raises an error.
    For the latter use ``nns.predict(..., kind="response")``, or the plain form of the same network,
    whose variables have the same names and shapes::

        plain = nns.wide_mlp(X, y, ..., reparametrize=False)
        with plain:
            pm.set_data({"inputs": X_new})
            pm.sample_posterior_predictive(idata, predictions=True)

    **Cost.** With no more observations than columns of the readout, ``y`` is a ``pm.MvNormal`` with
    the covariance ``K`` of the observations; with more, the same density is computed from a matrix
    of the readout's size. The data given here determine the form, which remains correct after
    ``pm.set_data``.

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
    given = {"exposure": exposure, "censored": censored, "sigma": sigma}
    scaffolding = Scaffold(
        X, y, hidden, likelihood, ("normal",), start, standardize, missing, given
    )
    response, stack = scaffolding.response, scaffolding.stack
    network = WideLayers(stack, activation, weight_var, bias_var, readout_var)
    require_bool("reparametrize", reparametrize)
    varies = is_word(sigma, "network")
    for what, is_given in (
        (f'likelihood="{likelihood}"', likelihood != "normal"),
        ('sigma="network"', varies),
        ("y with missing values", response.targets.missing.any()),
    ):
        if reparametrize and is_given:
            raise ValueError(
                f"{what} does not allow the readout to be reparametrised, which takes noise of one "
                "standard deviation and all targets; pass reparametrize=False."
            )
    known = known_sigma(sigma)
    scale = SIGMA if known is None else known
    n_columns = stack.units[-2] + network.has_bias

    def build(x: TensorVariable, seen: ObservedData) -> None:
        scaled = network.hidden_layers(x)
        if reparametrize:
            few_rows = scaffolding.n_obs <= n_columns
            W, b = network.whitened_readout(scale, scaled, seen.y, few_rows=few_rows)
        else:
            W, b = network.weights(stack.n_layers)
        f = seen.named(network.linear(scaled, W, b))
        if reparametrize:
            return
        if likelihood == "normal":
            sd: TensorVariable = pt.constant(scale, dtype=config.floatX)
            sd = network.varying_noise(sd, scaled, seen) if varies else sd
            response.law.observe(f, seen, sd)
        else:
            response.law.observe(f, seen)

    return scaffolding.add(build, {"readout": Dim(n_columns)} if reparametrize else {})


class WideLayers:
    """A network with the arguments of :func:`wide_mlp`."""

    def __init__(
        self,
        stack: Stack,
        activation: AnyActivation,
        weight_var: float,
        bias_var: float,
        readout_var: float,
    ) -> None:
        self.stack = stack
        named = ACTIVATIONS | SMOOTH_ACTIVATIONS
        self.function = activation_function(activation, named, functions=True)
        self.weight_var = positive_number("weight_var", weight_var)
        self.bias_var = finite_number("bias_var", bias_var)
        self.readout_var = positive_number("readout_var", readout_var)
        if self.bias_var < 0:
            raise ValueError(
                f"bias_var must not be negative; 0 leaves the biases out; got {bias_var!r}."
            )

    @property
    def has_bias(self) -> bool:
        """Whether there are biases."""
        return self.bias_var > 0

    def __call__(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model, and return the outputs."""
        return self.linear(self.hidden_layers(x), *self.weights(self.stack.n_layers))

    def hidden_layers(self, x: TensorVariable) -> TensorVariable:
        """Add the hidden layers to the model, and return the last one in the readout's scaling."""
        for layer in range(1, self.stack.n_layers):
            scaled = x * standard_deviation(self.weight_var / self.stack.units[layer - 1])
            x = self.function(self.linear(scaled, *self.weights(layer)))
        return x * standard_deviation(self.readout_var / self.stack.units[-2])

    def weights(self, layer: int) -> tuple[TensorVariable, TensorVariable | None]:
        """Add the standard normal weights and biases of a layer to the model."""
        shape, dims = self.stack.of_weights(layer)
        W = pm.Normal(f"W{layer}", shape=shape, dims=dims)
        return W, pm.Normal(f"b{layer}", shape=shape[:1], dims=dims[:1]) if self.has_bias else None

    def linear(
        self, inputs: TensorVariable, weights: TensorVariable, bias: TensorVariable | None
    ) -> TensorVariable:
        """The linear map of a layer."""
        outputs = inputs @ weights.T
        return outputs if bias is None else outputs + standard_deviation(self.bias_var) * bias

    def whitened_readout(
        self, sigma: float, scaled: TensorVariable, observed: Observed, *, few_rows: bool
    ) -> tuple[TensorVariable, TensorVariable | None]:
        """Weights and biases given all else, in terms of ``phi``; adds ``y`` without them."""
        stack, fan_in, last = self.stack, self.stack.units[-2], self.stack.n_layers
        shape = stack.units[-1], fan_in + self.has_bias
        phi = pm.Normal("phi", shape=shape, dims=("output", "readout"))
        phi.tag.is_given_targets = True  # nothing of it is computed with others by forward sampling
        targets = pt.as_tensor(observed)
        rows = targets if targets.ndim == 1 else targets.T
        integrate_out = readout.by_rows if few_rows else readout.by_columns
        theta = integrate_out(scaled, self.bias_var, sigma, rows, phi)
        W = pm.Deterministic(f"W{last}", theta[:, :fan_in], dims=stack.of_weights(last)[1])
        if not self.has_bias:
            return W, None
        return W, pm.Deterministic(f"b{last}", theta[:, -1], dims="output")

    def varying_noise(
        self, level: TensorVariable, scaled: TensorVariable, seen: ObservedData
    ) -> TensorVariable:
        """Standard deviations of real targets, which vary with the inputs about a level."""
        shape, dims = self.stack.of_weights(self.stack.n_layers)
        W = pm.Normal("W_noise", shape=shape, dims=dims)
        b = pm.Normal("b_noise", shape=shape[:1], dims=dims[:1])
        log_variation = b + pm.Normal("omega") * (scaled @ W.T)
        return pm.Deterministic("sigma", seen.f(level * pt.exp(log_variation)), dims=seen.dims)

"""The intermediate-noise network: Gaussian noise on every pre- and post-activation.

The model of Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
(arXiv 2306.02729). With widths ``d_1`` (inputs), ..., ``d_{L+1}`` (outputs) and ``X^(1)`` the
inputs, for ``l = 1, ..., L``::

    W^(l)_ai ~ N(0, 1/lambda_W^(l)),   b^(l)_a ~ N(0, 1/lambda_b^(l))
    Z^(l+1) ~ N(X^(l) W^(l)T + b^(l), Delta_Z^(l+1))       pre-activations
    X^(l+1) ~ N(sigma(Z^(l+1)), Delta_X^(l+1))             post-activations, l < L

Regression observes ``Z^(L+1)``; probit models observe its sign or its argmax. Because every
conditional distribution is then known, the posterior can be sampled exactly, layer by layer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation, activation_function
from pymc_nnsteps.arguments import require_bool
from pymc_nnsteps.models.hierarchical import varying_noise
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Stack, recorded
from pymc_nnsteps.models.parts.convolutions import Convolution
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.layers import (
    DEFAULT_NOISE,
    Noise,
    OneNoise,
    noise_scale,
    noisy,
    variances,
    without_network,
)
from pymc_nnsteps.models.parts.likelihoods import LIKELIHOODS, ObservedData, OfNoisyLayers, Start
from pymc_nnsteps.models.parts.scaffold import Scaffold
from pymc_nnsteps.models.priors import Prior

OWN = ("normal", "probit", "multinomial_probit")
"""Likelihoods beside those for any network."""


@recorded
def intermediate_noise_mlp(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame | pd.Categorical,
    *,
    hidden: Sequence[int] = (10,),
    activation: Activation = "relu",
    noise: Noise | None = None,
    sigma: Noise | None = None,
    noise_network: Mapping[str, Any] | None = None,
    weight_precision: float | Sequence[float] | None = None,
    bias_precision: float | Sequence[float] | None = None,
    bias: bool = True,
    likelihood: OfNoisyLayers = "normal",
    exposure: ArrayLike | pd.Series | None = None,
    censored: ArrayLike | pd.Series | None = None,
    start: Start = "support_point",
    standardize: bool = False,
    missing: Missing = None,
) -> pm.Model:
    """Build a fully connected network with intermediate noise as a plain PyMC model.

    Inside ``with pm.Model(...)`` the network is added to that model, and uses its ``coords`` for
    dimensions of the same name. Otherwise a new model is created.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs, as for :func:`~pymc_nnsteps.hierarchical_mlp`.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets. For ``"normal"``: real numbers of one or several outputs; missing ones are NaN and
        become free variables. For ``"probit"``: 0 and 1. For ``"multinomial_probit"``: integers 0,
        ..., K-1 or labels of another kind, which become the coordinates of ``"output"``. For
        others: as for :func:`~pymc_nnsteps.hierarchical_mlp`.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str or PiecewiseLinear
        ``"relu"``, ``"leaky_relu"``, ``"abs"``, ``"sign"``, ``"hard_tanh"``, ``"identity"`` or a
        :class:`~pymc_nnsteps.activations.PiecewiseLinear`.
    noise : float, "learnt", Prior or dict
        Variance ``Delta``: a number, ``"learnt"``, or a prior ``nns.Prior(width, alpha_common)``,
        which is inverse gamma with shape ``alpha_common / 2`` about ``width**2``. One value applies
        to all layers. ``{"pre": ..., "post": ..., "output": ...}`` sets ``Delta_Z`` and ``Delta_X``
        of the hidden layers (each one value, or one per hidden layer) and ``Delta_Z^(L+1)``. Learnt
        variances are variables ``noise_Z2``, ``noise_X2``, ..., ``noise_y``. If neither ``noise``
        nor ``sigma`` is given, the variance is learnt for real targets, and 1e-2 for others. A pre-
        or post-activation without noise is a ``pm.Deterministic``: ``"post": 0`` gives a stochastic
        feed-forward network, and ``"pre": 0, "post": 0`` the classical posterior. The output noise
        must be positive for real targets and probit models. With output noise the weights have
        known conditionals under any likelihood, and chains mix faster.
    sigma : float, "learnt", Prior or dict
        Standard deviations, in place of the variances of ``noise``. With ``"network"``, or
        ``"network"`` as ``"output"`` of a dict, the noise of real targets varies with the inputs:
        the learnt level ``noise_y`` is multiplied by the exponential of a separate network. The
        noise of hidden layers does not vary.
    noise_network : dict, optional
        Settings of the network for the noise, as for :func:`~pymc_nnsteps.bow_tie`.
    weight_precision, bias_precision : float, sequence of float (one per layer) or None
        Prior precisions ``lambda_W`` and ``lambda_b``. None means the fan-in ``d_l``.
    bias : bool
        Whether layers have biases.
    likelihood : str
        What is observed of the last pre-activations: their values (``"normal"``), their signs
        (``"probit"``), or the index of the largest (``"multinomial_probit"``). The probit models
        have no further noise: their ``Z{L+1}`` is a free variable under a hard constraint. The
        other likelihoods of :func:`~pymc_nnsteps.hierarchical_mlp`, except ``"student_t"``, are
        distributions of ``y`` given ``f``, the last pre-activations with their noise.
    exposure, censored, standardize, missing
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.
    start : {"support_point", "prior"}
        Initial values of the chains: zero weights, or a separate draw from the prior for each
        chain, with latent variables that follow from its weights. In probit models the last
        pre-activations start with the signs that ``y`` requires.

    Returns
    -------
    pm.Model
        With free variables ``W1``, ``b1``, ``noise_Z2``, ``Z2``, ``noise_X2``, ``X2``, ``W2``, ...,
        ``noise_y`` (``W{l}`` of shape (fan_out, fan_in), ``b{l}`` (fan_out,), ``Z{l}`` and ``X{l}``
        (n_obs, units)), observed ``y``, data containers ``inputs`` and ``targets``, and dimensions
        ``"obs"``, ``"feature"``, ``"hidden1"``, ..., ``"output"``. Varying noise adds the variables
        ``log_noise::W_ih1``, ..., and ``sigma``, of the shape of ``y``.

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
    To predict at new inputs, use :func:`~pymc_nnsteps.predict`. Alternatively, store no latent
    variables (they belong to the old rows), set the new inputs and sample forward; the targets need
    not change. In a model with your own ``coords={"obs": ...}`` also pass ``coords={"obs": ...}``
    to ``pm.set_data``::

        with model:
            idata = pm.sample(var_names=nns.without_latents())
            pm.set_data({"inputs": X_new})
            predictions = pm.sample_posterior_predictive(idata, predictions=True)

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*,
    arXiv 2306.02729, Section II (model) and Appendix E (multinomial probit, eqs. E23-E26).

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> from pymc_nnsteps.models import intermediate_noise_mlp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 3))
    >>> model = intermediate_noise_mlp(X, np.abs(X[:, 0]), hidden=(4,), activation="abs")
    >>> [variable.name for variable in model.free_RVs]
    ['W1', 'b1', 'noise_Z2', 'Z2', 'noise_X2', 'X2', 'W2', 'b2', 'noise_y']
    >>> known = intermediate_noise_mlp(
    ...     X, X[:, 0], noise={"pre": nns.Prior(0.1, 6), "post": 1e-3, "output": "learnt"}
    ... )
    >>> [variable.name for variable in known.free_RVs]
    ['W1', 'b1', 'noise_Z2', 'Z2', 'X2', 'W2', 'b2', 'noise_y']
    >>> model.named_vars_to_dims["W1"]
    ('hidden1', 'feature')
    >>> varying = intermediate_noise_mlp(X, X[:, 0], sigma="network")
    >>> [variable.name for variable in varying.free_RVs[-3:]]
    ['log_noise::bh1', 'log_noise::tau_h1o', 'log_noise::W_h1o']
    """
    given = {"exposure": exposure, "censored": censored}
    scaffolding = Scaffold(X, y, hidden, likelihood, OWN, start, standardize, missing, given)
    (noise, noise_varies), (sigma, sigma_varies) = map(without_network, (noise, sigma))
    network = NoisyLayers(
        scaffolding.stack,
        activation,
        noise,
        sigma,
        weight_precision,
        bias_precision,
        bias,
        # Classes tell nothing of the scale of their utilities.
        "learnt" if likelihood == "normal" else DEFAULT_NOISE,
        observed=True,
        needed=likelihood in OWN,
    )
    varies = noise_varies or sigma_varies
    if varies and likelihood != "normal":
        raise ValueError(
            f'noise cannot vary with likelihood="{likelihood}", which does not identify the '
            'scale of utilities; "network" is for real targets.'
        )
    varying = varying_noise(varies, scaffolding.stack, noise_network, start)
    vary = None if varying is None else varying.vary

    def build(x: TensorVariable, seen: ObservedData) -> None:
        network.observe(likelihood, x, seen, start, vary)

    return scaffolding.add(build, {} if varying is None else varying.dims)


class NoisyLayers:
    """A network with the arguments of :func:`intermediate_noise_mlp`.

    ``default`` is the noise where none is given; ``observed`` means that one number for all noise
    is that of the last pre-activations too, ``needed`` that this must be positive then. Layers of
    convolutions, ``maps``, may come before those of the stack.
    """

    def __init__(
        self,
        stack: Stack,
        activation: Activation,
        noise: Noise | None,
        sigma: Noise | None,
        weight_precision: float | Sequence[float] | None,
        bias_precision: float | Sequence[float] | None,
        bias: bool,
        default: OneNoise = DEFAULT_NOISE,
        *,
        observed: bool = False,
        needed: bool = True,
        maps: Sequence[Convolution] | None = None,
    ) -> None:
        self.stack, self.maps = stack, maps or ()
        fan_in = (*(made.fan_in for made in self.maps), *stack.units[:-1])
        of_hidden = (len(fan_in) - 1, "hidden layer")
        kinds = {"pre": of_hidden, "post": of_hidden}
        if maps is not None:
            of_pooled = (sum(made.is_pooled for made in maps), "pooled convolution")
            kinds = {"pre": of_hidden, "pool": of_pooled, "post": of_hidden}
        self.function = activation_function(activation)
        self.delta = variances(
            noise, sigma, kinds, observed=observed, needed=needed, default=default
        )
        require_bool("bias", bias)
        if bias_precision is not None and not bias:
            raise ValueError(
                "bias_precision has no meaning with bias=False; leave one of them out."
            )
        self.has_bias = bias
        self.weight_precisions, self.bias_precisions = (
            layers.positive_per_layer(name, fan_in if given is None else given, len(fan_in))
            for name, given in (
                ("weight_precision", weight_precision),
                ("bias_precision", bias_precision),
            )
        )

    def __call__(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model, and return the last pre-activations."""
        mean, [variance] = self.mean(x), self.delta["output"]
        if variance == 0:
            return mean
        return noisy(self.last, mean, variance, self.stack.row_dims(self.stack.n_layers))

    def observe(
        self,
        likelihood: str,
        x: TensorVariable,
        seen: ObservedData,
        start: Start,
        vary: Callable[..., TensorVariable] | None = None,
    ) -> None:
        """Add the layers to the model, and what is observed of the last pre-activations.

        ``vary`` leads from the inputs, the standard deviation and the dimensions of targets to the
        standard deviation of each row.
        """
        law, mean, [variance] = LIKELIHOODS[likelihood], self.mean(x), self.delta["output"]
        if likelihood == "normal":
            scale = noise_scale("y", variance)
            law.observe(seen.f(mean), seen, vary(x, scale, seen.dims) if vary else scale)
        elif law.any_network:
            if variance != 0:
                mean = noisy(self.last, mean, variance, ("obs", "output"))
            law.observe(seen.named(mean), seen)
        elif isinstance(variance, Prior):
            raise ValueError(
                f'noise of the output cannot be learnt with likelihood="{likelihood}", which '
                "does not identify the scale of utilities; pass a mapping with a number as its "
                '"output".'
            )
        else:
            law.observe(mean, seen, self.last, variance, start)

    @property
    def last(self) -> str:
        """Name of the last pre-activations."""
        return f"Z{len(self.weight_precisions) + 1}"

    def mean(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model up to the last linear map, and return this."""
        for number in range(1, self.stack.n_layers):
            layer, row_dims = len(self.maps) + number, self.stack.row_dims(number)
            pre, post = self.delta["pre"][layer - 1], self.delta["post"][layer - 1]
            z = noisy(f"Z{layer + 1}", self._linear_map(number, x), pre, row_dims)
            x = noisy(f"X{layer + 1}", self.function(z), post, row_dims)
        return self._linear_map(self.stack.n_layers, x)

    def _linear_map(self, number: int, x: TensorVariable) -> TensorVariable:
        layer = len(self.maps) + number
        W, b = self.parameters(layer, *self.stack.of_weights(number))
        return x @ W.T if b is None else x @ W.T + b

    def parameters(
        self, layer: int, shape: tuple[int, ...], dims: tuple[str, ...]
    ) -> tuple[TensorVariable, TensorVariable | None]:
        """Add ``W ~ N(0, 1/lambda_W)`` and ``b ~ N(0, 1/lambda_b)`` of a layer to the model."""
        sd = layers.standard_deviation(1 / self.weight_precisions[layer - 1])
        W = pm.Normal(f"W{layer}", 0.0, sd, shape=shape, dims=dims)
        if not self.has_bias:
            return W, None
        sd = layers.standard_deviation(1 / self.bias_precisions[layer - 1])
        return W, pm.Normal(f"b{layer}", 0.0, sd, shape=shape[:1], dims=dims[:1])

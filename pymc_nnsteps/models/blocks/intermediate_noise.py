"""Layers with Gaussian noise on every pre- and post-activation.

The equations are in :mod:`~pymc_nnsteps.models.intermediate_noise`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pymc as pm
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation, activation_function
from pymc_nnsteps.arguments import require_bool
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Stack
from pymc_nnsteps.models.parts.convolutions import Convolution
from pymc_nnsteps.models.parts.layers import (
    DEFAULT_NOISE,
    Noise,
    OneNoise,
    noise_scale,
    noisy,
    variances,
)
from pymc_nnsteps.models.parts.likelihoods import LIKELIHOODS, ObservedData, Start
from pymc_nnsteps.models.parts.scaffold import NetworkBlock
from pymc_nnsteps.models.priors import Prior


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


class NoisyLayers:
    """A network with the arguments of :func:`intermediate_noise`.

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

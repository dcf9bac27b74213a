"""Layers with Gaussian noise on every pre- and post-activation.

The equations are in :mod:`~pymc_nnsteps.models.intermediate_noise`.
"""

from collections.abc import Sequence
from typing import Any, get_args

from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import Activation, activation_function
from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.graphs.initial_values import start_of
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.block import block
from pymc_nnsteps.models.parts.context import Stack
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.noise import (
    DEFAULT_NOISE,
    Noise,
    OneNoise,
    noisy,
    variances,
)


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
    hidden : sequence of int
        Widths of the hidden layers.
    activation : str or PiecewiseLinear
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    noise : float, "learnt", Prior or dict
        Variance of all hidden layers' pre- and post-activations, or
        ``{"pre": ..., "post": ..., "output": ...}``, as for
        :func:`~pymc_nnsteps.intermediate_noise_mlp`; 1e-2 if neither ``noise`` nor ``sigma`` is
        given. With an ``"output"`` above zero the output is itself a normal variable about the
        last linear map, so that the weights have conditionals under any likelihood.
    sigma : float, "learnt", Prior or dict
        Standard deviations in place of variances.
    weight_precision, bias_precision, bias
        As for :func:`~pymc_nnsteps.intermediate_noise_mlp`.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` called ``name``, of variables ``"f::W1"``, ``"f::b1"``,
        ``"f::Z2"``, ``"f::X2"``, ``"f::W2"``, ... with dimensions ``"f::input"`` (or that of
        ``x``), ``"f::hidden1"``, ..., ``"f::output"``.

    Raises
    ------
    ValueError
        If an argument is unusable, or clashes with the names of the model. Nothing has been added
        then.

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
    within = block(x, hidden, outputs, name, dims)
    precisions = weight_precision, bias_precision, bias
    return within.add(NoisyLayers(within.stack, activation, noise, sigma, *precisions, start))


class NoisyLayers:
    """A network with the arguments of :func:`intermediate_noise`.

    ``default`` is the noise where none is given; ``observed`` means that one number for all noise
    is that of the last pre-activations too, ``needed`` that this must be positive then.
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
        start: Start,
        default: OneNoise = DEFAULT_NOISE,
        *,
        observed: bool = False,
        needed: bool = True,
    ) -> None:
        require_choice("start", start, get_args(Start))
        self.stack = stack
        fan_in = stack.units[:-1]
        kinds = dict.fromkeys(("pre", "post"), (stack.n_layers - 1, "hidden layer"))
        self.function = activation_function(activation)
        self.delta = variances(
            noise, sigma, kinds, observed=observed, needed=needed, default=default
        )
        self.weight_precisions = layers.precisions("weight_precision", weight_precision, fan_in)
        self.bias_precisions = layers.bias_precisions(bias, bias_precision, fan_in)
        self.initval = start_of(start)

    def __call__(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model, and return the last pre-activations."""
        mean, last, [variance] = self.mean(x), self.stack.n_layers, self.delta["output"]
        if variance == 0:
            return mean
        return noisy(f"Z{last + 1}", mean, variance, self.stack.row_dims(last), self.initval)

    def mean(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model up to the last linear map, and return this."""
        for layer in range(1, self.stack.n_layers):
            mean, row_dims = self._linear_map(layer, x), self.stack.row_dims(layer)
            pre, post = self.delta["pre"][layer - 1], self.delta["post"][layer - 1]
            z = noisy(f"Z{layer + 1}", mean, pre, row_dims, self.initval)
            x = noisy(f"X{layer + 1}", self.function(z), post, row_dims, self.initval)
        return self._linear_map(self.stack.n_layers, x)

    def _linear_map(self, layer: int, x: TensorVariable) -> TensorVariable:
        return layers.dense(
            layer,
            x,
            shape=self.stack.weight_shape(layer),
            dims=self.stack.weight_dims(layer),
            weight_precision=self.weight_precisions[layer - 1],
            bias_precision=self.bias_precisions[layer - 1],
            initval=self.initval,
        )

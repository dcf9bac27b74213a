"""Layers in NTK scaling, with standard normal weights.

The equations are in :mod:`~pymc_nnsteps.models.wide`.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import (
    ACTIVATIONS,
    SMOOTH_ACTIVATIONS,
    AnyActivation,
    activation_function,
)
from pymc_nnsteps.arguments import finite_number, positive_number
from pymc_nnsteps.models.parts.context import Stack
from pymc_nnsteps.models.parts.layers import standard_deviation
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import NetworkBlock


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


class WideLayers:
    """A network with the arguments of :func:`wide`."""

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

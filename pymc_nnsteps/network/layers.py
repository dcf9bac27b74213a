r"""Layers of a network: the law of one given those below, and dense ones read as a whole.

With the layers below in the parameters, a latent layer is one of

.. math::

    z \sim N(m, s^2), \qquad \gamma \sim \text{Bernoulli}(p), \qquad
    x \sim \sum_k w_k N(m_k, s_k^2),

and thus a function of noise that is independent of all else: of a standard normal variable, of a
uniform one, or of both. Pre- and post-activations and utilities are of the first kind, gates of the
second, activations whose gates are summed out of the third.

A dense network is written in :math:`z = x W^T + b`, gates, and activations with noise. It is read
from the observed variable back to the inputs.
"""

from dataclasses import dataclass
from typing import ClassVar

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.mixture import MixtureRV
from pytensor.scalar import basic as scalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import BernoulliRV, NormalRV
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.known import describe, has_law, law_as_stated
from pymc_nnsteps.graphs.search import operands, parameters, unwrapped
from pymc_nnsteps.network.activations import gated, temperature_of


@dataclass(frozen=True)
class Normal:
    """Normal layer, of mean and standard deviation ``sd``."""

    mean: TensorVariable
    sd: TensorVariable
    noise: ClassVar = ("normal",)

    def given(self, normal: TensorVariable) -> TensorVariable:
        """The layer as a function of standard normal noise."""
        return self.mean + self.sd * normal


@dataclass(frozen=True)
class Gates:
    """Gates that are open with probability ``mean``."""

    mean: TensorVariable
    noise: ClassVar = ("uniform",)

    def given(self, uniform: TensorVariable) -> TensorVariable:
        """The gates as a function of noise that is uniform between 0 and 1."""
        return pt.lt(uniform, self.mean)


@dataclass(frozen=True)
class Mixture:
    """Mixture of normals, in its weights, means and standard deviations along the last axis."""

    weights: TensorVariable
    means: TensorVariable
    sds: TensorVariable
    noise: ClassVar = ("normal", "uniform")

    @property
    def mean(self) -> TensorVariable:
        """Mean of the layer."""
        return (self.weights * self.means).sum(-1)

    def given(self, normal: TensorVariable, uniform: TensorVariable) -> TensorVariable:
        """The layer as a function of noise: the uniform one chooses the component."""
        above = pt.gt(uniform[..., None], self.weights.cumsum(-1)[..., :-1])
        number = above.sum(-1, keepdims=True)
        n_components = self.weights.type.shape[-1] or self.weights.shape[-1]
        chosen = pt.eq(number, pt.arange(n_components))
        mean, sd = ((chosen * each).sum(-1) for each in (self.means, self.sds))
        return mean + sd * normal


Layer = Normal | Gates | Mixture


def layer_of(model: pm.Model, rv: TensorVariable) -> Layer:
    """Read a random variable as a layer."""
    if has_law(model, rv, NormalRV):
        return Normal(*parameters(rv))
    if has_law(model, rv, BernoulliRV):
        return Gates(*parameters(rv))
    if has_law(model, rv, MixtureRV) and len(rv.owner.inputs) == 3:
        _, weights, component = rv.owner.inputs
        if has_law(model, component, NormalRV):
            return Mixture(weights, *parameters(component))
    raise NotConjugate(
        f"{describe(rv)} depends on the inputs and is {law_as_stated(model, rv)}; a layer must be "
        "Normal, Bernoulli or a mixture of normals of one kind"
    )


@dataclass(frozen=True)
class DenseLayer:
    """A layer ``a ~ N(gamma * z, sd^2)`` with ``z = x @ W.T + b``; without gates, the last one."""

    inputs: TensorVariable  # shape (n_obs, fan_in): ``x``: activations of the layer below, or data
    weights: TensorVariable  # shape (units, fan_in)
    bias: TensorVariable  # shape (units,)
    gates: TensorVariable | None  # shape (n_obs, units): ``gamma``
    # ``T``, where gates have probability ``sigmoid(z / T)``; None: ``sigmoid(z)``.
    temperature: TensorVariable | None
    post_activation: TensorVariable  # shape (n_obs, units): ``a``, or the observed variable
    sd: TensorVariable  # standard deviation of the noise


def dense_layers(model: pm.Model, y: TensorVariable) -> tuple[DenseLayer, ...]:
    """Read the layers from the inputs to the observed variable, normal about the last one."""
    z, sd = normal_of(model, y, "the observed variable")
    if y.ndim == 1:
        z = _only_column(y, z)
    a, gamma, temperature = y, None, None
    layers: list[DenseLayer] = []
    while True:
        x, W, b = _linear_map(model, z)
        layers.append(DenseLayer(x, W, b, gamma, temperature, a, sd))
        if x not in model.free_RVs:
            return tuple(reversed(layers))
        a = x
        mean, sd = normal_of(model, a, "an activation")
        gamma, z = gated(model, a, mean)
        temperature = temperature_of(gamma, z)


def normal_of(
    model: pm.Model, rv: TensorVariable, role: str
) -> tuple[TensorVariable, TensorVariable]:
    """Mean and standard deviation of a normal variable."""
    layer = known_or_none(layer_of, model, rv)
    if not isinstance(layer, Normal):
        raise NotConjugate(f"{describe(rv)}, {role}, is {law_as_stated(model, rv)}, not Normal")
    return unwrapped(layer.mean), unwrapped(layer.sd)


def _linear_map(
    model: pm.Model, z: TensorVariable
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    """``x``, ``W`` and ``b`` of ``x @ W.T + b``."""
    summands = operands(z, scalar.Add) or []
    if len(summands) == 2:
        for product, bias in (summands, summands[::-1]):
            pair, b = product_of(product), _behind_axes(bias)
            if pair is not None and b in model.free_RVs and b.ndim == 1:
                x, W = pair
                if W in model.free_RVs and None not in (*W.type.shape, *b.type.shape):
                    return x, W, b
    raise NotConjugate(
        f"{describe(z)} is not recognised as x @ W.T + b with free variables W and b of known shape"
    )


def _behind_axes(expression: TensorVariable) -> TensorVariable:
    """Expression without the leading axes that it is repeated along."""
    node = expression.owner
    if node is not None and isinstance(node.op, DimShuffle):
        order = [axis for axis in node.op.new_order if axis != "x"]
        trailing = node.op.new_order[len(node.op.new_order) - len(order) :]
        if list(trailing) == list(range(node.inputs[0].ndim)):
            return unwrapped(node.inputs[0])
    return expression


def product_of(expression: TensorVariable) -> tuple[TensorVariable, TensorVariable] | None:
    """``x`` and ``W`` of ``x @ W.T``; None of anything else."""
    node = expression.owner
    if node is None:
        return None
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if not isinstance(op, Dot) or any(operand.ndim != 2 for operand in node.inputs):
        return None
    x, transposed = map(unwrapped, node.inputs)
    turn = transposed.owner
    if turn is None or not isinstance(turn.op, DimShuffle) or tuple(turn.op.new_order) != (1, 0):
        return None
    return x, unwrapped(turn.inputs[0])


def _only_column(y: TensorVariable, mean: TensorVariable) -> TensorVariable:
    """``z`` of ``z[:, 0]``, of one column."""
    node = mean.owner
    if node is not None and isinstance(node.op, Subtensor):
        indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        column = indices[1] if len(indices) == 2 else None
        value = getattr(column, "data", column)
        if indices[0] == slice(None) and value == 0 and node.inputs[0].type.shape[1] == 1:
            return unwrapped(node.inputs[0])
    raise NotConjugate(f"the mean of {describe(y)} is not recognised as z[:, 0] of one output")

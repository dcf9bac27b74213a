r"""Dense layers one after another: :math:`z = x W^T + b`, gates, and activations with noise.

Where the graph of each layer is written in these operations, a network is read as a whole, from
the observed variable back to the inputs.
"""

from dataclasses import dataclass

import pymc as pm
from pytensor.scalar import basic as scalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.names import describe, law_as_stated
from pymc_nnsteps.graphs.search import operands, unwrapped
from pymc_nnsteps.network.activations import gated, temperature_of
from pymc_nnsteps.network.layers import Normal, layer_of


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
    """Read the layers between the inputs and the observed variable, from the inputs on.

    It is normal about an affine function of the last hidden layer.
    """
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
    try:
        layer = layer_of(model, rv)
    except NotConjugate:
        layer = None
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
        f"{describe(z)} is not read as x @ W.T + b with free variables W and b of known shape"
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
    raise NotConjugate(f"the mean of {describe(y)} is not read as z[:, 0] of one output")

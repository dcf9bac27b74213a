"""Points near the data at which chains of a gated network begin.

A chain that starts with zero weights has to find out first where its units are to bend. Here
every hidden unit bends at a random place among the values that it sees, and the outputs are
fitted to the targets. All values are expressions of the data containers and of random variables
of their own, so that each chain has another start, also after ``pm.set_data``.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import config
from pytensor.raise_op import Assert
from pytensor.tensor import TensorVariable

from pymc_nnsteps.models.parts.layers import floating, standard_deviation
from pymc_nnsteps.variational.draws import LayerDraws

__all__ = ["data_start", "variational_start"]

MARGIN = 0.05
"""How far beyond the range of the data a unit may bend, as a share of that range."""

PENALTY = 1e-3
"""Penalty on the squares of the output weights, per mean square of an activation and row."""

SMALL = 1e-3
"""Output weights where no row opens any unit, in standard deviations of the targets: of weights
that are all zero no scale can be drawn."""

SAME_ROWS = Assert(
    "inputs and targets differ in their numbers of rows; exchange inputs and targets together, "
    "by one pm.set_data."
)


def data_start(
    inputs: TensorVariable, targets: TensorVariable, units: Sequence[int]
) -> dict[str, TensorVariable]:
    """Initial values of a gated network's weights, biases, gates and activations, by their names.

    In hidden layer l, ``W ~ Laplace(0, sqrt(2/D_{l-1}))`` and ``b = -W s`` with a random point s
    for each unit, uniform within (and 5 % beyond) the range of each of the layer's inputs; gates
    are open where ``z > 0``, and activations are ``max(z, 0)``. The output layer is the ridge
    regression of the targets on the last activations. Inputs have the shape (n_obs, units[0]). To
    evaluate the values while inputs and targets differ in their rows is an ``AssertionError``.

    References
    ----------
    Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*,
    arXiv 2411.11132, Appendix D.1.
    """
    values: dict[str, TensorVariable] = {}
    x = inputs
    for layer, (fan_in, fan_out) in enumerate(pairwise(units[:-1]), 1):
        W, b = _bends(x, (fan_out, fan_in))
        z = x @ W.T + b
        x = pt.maximum(z, 0)
        values |= {f"W{layer}": W, f"b{layer}": b, f"gamma{layer}": pt.gt(z, 0), f"a{layer}": x}
    y: Any = SAME_ROWS(targets, pt.eq(inputs.shape[0], targets.shape[0]))
    W, b = _ridge(x, y.reshape((-1, units[-1])))
    return values | {f"W{len(units) - 1}": W, f"b{len(units) - 1}": b}


def variational_start(
    inputs: TensorVariable, layers: Sequence[LayerDraws]
) -> dict[str, TensorVariable]:
    """Initial values of all variables: one of several draws of the layers, another for each chain.

    Gates are open where ``z > 0``, and activations are ``max(z, 0)``, also after ``pm.set_data``.
    """
    draw = pm.DiscreteUniform.dist(0, len(layers[0].W) - 1)
    values: dict[str, TensorVariable] = {}
    x = inputs
    for number, layer in enumerate(layers, 1):
        for role in ("tau", "psi", "W", "b", "eta_sq"):
            drawn = getattr(layer, role)
            if drawn is not None:
                values[f"{role}{number}"] = pt.constant(drawn.astype(config.floatX))[draw]
        if number < len(layers):
            z = x @ values[f"W{number}"].T + values[f"b{number}"]
            x = pt.maximum(z, 0)
            values |= {f"gamma{number}": pt.gt(z, 0), f"a{number}": x}
    return values


def _bends(x: TensorVariable, shape: tuple[int, int]) -> tuple[TensorVariable, TensorVariable]:
    """Weights of units and biases for which each ``z`` is zero at a random point among ``x``."""
    W = pm.Laplace.dist(0.0, standard_deviation(2 / shape[1]), shape=shape)
    place = pm.Uniform.dist(floating(-MARGIN), floating(1 + MARGIN), shape=shape)
    low, high = x.min(axis=0), x.max(axis=0)
    return W, -(W * (low + place * (high - low))).sum(axis=1)


def _ridge(x: TensorVariable, y: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Weights and biases of the regression of ``y`` on ``x``, for columns of any rank.

    The squares in the penalty are about zero, not about the mean, so that columns that are
    constant but for rounding get no weight. If all are, weights are :data:`SMALL`.
    """
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    penalty = floating(PENALTY) * pt.sqr(x).sum(axis=0).mean() + np.finfo(config.floatX).eps
    gram = centred.T @ centred + penalty * pt.eye(x.shape[1], dtype=config.floatX)
    W = pt.linalg.solve(gram, centred.T @ (y - y_mean), assume_a="pos").T
    small = floating(SMALL) * (y.std(axis=0)[:, None] + floating(SMALL))
    W = pt.switch(pt.eq(W, 0).all(), small, W)
    return W, y_mean - W @ x_mean

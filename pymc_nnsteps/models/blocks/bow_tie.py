"""Layers with stochastic gates, whose weights are shrunk to zero, and where chains begin.

The equations are in :mod:`~pymc_nnsteps.models.bow_tie`. Starting points are expressions of the
data containers and of random variables of their own, so that each chain has another one, also after
``pm.set_data``.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import config
from pytensor.raise_op import Assert
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import positive_number, require_bool
from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Stack
from pymc_nnsteps.models.parts.layers import floating, standard_deviation
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import NetworkBlock
from pymc_nnsteps.models.parts.shrinkage import AnyShrinkage, PerLayer, weight_prior

InverseGammaPrior = tuple[NDArray, NDArray]
"""Shape and scale."""


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


class BowTieLayers:
    """A network with the arguments of :func:`bow_tie`, up to its last linear map.

    ``weight_scale`` is the variance that the weights of a single layer have by default.
    """

    def __init__(
        self,
        stack: Stack,
        temperature: float,
        shrinkage: AnyShrinkage,
        weight_scale: float,
        bias_var: PerLayer,
        hidden_alpha: float,
        hidden_beta: float,
        marginalize_gates: bool,
    ) -> None:
        require_bool("marginalize_gates", marginalize_gates)
        self.stack, n_hidden = stack, stack.n_layers - 1
        self.temperature = positive_number("temperature", temperature)
        self.weights = weight_prior(shrinkage, weight_scale / max(n_hidden, 1), stack.units[:-1])
        self.bias_var = layers.positive_per_layer("bias_var", bias_var, stack.n_layers)
        self.hidden_noise = inverse_gamma("hidden", hidden_alpha, hidden_beta)
        self.marginalize_gates = marginalize_gates

    def __call__(self, x: TensorVariable) -> TensorVariable:
        """Add the layers to the model, and return the last linear map."""
        for layer in range(1, self.stack.n_layers):
            x = self._activations(layer, self._linear_map(layer, x))
        return self._linear_map(self.stack.n_layers, x)

    def _linear_map(self, layer: int, x: TensorVariable) -> TensorVariable:
        shape, dims = self.stack.of_weights(layer)
        W = pm.Normal(f"W{layer}", 0.0, self.weights(layer, shape, dims), shape=shape, dims=dims)
        s_0 = standard_deviation(self.bias_var[layer - 1])
        return x @ W.T + pm.Normal(f"b{layer}", 0.0, s_0, shape=shape[:1], dims=dims[:1])

    def _activations(self, layer: int, z: TensorVariable) -> TensorVariable:
        name, dims = f"a{layer}", self.stack.row_dims(layer)
        logit = z / floating(self.temperature)
        if self.marginalize_gates:
            scale = self.noise_scale(layer, self.hidden_noise)
            return _mixture(name, z, logit, scale, dims=dims)
        # The number of units is part of the type: of one unit nothing is broadcast.
        shape = (z.shape[0], self.stack.units[layer])
        gamma = pm.Bernoulli(f"gamma{layer}", logit_p=logit, shape=shape, dims=dims)
        scale = self.noise_scale(layer, self.hidden_noise)
        return pm.Normal(name, gamma * z, scale, shape=shape, dims=dims)

    def noise_scale(self, layer: int, prior: InverseGammaPrior) -> TensorVariable:
        """Add the variances of a layer's units to the model, and return their square roots."""
        [units, _], [dim, _] = self.stack.of_weights(layer)
        return pt.sqrt(pm.InverseGamma(f"eta_sq{layer}", *prior, shape=units, dims=dim))


def inverse_gamma(kind: str, alpha: float, beta: float) -> InverseGammaPrior:
    """Shape and scale of the prior of a variance."""
    return (
        floating(positive_number(f"{kind}_alpha", alpha)),
        floating(positive_number(f"{kind}_beta", beta)),
    )


def _mixture(
    name: str, z: TensorVariable, logit: TensorVariable, scale: TensorVariable, **options: Any
) -> TensorVariable:
    """Activations about ``z`` where a gate is open and about zero where not, the gate unknown."""
    weights = pt.sigmoid(pt.stack([logit, -logit], axis=-1))
    means = pt.stack([z, pt.zeros_like(z)], axis=-1)
    return pm.NormalMixture(name, weights, means, scale[:, None], **options)


MARGIN = 0.05
"""How far beyond the range of the data a unit may bend, as a share of that range."""

PENALTY = 1e-3
"""Penalty on the squares of the output weights, per mean square of an activation and row."""

SMALL = 1e-3
"""Output weights where no row opens any unit, in standard deviations of the targets: of weights
that are all zero no scale can be drawn."""

SAME_ROWS = Assert(
    "inputs and targets differ in their numbers of rows; replace inputs and targets together, by "
    "one pm.set_data."
)


def begin_at_data(inputs: TensorVariable, targets: TensorVariable, units: Sequence[int]) -> None:
    """Give initial values to weights, biases, gates and activations of the model of the context.

    A chain that begins with zero weights has to find out first where its units are to bend. In
    hidden layer l, ``W ~ Laplace(0, sqrt(2/D_{l-1}))`` and ``b = -W s`` with a random point s
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
    values |= {f"W{len(units) - 1}": W, f"b{len(units) - 1}": b}
    model = pm.modelcontext(None)
    own = {model.name_for(name): value for name, value in values.items()}
    for rv in model.free_RVs:
        if rv.name in own:
            begin_at(rv, own[rv.name])


def _bends(x: TensorVariable, shape: tuple[int, int]) -> tuple[TensorVariable, TensorVariable]:
    """Weights of units and biases for which each ``z`` is zero at a random point among ``x``."""
    W = pm.Laplace.dist(0.0, standard_deviation(2 / shape[1]), shape=shape)
    place = pm.Uniform.dist(floating(-MARGIN), floating(1 + MARGIN), shape=shape)
    low, high = x.min(axis=0), x.max(axis=0)
    return W, -(W * (low + place * (high - low))).sum(axis=1)


def _ridge(x: TensorVariable, y: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Weights and biases of the regression of ``y`` on ``x``, for columns of any rank."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    penalty = floating(PENALTY) * pt.sqr(x).sum(axis=0).mean() + np.finfo(config.floatX).eps
    gram = centred.T @ centred + penalty * pt.eye(x.shape[1], dtype=config.floatX)
    W = pt.linalg.solve(gram, centred.T @ (y - y_mean), assume_a="pos").T
    small = floating(SMALL) * (y.std(axis=0)[:, None] + floating(SMALL))
    W = pt.switch(pt.eq(W, 0).all(), small, W)
    return W, y_mean - W @ x_mean

r"""The bow-tie network: stochastic gates in place of an activation, and shrunken weights.

With widths ``D_0`` (inputs), ..., ``D_{L+1}`` (outputs) and ``a_0`` the inputs, for hidden layers
``l = 1, ..., L``::

    z_l = a_{l-1} W_l^T + b_l
    gamma_l ~ Bernoulli(sigmoid(z_l / T))            gates
    a_l ~ N(gamma_l z_l, eta_l^2)                    activations
    y ~ N(z_{L+1}, eta_{L+1}^2)

    W_l,dd' ~ N(0, tau_l psi_l,dd'),   b_l,d ~ N(0, s_0^2),   eta_l,d^2 ~ InvGamma(alpha, beta)

The factors ``tau`` and ``psi`` shrink weights of layers and single weights
(see :mod:`~pymc_nnsteps.models.parts.shrinkage`). As the temperature ``T`` and the noise of the
hidden layers tend to zero, so that a gate is open where ``z > 0``, the network tends to one of
ReLU. Because every conditional distribution is known (the gates' by Polya-Gamma augmentation),
the posterior can be sampled exactly, layer by layer.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.raise_op import Assert
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import is_word, positive_number, require_bool
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.hierarchical import varying_noise
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Stack, recorded
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.layers import floating, known_sigma, standard_deviation
from pymc_nnsteps.models.parts.likelihoods import AnyNetwork, ObservedData
from pymc_nnsteps.models.parts.scaffold import Scaffold
from pymc_nnsteps.models.parts.shrinkage import AnyShrinkage, PerLayer, weight_prior

BowTieStart = Literal["data", "prior"]

USUAL_TARGETS = (1e-3, 1e4)
"""Scales of targets that the limits of the default hyperparameters leave room for."""


@recorded
def bow_tie(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame,
    *,
    hidden: Sequence[int] = (20,),
    temperature: float = 0.1,
    shrinkage: AnyShrinkage = "student_t",
    bias_var: PerLayer | None = None,
    hidden_alpha: float = 2.0,
    hidden_beta: float = 0.01,
    noise_alpha: float = 2.0,
    noise_beta: float | None = None,
    sigma: float | Literal["network"] | None = None,
    noise_network: Mapping[str, Any] | None = None,
    marginalize_gates: bool = False,
    likelihood: Literal["normal"] | AnyNetwork = "normal",
    exposure: ArrayLike | pd.Series | None = None,
    censored: ArrayLike | pd.Series | None = None,
    start: BowTieStart = "data",
    standardize: bool = False,
    missing: Missing = None,
) -> pm.Model:
    r"""Build a bow-tie network with shrinkage priors as a plain PyMC model.

    Inside ``with pm.Model(...)`` the network is added to that model, and uses its ``coords`` for
    dimensions of the same name. Otherwise a new model is created.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs, preferably standardised, as for :func:`~pymc_nnsteps.hierarchical_mlp`.
    y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)
        Targets: real numbers of one or several outputs in their own units, NaN where they are
        missing; or of the kind that ``likelihood`` describes.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear regression with shrinkage.
    temperature : float
        ``T``: width of the range of ``z`` about zero in which a gate is undecided.
    shrinkage : {"student_t", "laplace", "normal_gamma", "nig", "gaussian"} or Shrinkage
        Prior of the weights: the family of the distributions of ``tau`` and ``psi``, or a
        :class:`~pymc_nnsteps.models.Shrinkage`, which also sets their hyperparameters.
    bias_var : float or sequence of float (one per layer), optional
        ``s_0^2``, variance of the biases.
    hidden_alpha, hidden_beta : float
        Shape and scale of the inverse gamma prior of ``eta^2`` in the hidden layers.
    noise_alpha, noise_beta : float
        The same for ``eta^2`` of the outputs, in squared units of ``y``.
    sigma : float or "network", optional
        ``eta`` of the outputs, a standard deviation in the units of ``y``, if it is known;
        variational fits require that it is not. With ``"network"`` it varies with the inputs: the
        level ``eta_{L+1}`` is multiplied by the exponential of a separate network.
    noise_network : dict, optional
        ``hidden``, ``activation`` and ``priors`` of the network for the noise, as for
        :func:`~pymc_nnsteps.models.blocks.hierarchical`. By default it has four tanh units, and
        biases of hidden units only. The precision of ``"ho"`` is learnt, and determines how much
        the noise varies.
    marginalize_gates : bool
        Whether to sum out the gates: activations are then mixtures of two normals, centred at ``z``
        and at zero, and all free variables are continuous.
    likelihood : str
        ``"normal"``, or any of :func:`~pymc_nnsteps.hierarchical_mlp` except ``"student_t"``. With
        the latter the defaults and ``start="data"`` use rough values of f in place of ``y``, such
        as log(y + 1/2) minus the logarithm of the exposure for counts.
    exposure, censored, standardize, missing
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.
    start : {"data", "prior"}
        Initial values of the chains. ``"data"``: every hidden unit bends at a random place within
        the range of the data, and the output layer is fitted to the targets by ridge regression;
        the hidden units differ between chains. ``"prior"``: a separate draw from the prior for each
        chain. To start from variational fits (:func:`~pymc_nnsteps.fit`), pass their ``initvals``
        to ``pm.sample``.

    Returns
    -------
    pm.Model
        With free variables ``tau{l}``, ``psi{l}``, ``W{l}``, ``b{l}``, ``gamma{l}``, ``eta_sq{l}``,
        ``a{l}`` of each hidden layer and ``tau{L+1}``, ``psi{L+1}``, ``W{L+1}``, ``b{L+1}``,
        ``eta_sq{L+1}`` of the output layer (``W{l}`` and ``psi{l}`` of shape (fan_out, fan_in),
        ``b{l}`` and ``eta_sq{l}`` (fan_out,), ``gamma{l}`` and ``a{l}`` (n_obs, units)), observed
        ``y``, data containers ``inputs`` and ``targets``, and dimensions ``"obs"``, ``"feature"``,
        ``"hidden1"``, ..., ``"output"``. Varying noise adds the variables ``log_noise::W_ih1``,
        ..., and ``sigma``, of the shape of ``y``.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.hierarchical_mlp`.

    Warns
    -----
    UserWarning
        As for :func:`~pymc_nnsteps.hierarchical_mlp`, but of ``y`` only beyond the scales that the
        defaults allow for.

    Notes
    -----
    **Defaults** come from the least-squares regression of ``y`` on ``X`` and an intercept (the
    solution of smallest norm, if there are several). With ``beta`` its largest coefficient in
    absolute value and ``delta = min(sqrt(abs(beta)), 10)``, but at least 0.001,

    - ``tau`` has the prior mean ``delta**2 / L`` (``delta**2`` without hidden layers) and ``psi``
      of layer l has ``1 / D_{l-1}``. These are the defaults of ``delta**2`` for ``"student_t"``
      (whose mean is this if ``nu`` is -1.5). For ``"laplace"`` (where ``nu`` is 1) and
      ``"normal_gamma"``, ``lambda**2`` is ``2 * nu / mean``. ``"nig"`` has ``mean`` as ``delta**2``
      and ``1 / mean`` as ``lambda**2``. ``"gaussian"`` has the product of the means as
      ``weight_var``;
    - ``bias_var`` is the largest intercept in absolute value, but at least 1;
    - ``noise_beta`` is a quarter of the variance of the residuals, but at most 30, and then at
      least a thousandth of the variance of ``y`` (both averaged over the outputs) and 1e-6.

    Setting one hyperparameter does not change the defaults of the others, except that ``lambda``
    follows ``nu``.

    **Sampling.** The scale of a row of ``W{l}`` can be traded for that of a column of ``W{l+1}``.
    With a small temperature and little noise in the hidden layers, gates, activations and weights
    nearly determine each other, so that chains may mix slowly even with interwoven rows
    (:class:`~pymc_nnsteps.Gibbs`). Run several chains, and judge function values by
    :func:`~pymc_nnsteps.diagnose`. Gates and activations have one entry per observation and unit.
    Leave them out of the trace and predict as with :func:`~pymc_nnsteps.intermediate_noise_mlp`.

    With ``marginalize_gates`` NUTS draws all variables. By default it jitters the start; pass
    ``init="adapt_diag"`` to prevent this.

    References
    ----------
    Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*,
    arXiv 2411.11132, Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.bow_tie(X, np.abs(X[:, 0]), hidden=(4,))
    >>> [variable.name for variable in model.free_RVs[:7]]
    ['tau1', 'psi1', 'W1', 'b1', 'gamma1', 'eta_sq1', 'a1']
    >>> [variable.name for variable in model.free_RVs[7:]]
    ['tau2', 'psi2', 'W2', 'b2', 'eta_sq2']
    >>> smooth = nns.bow_tie(X, X[:, 0], shrinkage="gaussian", marginalize_gates=True)
    >>> [variable.name for variable in smooth.free_RVs]
    ['W1', 'b1', 'eta_sq1', 'a1', 'W2', 'b2', 'eta_sq2']
    """
    of_noise = {"sigma": sigma, "noise_beta": noise_beta, "noise_network": noise_network}
    given, starts = {"exposure": exposure, "censored": censored, **of_noise}, get_args(BowTieStart)
    scaffolding = Scaffold(
        X, y, hidden, likelihood, ("normal",), start, standardize, missing, given, starts=starts
    )
    response, stack = scaffolding.response, scaffolding.stack
    targets: Any = response.real
    if targets is None:
        with pm.Model(model=None):  # on the scale of f, at the targets as they are now
            targets = response.law.rough(response.add()).eval(mode=ONCE)
    weight_scale, usual_bias_var, usual_beta = _least_squares(scaffolding.inputs.values, targets)
    bias_var = usual_bias_var if bias_var is None else bias_var
    gates = hidden_alpha, hidden_beta, marginalize_gates
    network = BowTieLayers(stack, temperature, shrinkage, weight_scale, bias_var, *gates)
    prior = inverse_gamma("noise", noise_alpha, usual_beta if noise_beta is None else noise_beta)
    sd = known_sigma(sigma)
    if sd is not None and noise_beta is not None:
        raise ValueError(
            "sigma fixes the noise for which noise_beta sets a prior; pass one of them."
        )
    varying = varying_noise(is_word(sigma, "network"), stack, noise_network, start)

    def build(x: TensorVariable, seen: ObservedData) -> None:
        z = network(x)
        if likelihood == "normal":
            scale = network.noise_scale(stack.n_layers, prior) if sd is None else floating(sd)
            scale = scale if varying is None else varying.vary(x, scale, seen.dims)
            response.law.observe(seen.f(z), seen, scale)
        else:
            response.law.observe(seen.named(z), seen)
        if start == "data":
            has_gaps = isinstance(seen.y, np.ma.MaskedArray)
            known = pt.as_tensor(targets) if has_gaps else response.law.rough(seen)
            begin_at_data(x, known, stack.units)

    dims = {} if varying is None else varying.dims
    return scaffolding.add(build, dims, usual_targets=USUAL_TARGETS)


def _least_squares(X: NDArray, y: NDArray) -> tuple[float, float, float]:
    """Variances of weights of a single layer and of biases, and the scale of the noise's prior."""
    columns = np.column_stack([np.ones(len(X)), X]).astype("float64")
    targets = y.reshape(len(y), -1).astype("float64")
    coefficients, *_ = np.linalg.lstsq(columns, targets)
    intercept, beta = coefficients[0], coefficients[1:]
    residual_var = (targets - columns @ coefficients).var(axis=0).mean()
    return (
        float(np.clip(np.abs(beta).max(), 1e-6, 100.0)),
        float(max(np.abs(intercept).max(), 1.0)),
        float(max(min(residual_var / 4, 30.0), 1e-3 * targets.var(axis=0).mean(), 1e-6)),
    )


InverseGammaPrior = tuple[NDArray, NDArray]
"""Shape and scale."""


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

    They are expressions of the data containers and of random variables of their own, so that each
    chain has another one, also after ``pm.set_data``. A chain that begins with zero weights has to
    find out first where its units are to bend. In hidden layer l, ``W ~ Laplace(0,
    sqrt(2/D_{l-1}))`` and ``b = -W s`` with a random point s for each unit, uniform within (and 5 %
    beyond) the range of each of the layer's inputs; gates are open where ``z > 0``, and activations
    are ``max(z, 0)``. The output layer is the ridge regression of the targets on the last
    activations. Inputs have the shape (n_obs, units[0]). To evaluate the values while inputs and
    targets differ in their rows is an ``AssertionError``.

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

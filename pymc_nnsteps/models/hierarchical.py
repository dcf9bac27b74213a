r"""Networks with hierarchical priors, after Neal's Flexible Bayesian Modelling software.

With inputs :math:`v^{(0)} = x`, hidden layers l = 1, ..., L and the outputs as layer L + 1, every
layer sums over those before it that are connected to it:

.. math::

    u^{(l)} = b^{(l)} + \sum_{k < l} W^{(kl)} (v^{(k)} + t^{(k)}), \qquad
    v^{(l)} = a(u^{(l)}), \qquad f = u^{(L+1)}

with weights W, biases b and offsets t, whose precisions are unknown at up to three levels
(:class:`~pymc_nnsteps.models.priors.Prior`). The hidden layers are functions of the inputs: no
noise but that of the observations. Its standard deviation is one number for each output, or with
``sigma="network"`` varies with the inputs,

.. math::

    \sigma(x) = \tau^{-1/2} \exp\Big(\sum_k W^{(ks)} (v^{(k)} + t^{(k)})\Big).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Literal, cast

import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import (
    ACTIVATIONS,
    LAYER_ACTIVATIONS,
    SMOOTH_ACTIVATIONS,
    AnyActivation,
    Normalize,
    activation_function,
)
from pymc_nnsteps.arguments import is_word
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Dim, Stack, recorded
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.groups import (
    DEFAULT_PRIORS,
    REAL,
    PriorLike,
    common_precision,
    gamma,
    groups,
    parameter,
    precision_of_units,
)
from pymc_nnsteps.models.parts.layers import floating, known_sigma
from pymc_nnsteps.models.parts.likelihoods import AnyNetwork, ObservedData, Start
from pymc_nnsteps.models.parts.scaffold import Scaffold

Likelihood = Literal["normal", "student_t"] | AnyNetwork


@recorded
def hierarchical_mlp(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame | pd.Categorical,
    *,
    hidden: Sequence[int] = (16, 16, 16),
    activation: AnyActivation | Sequence[AnyActivation] = "tanh",
    priors: Mapping[str, PriorLike] | None = None,
    connections: Mapping[str, ArrayLike] | None = None,
    likelihood: Likelihood = "normal",
    exposure: ArrayLike | pd.Series | None = None,
    censored: ArrayLike | pd.Series | None = None,
    sigma: float | Literal["network"] | None = None,
    start: Start = "support_point",
    standardize: bool = False,
    missing: Missing = None,
    embed: Mapping[str, int] | None = None,
) -> pm.Model:
    """Build a network with hierarchical priors as a plain PyMC model.

    ``nns.hierarchical_mlp(X, y)`` is a model for standardised inputs and targets. It learns the
    scales of weights, biases and noise, and the relevance of each input.

    Inside ``with pm.Model(...)`` the network is added to that model, and uses its ``coords`` for
    dimensions of the same name. Otherwise a new model is created.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs. The column names of a DataFrame are the coordinates of ``"feature"``. A column of
        text or categories becomes one indicator per level, such as ``"depot[north]"``.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets, of the kind that ``likelihood`` describes. Missing real numbers are NaN. Class
        labels have shape (n_obs,) and become the coordinates of ``"output"``, or of ``"class"`` if
        they are ordered.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str, PiecewiseLinear or callable, or a list of them, one per hidden layer
        ``"tanh"``, ``"softplus"``, ``"softplus0"``, ``"identity"``, ``"softmax"``,
        ``"normalize"`` (or :class:`~pymc_nnsteps.activations.Normalize` for groups of units),
        ``"gelu"``, ``"erf"``, ``"relu"``, ``"leaky_relu"``, ``"abs"``, ``"sign"``,
        ``"hard_tanh"``, a :class:`~pymc_nnsteps.activations.PiecewiseLinear`, or a function of a
        PyTensor matrix of shape (n_obs, units).
    priors : mapping from str to Prior, str, float or None, optional
        Priors that replace the defaults of groups of parameters: a
        :class:`~pymc_nnsteps.models.priors.Prior`, its notation (``"x0.05:0.5"``), a number (a
        fixed standard deviation), or None, which omits the group. For adjustments the number is
        their shape ``alpha``. The keys are

        ===============================  ===================================================
        ``"ih"``                         weights, inputs to first hidden layer
        ``"hh"``                         weights, each hidden layer to the next
        ``"ho"``                         weights, last hidden layer to outputs
        ``"bh"``, ``"bo"``               biases of hidden layers, of outputs
        ``"io"``, ``"ih2"``, ...         weights that skip layers, named by their source and
                                         target layers, such as ``"h1h3"`` (none by default)
        ``"ti"``, ``"th"``               offsets of inputs, of hidden layers (none by default)
        ``"ah"``, ``"ao"``               adjustments of hidden units, of outputs: a precision
                                         shared by the bias of a unit and all weights that
                                         lead into it (none by default)
        ``"noise"``                      noise of real targets; its units are the outputs
        ``"hs"``                         with ``sigma="network"``: weights, last hidden layer to
                                         the logarithm of the noise (``"is"``, ``"h1s"``, ...:
                                         from others)
        ===============================  ===================================================

        A key with the number of a layer, such as ``"h1h2"``, ``"bh2"`` or ``"ah1"``, applies to
        that layer only. The defaults are in ``pymc_nnsteps.models.parts.groups.DEFAULT_PRIORS``.
    connections : mapping from str to array_like of int, optional
        Arrays that share or omit weights, with the keys of ``priors``. An array of shape (fan_out,
        fan_in) gives the number of the weight that each connection uses, or -1 where there is no
        connection; the numbers run from 0 without gaps. For biases and offsets the shape is
        (units,). Such a group has no precisions of its source units and no adjustments, because its
        weights need not belong to one unit. ``scale`` in its prior divides the variance by the
        largest number of sources of any unit.
    likelihood : str
        Distribution of the targets given the outputs f. Where it has a ``dispersion``, this is one
        variable per output with the prior HalfNormal(1).

        - ``"normal"`` and ``"student_t"``: real numbers about f with unknown noise. The degrees of
          freedom of Student-t noise are ``alpha_weight`` of the noise's prior, 4 by default.
        - ``"bernoulli"``: 0 or 1, where 1 has the probability 1/(1 + exp(-f)).
        - ``"categorical"``: classes with the probabilities softmax(f).
        - ``"ordered"``: ordered classes, as consecutive integers or an ordered
          ``pandas.Categorical``. One output f gives P(y <= k) = 1/(1 + exp(f - c_k)). The
          ``cutpoints`` c follow from ``shares``, the class probabilities at f = 0, which have a
          uniform prior.
        - ``"poisson"`` and ``"negative_binomial"``: counts with mean m = exp(f). The variance of
          the second is m + (dispersion m)^2.
        - ``"gamma"``: positive numbers with mean m = exp(f) and standard deviation dispersion m.
        - ``"weibull"``: durations exp(f) E^dispersion, where E is standard exponential.
    exposure : array_like, shape (n_obs,), optional
        Positive numbers that multiply the mean of counts, such as years or persons. New rows need
        their own: ``nns.predict(idata, {"inputs": X_new, "exposure": exposure_new})``.
    censored : array_like of bool, shape (n_obs,), optional
        True where a duration is only known to exceed ``y``. New rows do not need it.
    sigma : float or "network", optional
        Standard deviation of real targets about the outputs, if it is known; a shorthand for the
        prior ``"noise"``. With ``"network"`` it varies with the inputs. Its level then has the
        prior ``"noise"``, and is multiplied by the exponential of a second output of the network,
        whose weights have the prior ``"hs"``. The precision ``tau_h1s`` of these weights is learnt,
        and determines how much the noise varies.
    start : {"support_point", "prior"}
        Initial values of the chains: zero parameters and moderate scales, or a separate draw from
        the prior for each chain.
    standardize : bool
        Whether the network standardises the columns of ``X``: it subtracts their means and divides
        by their standard deviations. Columns of zeros and ones are left unchanged. The data
        container, and tables passed later for predictions, are in the units of ``X``.
    missing : {None, "impute"}
        Treatment of NaN in ``X``. None raises an error. ``"impute"`` samples the missing entries
        along with the model's variables (:func:`~pymc_nnsteps.models.blocks.table`).
    embed : mapping of str to int, optional
        Columns of text or categories to embed, with the dimension of each embedding
        (:func:`~pymc_nnsteps.models.blocks.table`): ``{"depot": 2}`` adds the learnt matrix
        ``"depot::E"``, with one row per level. The network's inputs are then the coordinates of
        ``"input"``.

    Returns
    -------
    pm.Model
        With weights ``W_ih1``, ``W_h1o``, ... of shape (fan_out, fan_in), biases ``bh1``, ``bo``,
        offsets ``ti``, ``th1``; precisions ``tau_ih1`` of a group, ``tau_ih1_unit`` of its source
        units, ``tau_ah1`` of adjustments, ``tau_noise`` and ``tau_noise_unit``; the noise's
        standard deviation ``sigma`` (of the shape of ``y`` with ``sigma="network"``), the network's
        output ``f``, observed ``y``, data containers ``inputs`` and ``targets`` (and ``exposure``
        or ``censored``), and dimensions ``"obs"``, ``"feature"``, ``"hidden1"``, ..., ``"output"``.
        A group with given connections has shape (n_weights,).

    Raises
    ------
    ValueError
        If an argument is invalid, or clashes with the names or coordinates of the enclosing model.
        That model is then left unchanged.

    Warns
    -----
    UserWarning
        If columns of ``X`` or of real ``y`` are on a scale far from 1, or ``X`` or ``y`` is
        constant.

    Notes
    -----
    ``pm.sample`` draws all precisions exactly, by Gibbs steps (:class:`~pymc_nnsteps.Gibbs`). It
    moves the parameters, and the precisions with them, along Hamiltonian trajectories whose metric
    follows the precisions (:class:`~pymc_nnsteps.HMC`). If arguments for NUTS are passed, such as
    ``target_accept=``, NUTS moves the parameters instead. The units of a layer are relabelled at
    random, and the signs of tanh units flipped, so that R-hat of all variables is meaningful
    (:func:`~pymc_nnsteps.diagnose` judges function values too).

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    Sections 1-3; the connections are those of eq. 7.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.hierarchical_mlp(X, np.sin(X[:, 0]), hidden=(8,))
    >>> [variable.name for variable in model.free_RVs]
    ['tau_ih1', 'tau_ih1_unit', 'W_ih1', 'tau_bh1', 'bh1', 'tau_h1o', 'W_h1o', 'bo', 'tau_noise']
    >>> model = nns.hierarchical_mlp(
    ...     X, X[:, 0] > 0, hidden=(3,), likelihood="bernoulli",
    ...     priors={"ih": "x1:3:4", "bh": None, "io": nns.Prior(0.5), "ah": 5},
    ... )
    >>> [variable.name for variable in model.free_RVs]
    ['tau_ah1', 'tau_ih1', 'tau_ih1_unit', 'W_ih1', 'tau_h1o', 'W_h1o', 'W_io', 'bo']

    Noise that varies with the inputs:

    >>> model = nns.hierarchical_mlp(X, X[:, 0], hidden=(3,), sigma="network")
    >>> [variable.name for variable in model.free_RVs[-5:]]
    ['W_h1o', 'bo', 'tau_h1s', 'W_h1s', 'tau_noise']

    A convolution along eight inputs, with a kernel of three weights and one bias, whose six
    results are weighted alike:

    >>> position, tap = np.arange(6)[:, None], np.arange(3)
    >>> kernel = np.full((6, 8), -1)
    >>> kernel[position, position + tap] = tap
    >>> X = np.random.default_rng(0).normal(size=(30, 8))
    >>> one = np.zeros(6, dtype=int)
    >>> model = nns.hierarchical_mlp(
    ...     X, X.max(axis=1), hidden=(6,), connections={"ih": kernel, "bh": one, "ho": one[None]}
    ... )
    >>> {name: model[name].type.shape for name in ("W_ih1", "bh1", "W_h1o")}
    {'W_ih1': (3,), 'bh1': (1,), 'W_h1o': (1,)}
    """
    given = {"exposure": exposure, "censored": censored, "sigma": sigma}
    scaffolding = Scaffold(
        X, y, hidden, likelihood, REAL, start, standardize, missing, given, embed
    )
    response = scaffolding.response
    network = HierarchicalLayers(
        scaffolding.stack,
        activation,
        _with_sigma(priors, sigma),
        connections,
        likelihood,
        start,
        varying_noise=is_word(sigma, "network"),
    )

    def build(x: TensorVariable, seen: ObservedData) -> None:
        outputs = network(x)
        f = seen.named(outputs[0])
        if (noise := network.group.noise) is None:
            response.law.observe(f, seen)
            return
        begin, freedom = network.begins.get("noise"), noise.alpha_weight
        common = common_precision("noise", noise, 1, begin)
        precision = precision_of_units("noise", noise, common, begin, *seen.dims[1:])
        sd, dims = pt.reciprocal(pt.sqrt(precision)), seen.dims[1:]
        for g in outputs[1:]:
            sd, dims = sd * pt.exp(seen.f(g)), seen.dims
        sd = pm.Deterministic("sigma", sd, dims=dims[: sd.ndim])
        response.law.observe(f, seen, sd, *(() if math.isinf(freedom) else (freedom,)))

    return scaffolding.add(build, usual=USUAL)


def _with_sigma(
    priors: Mapping[str, PriorLike] | None, sigma: float | str | None
) -> Mapping[str, PriorLike] | None:
    """The priors, that of the noise a fixed standard deviation if it is known."""
    known = known_sigma(sigma)
    if known is None or not isinstance(priors or {}, Mapping):
        return priors
    if priors is not None and "noise" in priors:
        raise ValueError('sigma fixes what priors["noise"] leaves open; pass one of them.')
    return {**(priors or {}), "noise": known}


START = {"hidden": 0.5, "bias": 0.05, "output": 5.0, "noise": 0.5, "log_noise": 0.2}
"""Standard deviations that precisions with a vague prior begin at: of weights into hidden layers,
of biases and offsets, of weights of hidden layers to outputs, of the noise, and of weights to its
logarithm.

Hidden units begin nearly linear, and nearly through zero, and are free to be summed to anything. A
chain that begins with small scales everywhere may stay for long where the network is zero; one that
begins with large biases ends in a poor fit.
"""

USUAL = (0.1, 10.0)
"""Standard deviations of inputs that the default priors are made for."""


class HierarchicalLayers:
    """A network with the arguments of :func:`hierarchical_mlp`, up to its outputs.

    ``likelihood`` is that of :func:`~pymc_nnsteps.hierarchical_mlp`, or None if it is not known.
    """

    def __init__(
        self,
        stack: Stack,
        activation: AnyActivation | Sequence[AnyActivation],
        priors: Mapping[str, PriorLike] | None,
        connections: Mapping[str, ArrayLike] | None,
        likelihood: str | None,
        start: str,
        *,
        varying_noise: bool = False,
    ) -> None:
        self.stack = stack
        self.functions = _activations(activation, stack.units[1:-1])
        self.group = groups(priors, stack.units, likelihood, connections, varying_noise)
        self.begins: Mapping[str, float] = {} if start == "prior" else START

    def __call__(self, x: TensorVariable) -> list[TensorVariable]:
        """Add the parameters to the model; return outputs, and the logarithms of noise."""
        group, stack, last = self.group, self.stack, self.stack.n_layers
        units, unit_dims = (*stack.units, stack.units[-1]), (*stack.unit_dims, stack.unit_dims[-1])
        adjustments = {
            layer: gamma(f"tau_{key}", alpha, floating(1), unit_dims[layer])
            for key, alpha in group.adjustments.items()
            for layer in group.layers[key]
        }

        def parameters(key: str) -> TensorVariable:
            prior, (layer, *sources) = group.priors[key], group.layers[key]
            kind = "hidden" if sources else "bias"
            if sources and layer >= last:
                kind = "log_noise" if layer > last else "output" if sources[0] > 0 else kind
            start = self.begins.get(kind)
            common = common_precision(key, prior, group.n_sources(key, units), start)
            of_sources = (unit_dims[source] for source in sources)
            precision = precision_of_units(key, prior, common, start, *of_sources)
            if layer in adjustments and not key.startswith("t"):
                adjustment = adjustments[layer]
                precision = precision * (adjustment[:, None] if sources else adjustment)
            name, connections = f"W_{key}" if sources else key, group.connections.get(key)
            if connections is not None:
                shared = parameter(name, prior, precision, shape=connections.n_weights)
                return connections.of_each(shared)
            dims, shape = zip(*((unit_dims[i], units[i]) for i in group.layers[key]), strict=True)
            return parameter(name, prior, precision, dims=dims, shape=shape)

        def linear(layer: int) -> TensorVariable:
            ends = {key: group.layers[key] for key in group.priors if len(group.layers[key]) == 2}
            into = [(key, source) for key, (own, source) in ends.items() if own == layer]
            terms = [passed_on[source] @ parameters(key).T for key, source in into]
            if (bias := f"b{group.names[layer]}") in group.priors:
                terms.append(parameters(bias))
            return reduce(add, terms)

        def with_offset(layer: int, values: TensorVariable) -> TensorVariable:
            offset = f"t{group.names[layer]}"
            return values + parameters(offset) if offset in group.priors else values

        passed_on = [with_offset(0, x)]
        for layer, function in enumerate(self.functions, 1):
            passed_on.append(with_offset(layer, function(linear(layer))))
        return [linear(layer) for layer in range(last, len(group.names))]


def _activations(
    activation: AnyActivation | Sequence[AnyActivation], sizes: tuple[int, ...]
) -> list[Callable[[TensorVariable], TensorVariable]]:
    """One function per hidden layer."""
    named = ACTIVATIONS | SMOOTH_ACTIVATIONS | LAYER_ACTIVATIONS
    if isinstance(activation, list | tuple):
        given: list[Any] = list(activation)
    else:
        activation_function(cast("AnyActivation", activation), named, functions=True)
        given = [activation] * len(sizes)
    if len(given) != len(sizes):
        raise ValueError(
            f"activation must be one, or {len(sizes)}, one per hidden layer; got {len(given)}."
        )
    for layer, (each, size) in enumerate(zip(given, sizes, strict=True), 1):
        if isinstance(each, Normalize) and size % each.groups:
            raise ValueError(
                f"activation normalises {each.groups} groups of units, which do not divide the "
                f"{size} units of hidden layer {layer}."
            )
    return [activation_function(each, named, functions=True) for each in given]


NAME = "log_noise"
"""Name that the variables of the network start with."""


class NoiseNetwork:
    r"""Noise :math:`\sigma_k(x) = \sigma_k \exp(g_k(x))` of output k, by a network g.

    The outputs of g have no biases; how much the noise varies is learnt, as the precision of the
    weights to them. ``stack`` is that of the network of the mean; ``given`` has ``hidden``,
    ``activation`` and ``priors``.
    """

    def __init__(self, stack: Stack, given: Mapping[str, Any] | None, start: str) -> None:
        options: dict[str, Any] = {"hidden": (4,), "activation": "tanh", "priors": {}}
        if given is None:
            given = {}
        if not isinstance(given, Mapping) or not set(given) <= set(options):
            raise ValueError(
                "noise_network must be a mapping with any of the keys "
                f"{', '.join(options)}; got {given!r}."
            )
        options |= given
        hidden, priors = layers.layer_sizes(options["hidden"]), options["priors"]
        names = (f"{NAME}::hidden{layer}" for layer in range(1, len(hidden) + 1))
        own = Stack(
            (stack.units[0], *hidden, stack.units[-1]),
            (stack.unit_dims[0], *names, stack.unit_dims[-1]),
            stack.row_dim,
        )
        last = "h" if hidden else "i"
        if isinstance(priors, Mapping):
            priors = {f"{last}o": DEFAULT_PRIORS[f"{last}s"], "bo": None, **priors}
        self.layers = HierarchicalLayers(own, options["activation"], priors, None, None, start)

    @property
    def dims(self) -> dict[str, Dim]:
        """Dimensions of its hidden layers."""
        names, units = self.layers.stack.unit_dims[1:-1], self.layers.stack.units[1:-1]
        return dict(zip(names, map(Dim, units), strict=True))

    def vary(
        self, x: TensorVariable, level: TensorVariable | NDArray, dims: tuple[str, ...]
    ) -> TensorVariable:
        """Add the network to the model, and ``"sigma"``, the noise of each row about its level."""
        with pm.Model(name=NAME):
            [g] = self.layers(x)
        return pm.Deterministic(
            "sigma", level * pt.exp(g if len(dims) == 2 else g[:, 0]), dims=dims
        )


def varying_noise(
    varies: bool, stack: Stack, given: Mapping[str, Any] | None, start: str
) -> NoiseNetwork | None:
    """The network of noise that varies, which alone may have settings."""
    if not varies and given is not None:
        raise ValueError('noise_network is for noise that varies; pass sigma="network" too.')
    return NoiseNetwork(stack, given, start) if varies else None

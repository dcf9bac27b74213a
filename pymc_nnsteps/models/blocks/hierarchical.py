"""Layers with hierarchical priors, which are functions of their inputs.

The equations are in :mod:`~pymc_nnsteps.models.hierarchical`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import (
    ACTIVATIONS,
    LAYER_ACTIVATIONS,
    SMOOTH_ACTIVATIONS,
    AnyActivation,
    Normalize,
    activation_function,
)
from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Dim, Stack
from pymc_nnsteps.models.parts.groups import DEFAULT_PRIORS, Groups, PriorLike, groups
from pymc_nnsteps.models.parts.layers import floating
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import NetworkBlock
from pymc_nnsteps.models.priors import Prior

Scale = TensorVariable | NDArray[np.floating]

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

VAGUE = 4.0
"""Largest alpha of a precision that does not begin at its mean."""


def hierarchical(
    x: Any,
    *,
    hidden: Sequence[int] = (16, 16, 16),
    outputs: int | None = None,
    name: str = "f",
    dims: str | Sequence[str] | None = None,
    activation: AnyActivation | Sequence[AnyActivation] = "tanh",
    priors: Mapping[str, PriorLike] | None = None,
    connections: Mapping[str, ArrayLike] | None = None,
    start: Start = "support_point",
) -> TensorVariable:
    """Add a network with hierarchical priors to the model of the context.

    Parameters
    ----------
    x, outputs, name, dims
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.
    hidden, activation, priors, connections, start
        As for :func:`~pymc_nnsteps.hierarchical_mlp`; there is no ``"noise"`` among the priors.

    Returns
    -------
    TensorVariable, shape (n_obs,) or (n_obs, outputs)
        The output, a ``pm.Deterministic`` named ``name``, of variables ``"f::W_ih1"``,
        ``"f::tau_ih1"``, ..., named as those of :func:`~pymc_nnsteps.hierarchical_mlp`.

    Raises
    ------
    ValueError
        As for :func:`~pymc_nnsteps.models.blocks.bow_tie`.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    Sections 1-3.

    Examples
    --------
    Counts, with a rate for each group:

    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(20, 2)), np.arange(20) % 4
    >>> with pm.Model(coords={"group": range(4)}) as model:
    ...     x = pm.Data("inputs", X)
    ...     level = pm.Normal("level", 0, 1, dims="group")
    ...     f = nns.blocks.hierarchical(x, hidden=(3,))
    ...     y = pm.Poisson("y", pm.math.exp(level[group] + f), observed=rng.poisson(2, size=20))
    >>> [variable.name for variable in model.free_RVs][:4]
    ['level', 'f::tau_ih1', 'f::tau_ih1_unit', 'f::W_ih1']
    """
    within = NetworkBlock(x, hidden, outputs, name, dims, start)
    network = HierarchicalLayers(within.stack, activation, priors, connections, None, start)
    return within.add(lambda x: network(x)[0], USUAL)


class HierarchicalLayers:
    """A network with the arguments of :func:`hierarchical`, up to its outputs.

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
        _require_precisions(self.group, stack.units)
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
                shared = _parameter(name, prior, precision, shape=connections.n_weights)
                return connections.of_each(shared)
            dims, shape = zip(*((unit_dims[i], units[i]) for i in group.layers[key]), strict=True)
            return _parameter(name, prior, precision, dims=dims, shape=shape)

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


def gamma(
    name: str, alpha: float, mean: Scale, *dims: str, start: float | None = None
) -> TensorVariable:
    """A precision: Gamma with shape ``alpha`` and this mean, in Neal's parametrisation.

    It begins at a standard deviation, if its prior is so vague that this is no worse than others.
    """
    shape = floating(alpha / 2)
    rv = pm.Gamma(name, shape, shape / mean, dims=dims)
    if start is None or alpha > VAGUE:
        return rv
    size = rv.owner.op.size_param(rv.owner)
    return begin_at(rv, pt.full([size[axis] for axis in range(len(dims))], floating(start**-2)))


def common_precision(name: str, prior: Prior, n_sources: int, start: float | None) -> Scale:
    """Precision of a group, or its mean where ``alpha_common`` is infinite."""
    omega = floating(prior.mean_precision(n_sources))
    if math.isinf(prior.alpha_common):
        return omega
    return gamma(f"tau_{name}", prior.alpha_common, omega, start=start)


def precision_of_units(
    name: str, prior: Prior, common: Scale, start: float | None, *dims: str
) -> Scale:
    """Precisions of a group's units, or the common one where ``alpha_unit`` is infinite."""
    if math.isinf(prior.alpha_unit):
        return common
    vague = None if math.isinf(prior.alpha_common) else start
    return gamma(f"tau_{name}_unit", prior.alpha_unit, common, *dims, start=vague)


def _parameter(name: str, prior: Prior, precision: Scale, **size: Any) -> TensorVariable:
    """Normal or Student-t parameters about zero with these precisions."""
    sigma = pt.reciprocal(pt.sqrt(precision))
    if math.isinf(prior.alpha_weight):
        return pm.Normal(name, 0.0, sigma, **size)
    return pm.StudentT(name, floating(prior.alpha_weight), 0.0, sigma=sigma, **size)


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


def _require_precisions(group: Groups, units: Sequence[int]) -> None:
    """Widths and scalings of which a floating-point number can hold the precision."""
    sources = [(p, group.n_sources(key, (*units, units[-1]))) for key, p in group.priors.items()]
    sources += [(group.noise, 1)] if group.noise is not None else []
    limits = np.finfo(config.floatX)
    for prior, n_sources in sources:
        try:
            omega = prior.mean_precision(n_sources)
        except OverflowError:
            omega = math.inf
        if not limits.tiny < omega < limits.max:
            raise ValueError(
                f'priors has "{prior}", whose precision is out of the range of {config.floatX}; '
                "take another width or larger alphas."
            )


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

r"""Networks with hierarchical priors, after Neal's Flexible Bayesian Modelling software.

With inputs :math:`v^{(0)} = x`, hidden layers l = 1, ..., L and the outputs as layer L + 1, every
layer sums over those before it that are connected to it:

.. math::

    u^{(l)} = b^{(l)} + \sum_{k < l} W^{(kl)} (v^{(k)} + t^{(k)}), \qquad
    v^{(l)} = a(u^{(l)}), \qquad f = u^{(L+1)}

with weights W, biases b and offsets t, whose precisions are unknown at up to three levels
(:class:`~pymc_nnsteps.models.priors.Prior`). The hidden layers are functions of the inputs: no
noise but that of the observations.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
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
from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.groups import REAL, Groups, PriorLike, groups, layer_name
from pymc_nnsteps.models.parts.layers import floating
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.scaffold import scaffold
from pymc_nnsteps.models.parts.scales import warn_of_scales
from pymc_nnsteps.models.priors import Prior

__all__ = ["hierarchical_mlp"]

Likelihood = Literal["normal", "student_t", "bernoulli", "categorical"]
Scale = TensorVariable | NDArray[np.floating]

_READ_TARGETS: dict[str, Callable[[Any, int], data.Targets]] = {
    "normal": data.regression_targets,
    "student_t": data.regression_targets,
    "bernoulli": partial(
        data.binary_targets, likelihood="bernoulli", class_likelihood="categorical", several=True
    ),
    "categorical": partial(data.class_targets, likelihood="categorical"),
}


def hierarchical_mlp(
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | pd.Series | pd.DataFrame | pd.Categorical,
    *,
    hidden: Sequence[int] = (8,),
    activation: AnyActivation | Sequence[AnyActivation] = "tanh",
    priors: Mapping[str, PriorLike] | None = None,
    likelihood: Likelihood = "normal",
    start: Start = "support_point",
) -> pm.Model:
    """Build a network with hierarchical priors as a plain PyMC model.

    ``nns.hierarchical_mlp(X, y)`` is a model for standardised inputs and targets: how wide the
    weights, biases and the noise are, and how much each input matters, is learnt.

    Inside ``with pm.Model(...)`` the network is added to that model, whose ``coords`` are used
    where they name one of the network's dimensions; otherwise a new model is made.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs. The columns of a DataFrame become the coordinates of ``"feature"``.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets: real numbers; 0 and 1 for ``"bernoulli"``; class labels, of shape (n_obs,), for
        ``"categorical"``.
    hidden : sequence of int
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str, PiecewiseLinear or callable, or a list of them, one per hidden layer
        ``"tanh"``, ``"softplus"``, ``"softplus0"``, ``"identity"``, ``"softmax"``,
        ``"normalize"`` (or :class:`~pymc_nnsteps.activations.Normalize` for groups of units),
        ``"gelu"``, ``"erf"``, ``"relu"``, ``"leaky_relu"``, ``"abs"``, ``"sign"``,
        ``"hard_tanh"``, a :class:`~pymc_nnsteps.activations.PiecewiseLinear`, or a function of a
        PyTensor matrix of shape (n_obs, units).
    priors : mapping from str to Prior, str, float or None, optional
        Replaces the default priors of groups of parameters: a
        :class:`~pymc_nnsteps.models.priors.Prior`, its notation (``"x0.05:0.5"``), a number (a
        fixed standard deviation), or None, which leaves the group out. For adjustments the
        number is their shape ``alpha``. The keys are

        ===============================  ===================================================
        ``"ih"``                         weights, inputs to first hidden layer
        ``"hh"``                         weights, each hidden layer to the next
        ``"ho"``                         weights, last hidden layer to outputs
        ``"bh"``, ``"bo"``               biases of hidden layers, of outputs
        ``"io"``, ``"ih2"``, ``"h1o"``,  weights that skip layers, by the layers they lead
        ``"h1h3"``, ...                  from and to (not there by default)
        ``"ti"``, ``"th"``               offsets of inputs, of hidden layers (not there by
                                         default)
        ``"ah"``, ``"ao"``               adjustments of hidden units, of outputs: a precision
                                         shared by the bias of a unit and all weights that
                                         lead into it (not there by default)
        ``"noise"``                      of real targets; its units are the outputs
        ===============================  ===================================================

        A key with the number of a layer, such as ``"h1h2"``, ``"bh2"`` or ``"ah1"``, is for that
        layer alone. See :data:`~pymc_nnsteps.models.parts.groups.DEFAULT_PRIORS`.
    likelihood : {"normal", "student_t", "bernoulli", "categorical"}
        Law of the targets given the outputs f: about f with unknown noise; with probability
        1/(1 + exp(-f)) of 1; by the softmax of f. Student-t noise has as many degrees of freedom
        as ``alpha_weight`` of the noise's prior says, 4 by default.
    start : {"support_point", "prior"}
        Initial values of the chains: zero parameters, or a draw from the prior, another one for
        each chain.

    Returns
    -------
    pm.Model
        With weights ``W_ih1``, ``W_h1o``, ... of shape (fan_out, fan_in), biases ``bh1``,
        ``bo``, offsets ``ti``, ``th1``; precisions ``tau_ih1`` of a group, ``tau_ih1_unit`` of
        its source units, ``tau_ah1`` of adjustments, ``tau_noise`` and ``tau_noise_unit``; the
        noise's standard deviation ``sigma``, the network's output ``f``, observed ``y``, data
        containers ``inputs`` and ``targets``, and dimensions ``"obs"``, ``"feature"``,
        ``"hidden1"``, ..., ``"output"``.

    Raises
    ------
    ValueError
        If an argument is unusable, or clashes with the names or coordinates of the model
        around it. Nothing has been added to that model then.

    Warns
    -----
    UserWarning
        If columns of ``X`` or of real ``y`` are on a scale far from 1, or ``X`` or ``y`` is
        constant.

    Notes
    -----
    ``pm.sample`` draws all precisions by Gibbs steps (:class:`~pymc_nnsteps.Gibbs`), exactly, and
    the parameters by NUTS. Judge convergence by function values, which ``f`` is at the training
    inputs and ``nns.predict`` at others, and by the noise, not by single weights: hidden units
    can be exchanged, and tanh units change sign.

    References
    ----------
    Neal, *Neural Network Models Implemented in the Flexible Bayesian Modelling Software* (2022),
    Sections 1-3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.hierarchical_mlp(X, np.sin(X[:, 0]))
    >>> [variable.name for variable in model.free_RVs]
    ['tau_ih1', 'tau_ih1_unit', 'W_ih1', 'tau_bh1', 'bh1', 'tau_h1o', 'W_h1o', 'bo', 'tau_noise']
    >>> model = nns.hierarchical_mlp(
    ...     X, X[:, 0] > 0, hidden=(3,), likelihood="bernoulli",
    ...     priors={"ih": "x1:3:4", "bh": None, "io": nns.Prior(0.5), "ah": 5},
    ... )
    >>> [variable.name for variable in model.free_RVs]
    ['tau_ah1', 'tau_ih1', 'tau_ih1_unit', 'W_ih1', 'tau_h1o', 'W_h1o', 'W_io', 'bo']
    """
    require_choice("likelihood", likelihood, get_args(Likelihood))
    require_choice("start", start, get_args(Start))
    network = scaffold(X, y, _READ_TARGETS[likelihood], hidden)
    units, unit_dims, row_dims = network.units, tuple(network.dims), network.row_dims
    sizes = units[1:-1]
    n_hidden = len(sizes)
    functions = _activations(activation, sizes)
    group = groups(priors, n_hidden, likelihood)
    names = [layer_name(layer, n_hidden) for layer in range(n_hidden + 2)]

    model = network.open(_variable_names(group, names))
    _require_precisions(group, units)
    real = network.targets.values if likelihood in REAL else None
    warn_of_scales(network.inputs.values, real, usual=(0.1, 10.0))

    n_before = len(model.free_RVs)
    with model:
        x, observed = network.add_data(model)
        adjustments = {
            layer: _gamma(f"tau_a{names[layer]}", alpha, floating(1), unit_dims[layer])
            for layer, alpha in group.adjustments.items()
        }

        def vector(kind: str, layer: int, prior: Prior, adjustment: Scale) -> TensorVariable:
            name = kind + names[layer]
            precision = _common(name, prior, 1) * adjustment
            return _parameter(name, prior, precision, unit_dims[layer])

        def weights(source: int, layer: int, prior: Prior, adjustment: Scale) -> TensorVariable:
            name = names[source] + names[layer]
            common = _common(name, prior, units[source])
            precision = _per_unit(name, prior, common, unit_dims[source])
            adjusted = precision * adjustment[:, None] if adjustment.ndim else precision
            return _parameter(f"W_{name}", prior, adjusted, unit_dims[layer], unit_dims[source])

        def linear(layer: int) -> TensorVariable:
            adjustment = adjustments.get(layer, floating(1))
            terms = [
                passed_on[source] @ weights(source, layer, prior, adjustment).T
                for (source, destination), prior in group.weights.items()
                if destination == layer
            ]
            if layer in group.biases:
                terms.append(vector("b", layer, group.biases[layer], adjustment))
            return reduce(add, terms)

        def with_offset(layer: int, values: TensorVariable) -> TensorVariable:
            if layer not in group.offsets:
                return values
            return values + vector("t", layer, group.offsets[layer], floating(1))

        passed_on = [with_offset(0, x)]
        for layer, function in enumerate(functions, 1):
            passed_on.append(with_offset(layer, function(linear(layer))))
        outputs = linear(n_hidden + 1)
        if observed.ndim == 1 and likelihood != "categorical":
            outputs = outputs[:, 0]
        f_dims = row_dims if outputs.ndim == 1 else ("obs", "output")
        f = pm.Deterministic("f", outputs, dims=f_dims)
        if likelihood == "bernoulli":
            pm.Bernoulli("y", logit_p=f, observed=observed, dims=row_dims)
        elif likelihood == "categorical":
            pm.Categorical("y", logit_p=f, observed=observed, dims=row_dims)
        elif group.noise is not None:
            _observe(f, group.noise, observed, row_dims)
        if start == "prior":
            for variable in model.free_RVs[n_before:]:
                model.set_initval(variable, "prior")
    return model


def _observe(
    f: TensorVariable, noise: Prior, observed: TensorVariable, dims: tuple[str, ...]
) -> None:
    """Add real targets and their noise, Student-t where ``alpha_weight`` is finite."""
    common = _common("noise", noise, 1)
    precision = _per_unit("noise", noise, common, *dims[1:])
    sigma = pt.reciprocal(pt.sqrt(precision))
    sigma = pm.Deterministic("sigma", sigma, dims=dims[1:][: sigma.ndim])
    if math.isinf(noise.alpha_weight):
        pm.Normal("y", f, sigma, observed=observed, dims=dims)
    else:
        pm.StudentT("y", floating(noise.alpha_weight), f, sigma=sigma, observed=observed, dims=dims)


def _gamma(name: str, alpha: float, mean: Scale, *dims: str) -> TensorVariable:
    """A precision: Gamma with shape ``alpha`` and this mean, in Neal's parametrisation."""
    shape = floating(alpha / 2)
    return pm.Gamma(name, shape, shape / mean, dims=dims)


def _common(name: str, prior: Prior, n_sources: int) -> Scale:
    """Precision of a group, or its mean where ``alpha_common`` is infinite."""
    omega = floating(prior.mean_precision(n_sources))
    if math.isinf(prior.alpha_common):
        return omega
    return _gamma(f"tau_{name}", prior.alpha_common, omega)


def _per_unit(name: str, prior: Prior, common: Scale, *dims: str) -> Scale:
    """Precisions of a group's units, or the common one where ``alpha_unit`` is infinite."""
    if math.isinf(prior.alpha_unit):
        return common
    return _gamma(f"tau_{name}_unit", prior.alpha_unit, common, *dims)


def _parameter(name: str, prior: Prior, precision: Scale, *dims: str) -> TensorVariable:
    """Normal or Student-t parameters about zero with these precisions."""
    sigma = pt.reciprocal(pt.sqrt(precision))
    if math.isinf(prior.alpha_weight):
        return pm.Normal(name, 0.0, sigma, dims=dims)
    return pm.StudentT(name, floating(prior.alpha_weight), 0.0, sigma=sigma, dims=dims)


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
    sources = [(prior, units[source]) for (source, _), prior in group.weights.items()]
    sources += [(prior, 1) for prior in (*group.biases.values(), *group.offsets.values())]
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


def _variable_names(group: Groups, names: Sequence[str]) -> list[str]:
    """Every variable the model will have."""
    weights = {names[source] + names[layer]: p for (source, layer), p in group.weights.items()}
    vectors = {f"b{names[layer]}": prior for layer, prior in group.biases.items()}
    vectors |= {f"t{names[layer]}": prior for layer, prior in group.offsets.items()}
    noise = {} if group.noise is None else {"noise": group.noise}
    variables = ["inputs", "targets", "f", "y", *["sigma"] * len(noise)]
    variables += [*(f"W_{name}" for name in weights), *vectors]
    variables += [f"tau_a{names[layer]}" for layer in group.adjustments]
    for name, prior in (weights | vectors | noise).items():
        variables += [f"tau_{name}"] * math.isfinite(prior.alpha_common)
        variables += [f"tau_{name}_unit"] * math.isfinite(prior.alpha_unit)
    return variables

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
from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_nnsteps.activations import AnyActivation
from pymc_nnsteps.arguments import is_word
from pymc_nnsteps.models.blocks.hierarchical import (
    USUAL,
    HierarchicalLayers,
    common_precision,
    precision_of_units,
)
from pymc_nnsteps.models.parts.context import recorded
from pymc_nnsteps.models.parts.data import Missing
from pymc_nnsteps.models.parts.groups import REAL, PriorLike
from pymc_nnsteps.models.parts.likelihoods import AnyNetwork, ObservedData, Start
from pymc_nnsteps.models.parts.noise import known_sigma
from pymc_nnsteps.models.parts.scaffold import Scaffold, warn_of_scales
from pymc_nnsteps.models.priors import Prior

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

    Inside ``with pm.Model(...)`` the network is added to that model, whose ``coords`` are used
    where they name one of the network's dimensions; otherwise a new model is made.

    Parameters
    ----------
    X : array_like or DataFrame, shape (n_obs, n_features)
        Inputs. The columns of a DataFrame are the coordinates of ``"feature"``, with an
        indicator of each level of text and categories, ``"depot[north]"``.
    y : array_like, Series, DataFrame or Categorical, shape (n_obs,) or (n_obs, n_outputs)
        Targets, as the likelihood has them. Real numbers are NaN where they are missing. Classes
        are labels of shape (n_obs,), and become the coordinates of ``"output"``, or of ``"class"``
        if they are ordered.
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
        ``"hs"``                         with ``sigma="network"``: weights, last hidden layer to
                                         the logarithm of the noise (``"is"``, ``"h1s"``, ...:
                                         from others)
        ===============================  ===================================================

        A key with the number of a layer, such as ``"h1h2"``, ``"bh2"`` or ``"ah1"``, is for that
        layer alone. The defaults are in ``pymc_nnsteps.models.parts.groups.DEFAULT_PRIORS``.
    connections : mapping from str to array_like of int, optional
        For groups of weights, by the keys of ``priors``, an array of shape (fan_out, fan_in) with
        the number of the weight that each connection uses, and -1 where there is none. In this way
        weights are shared or left out. Weights are numbered from 0 without gaps. For biases and
        offsets, of shape (units,). Such a group has no precisions of its source units and no
        adjustments, as its weights need not belong to one unit; ``scale`` in its prior divides the
        variance among as many sources as lead into the unit that has most of them.
    likelihood : str
        Law of the targets given the outputs f. Where it has a ``dispersion``, this is a variable
        with the prior HalfNormal(1), one for each output.

        - ``"normal"`` and ``"student_t"``: real numbers about f with unknown noise. The degrees of
          freedom of Student-t noise are ``alpha_weight`` of the noise's prior, 4 by default.
        - ``"bernoulli"``: 0 and 1, with probability 1/(1 + exp(-f)) of 1.
        - ``"categorical"``: classes, by the softmax of f.
        - ``"ordered"``: classes in an order, consecutive integers or an ordered
          ``pandas.Categorical``. One output f has P(y <= k) = 1/(1 + exp(f - c_k)). The
          ``cutpoints`` c are those of ``shares``, the probabilities of the classes where f is zero,
          whose prior is uniform.
        - ``"poisson"`` and ``"negative_binomial"``: counts of mean m = exp(f). The second has the
          variance m + (dispersion m)^2.
        - ``"gamma"``: positive numbers of mean m = exp(f) and standard deviation dispersion m.
        - ``"weibull"``: durations exp(f) E^dispersion with a standard exponential E.
    exposure : array_like, shape (n_obs,), optional
        What the mean of counts is proportional to, such as years or persons: it is multiplied by
        these positive numbers. New rows need theirs:
        ``nns.predict(idata, {"inputs": X_new, "exposure": exposure_new})``.
    censored : array_like of bool, shape (n_obs,), optional
        Where a duration is known to be longer than ``y``. New rows need none.
    sigma : float or "network", optional
        Standard deviation of real targets about the outputs, if it is known: short for the prior
        ``"noise"``. ``"network"``: it varies with the inputs. Then the prior ``"noise"`` is that of
        its level. The level is multiplied by the exponential of a second output of the network,
        whose weights have the prior ``"hs"``. Their precision ``tau_h1s`` determines how much the
        noise varies, and is learnt.
    start : {"support_point", "prior"}
        Initial values of the chains: zero parameters and moderate scales, or a draw from the
        prior, another one for each chain.
    standardize : bool
        Whether columns of ``X`` are standardised: they enter the network minus their means, divided
        by their standard deviations. Columns of zeros and ones stay as they are. The data container
        and tables that are given later, as for predictions, have the units of ``X``.
    missing : {None, "impute"}
        What is done with NaN in ``X``: refused, or drawn with the model's variables, each from its
        law given the rest (:func:`~pymc_nnsteps.models.blocks.table`).
    embed : mapping of str to int, optional
        Columns of text or categories whose levels enter the network as rows of a learnt matrix, and
        the lengths of these rows (:func:`~pymc_nnsteps.models.blocks.table`): ``{"depot": 2}`` adds
        ``"depot::E"``. The inputs of the network are the coordinates of ``"input"`` then.

    Returns
    -------
    pm.Model
        With weights ``W_ih1``, ``W_h1o``, ... of shape (fan_out, fan_in), biases ``bh1``,
        ``bo``, offsets ``ti``, ``th1``; precisions ``tau_ih1`` of a group, ``tau_ih1_unit`` of
        its source units, ``tau_ah1`` of adjustments, ``tau_noise`` and ``tau_noise_unit``; the
        noise's standard deviation ``sigma`` (with ``sigma="network"`` of the shape of ``y``), the
        network's output ``f``, observed ``y``, data containers ``inputs`` and ``targets`` (and
        ``exposure`` or ``censored``), and dimensions ``"obs"``, ``"feature"``, ``"hidden1"``, ...,
        ``"output"``. A group whose connections are given has the shape (n_weights,).

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
    moves the parameters by Hamiltonian trajectories in a metric that follows these precisions
    (:class:`~pymc_nnsteps.HMC`; by NUTS if arguments for it are passed, such as
    ``target_accept=``), the precisions along. The units of a layer are relabelled at random, with
    the signs of tanh units, so that R-hat of all variables is meaningful
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
    noise = network.group.noise

    def build(x: TensorVariable, seen: ObservedData) -> None:
        outputs = network(x)
        f = seen.named(outputs[0])
        if noise is None:
            response.law.observe(f, seen)
            return
        begin, freedom = network.begins.get("noise"), noise.alpha_weight
        sd = _noise_of(noise, begin, [seen.f(each) for each in outputs[1:]], seen.dims)
        response.law.observe(f, seen, sd, *(() if math.isinf(freedom) else (freedom,)))

    warn_of_scales(scaffolding.inputs, response.real, usual=USUAL)
    return scaffolding.add(build)


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


def _noise_of(
    noise: Prior,
    begin: float | None,
    log_variation: Sequence[TensorVariable],
    dims: tuple[str, ...],
) -> TensorVariable:
    """Add the noise of real targets to the model, and return its standard deviation."""
    common = common_precision("noise", noise, 1, begin)
    precision = precision_of_units("noise", noise, common, begin, *dims[1:])
    sigma, sigma_dims = pt.reciprocal(pt.sqrt(precision)), dims[1:]
    for g in log_variation:
        sigma, sigma_dims = sigma * pt.exp(g), dims
    return pm.Deterministic("sigma", sigma, dims=sigma_dims[: sigma.ndim])

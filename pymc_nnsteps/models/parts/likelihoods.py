"""What is observed of a network's last pre-activations: their values, signs or argmax.

Each function adds the observed ``y`` to the model of the open context. The probit likelihoods
first add the latent ``Z{L+1}`` as a free variable; ``y`` is then a deterministic function of
it, written as a distribution whose log density is 0 where they agree and -inf where not. Its
initial value always agrees with the targets, because it is an expression of the data container.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.graphs.initial_values import start_of
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.data import Observed
from pymc_nnsteps.models.parts.noise import Variance, noise_scale, noisy
from pymc_nnsteps.models.priors import Prior

__all__ = [
    "OTHER_LAWS",
    "READ_TARGETS",
    "Likelihood",
    "Start",
    "multinomial_probit",
    "normal",
    "observe",
    "probit",
]

Start = Literal["support_point", "prior"]
Likelihood = Literal["normal", "probit", "multinomial_probit"]

Vary = Callable[[TensorVariable | NDArray, tuple[str, ...]], TensorVariable]

READ_TARGETS: dict[str, Callable[[Any, int], data.Targets]] = {
    "normal": partial(data.regression_targets, two_classes="probit", classes="multinomial_probit"),
    "probit": data.binary_targets,
    "multinomial_probit": data.class_targets,
}
"""What reads the targets of each likelihood."""

OTHER_LAWS = "for counts, durations and other laws put a network of nns.blocks into a model of PyMC"
"""What users may do who miss a likelihood."""


def observe(
    likelihood: Likelihood,
    layer: int,
    mean: TensorVariable,
    variance: Variance,
    targets: Observed,
    n_outputs: int,
    start: Start,
    vary: Vary | None = None,
) -> TensorVariable:
    """Observe the last pre-activations as the likelihood of this name says.

    Parameters
    ----------
    layer : int
        Number of the last pre-activations: where they are latent they are called ``Z{layer}``.
    mean : TensorVariable, shape (n_obs, n_outputs)
    variance, targets, n_outputs, start, vary
        As for the functions of this module.

    Returns
    -------
    TensorVariable, shape of the targets
    """
    latent = f"Z{layer}"
    if likelihood == "normal":
        return normal(mean, variance, targets, start, vary)
    if isinstance(variance, Prior):
        raise ValueError(
            f'noise of the output cannot be learnt with likelihood="{likelihood}", which leaves '
            'the scale of utilities open; pass a mapping with a number as its "output".'
        )
    if likelihood == "probit":
        return probit(latent, mean, variance, pt.as_tensor(targets), start)
    return multinomial_probit(latent, mean, variance, pt.as_tensor(targets), n_outputs, start)


def normal(
    mean: TensorVariable,
    variance: Variance,
    targets: Observed,
    start: Start,
    vary: Vary | None = None,
) -> TensorVariable:
    """Observe the last pre-activations: ``y ~ N(F, Delta)``.

    Parameters
    ----------
    mean : TensorVariable, shape (n_obs, n_outputs)
    variance : float or Prior
        Prior: ``noise_y``, a variable of the model.
    targets : TensorVariable or MaskedArray, shape (n_obs,) with one output, or (n_obs, n_outputs)
    start : {"support_point", "prior"}
        Where a variance that is not known begins.
    vary : callable, optional
        From the standard deviation and the dimensions of the targets to that of each row.

    Returns
    -------
    TensorVariable, shape of the targets
    """
    if targets.ndim == 1:
        mean = mean[:, 0]
    dims = ("obs", "output")[: targets.ndim]
    scale = noise_scale("y", variance, start_of(start))
    if vary is not None:
        scale = vary(scale, dims)
    return pm.Normal("y", mean, scale, observed=targets, dims=dims)


def probit(
    name: str, mean: TensorVariable, variance: float, targets: TensorVariable, start: Start
) -> TensorVariable:
    """Observe the sign of the last pre-activation: ``y = 1[Z > 0]``, ``Z ~ N(F, Delta)``.

    Parameters
    ----------
    name : str
        Name of the latent ``Z``.
    mean : TensorVariable, shape (n_obs, 1)
    targets : TensorVariable of 0 and 1, shape (n_obs,)
    start : {"support_point", "prior"}
        Whether the latent starts at ``+-sqrt(Delta)`` or at random on its side of zero.

    Returns
    -------
    TensorVariable, shape (n_obs,)
    """
    shape = (targets.shape[0], 1)
    side = pt.switch(targets[:, None] > 0, 1.0, -1.0)
    size = abs(_prior_utilities(variance, shape)) if start == "prior" else variance**0.5
    z = noisy(name, mean, variance, dims=("obs", "output"), initval=side * size)
    return pm.Bernoulli(
        "y", p=pt.gt(z[:, 0], 0).astype(config.floatX), observed=targets, dims="obs"
    )


def multinomial_probit(
    name: str,
    mean: TensorVariable,
    variance: float,
    targets: TensorVariable,
    n_outputs: int,
    start: Start,
) -> TensorVariable:
    """Observe the largest of the last pre-activations: ``y = argmax_a Z_a``, ``Z ~ N(F, Delta)``.

    Parameters
    ----------
    name : str
        Name of the latent ``Z``.
    mean : TensorVariable, shape (n_obs, n_outputs)
    targets : TensorVariable of class indices, shape (n_obs,)
    start : {"support_point", "prior"}
        Whether the latent starts at ``sqrt(Delta)`` for the class and 0 elsewhere, or at random
        with its largest value moved to the class.

    Returns
    -------
    TensorVariable, shape (n_obs,)
    """
    classes = pt.arange(n_outputs)
    is_target = pt.eq(targets[:, None], classes)
    if start == "prior":
        drawn = _prior_utilities(variance, (targets.shape[0], n_outputs))
        largest = drawn.max(axis=1, keepdims=True)
        own = drawn[pt.arange(targets.shape[0]), targets][:, None]
        initval = pt.switch(is_target, largest, pt.switch(pt.eq(drawn, largest), own, drawn))
    else:
        initval = is_target * variance**0.5
    z = noisy(name, mean, variance, dims=("obs", "output"), initval=initval)
    is_largest = pt.eq(pt.argmax(z, axis=1, keepdims=True), classes)
    return pm.Categorical("y", p=is_largest.astype(config.floatX), observed=targets, dims="obs")


def _prior_utilities(variance: float, shape: tuple[TensorVariable, int]) -> TensorVariable:
    """Utilities as widespread as those of a network whose outputs have unit variance."""
    return pm.Normal.dist(0.0, np.sqrt(1.0 + variance), shape=shape)

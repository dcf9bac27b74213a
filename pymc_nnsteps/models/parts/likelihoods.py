"""Laws of the targets given the outputs ``f`` of a network: one entry of a table for each.

An entry checks the targets, and adds the observed ``y`` to the model of the context,
with the parameters that the law has beside ``f``. The probit likelihoods are of networks with
noise. They first add the latent ``Z{L+1}`` as a free variable; ``y`` is then a deterministic
function of it, written as a distribution whose log density is 0 where they agree and -inf where
not. Its initial value always agrees with the targets, because it is an expression of the data
container.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import require_choice
from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.parts import data
from pymc_nnsteps.models.parts.data import Observed
from pymc_nnsteps.models.parts.layers import floating, noisy

Start = Literal["support_point", "prior"]
AnyNetwork = Literal[
    "bernoulli", "categorical", "poisson", "negative_binomial", "gamma", "ordered", "weibull"
]
"""Likelihoods that ask no more of a network than its outputs."""

OfNoisyLayers = Literal["normal", "probit", "multinomial_probit"] | AnyNetwork

Scale = TensorVariable | NDArray[np.floating]


@dataclass(frozen=True)
class ObservedData:
    """What is observed, in the model of the context."""

    y: Observed  # shape (n_obs,) or (n_obs, n_outputs)
    # Of the network, and of labels.
    n_outputs: int
    n_classes: int
    # shape (n_obs,).
    exposure: TensorVariable | None = None
    censored: TensorVariable | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions of the targets."""
        return ("obs", "output")[: self.y.ndim]

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the observed distribution."""
        return {"observed": self.y, "dims": self.dims}

    def f(self, outputs: TensorVariable) -> TensorVariable:
        """Outputs of shape (n_obs, n_outputs) in the shape that the law of the targets takes."""
        return outputs[:, 0] if self.y.ndim == self.n_outputs == 1 else outputs

    def named(self, outputs: TensorVariable) -> TensorVariable:
        """The same, as ``"f"`` of the model."""
        f = self.f(outputs)
        return pm.Deterministic("f", f, dims=("obs", "output")[: f.ndim])

    def of_rows(self, numbers: TensorVariable) -> TensorVariable:
        """Numbers of shape (n_obs,), to be multiplied with what has the shape of the targets."""
        return numbers[:, None] if self.y.ndim == 2 else numbers


@dataclass(frozen=True)
class Likelihood:
    """Law of the targets given the outputs ``f``."""

    # From the user's targets, the number of rows, and the names of the likelihoods for two and for
    # more classes, to checked targets.
    read: Callable[[Any, int, str, str], data.Targets]
    # From ``f`` and the data: adds ``y`` to the model. More arguments, if it is not for any
    # network: the standard deviation of real targets, or the noise of utilities.
    observe: Callable[..., TensorVariable]
    # From the data to a rough value of ``f`` in each row, at which a chain may begin.
    rough: Callable[[ObservedData], TensorVariable] = lambda seen: pt.as_tensor(seen.y)
    # Arguments of builders that mean something to it, of those that not all laws know.
    accepts: tuple[str, ...] = ()
    any_network: bool = True  # whether it asks no more of a network than its outputs


def likelihood_of(name: str, own: Sequence[str], given: Mapping[str, object]) -> Likelihood:
    """The likelihood of a name, if a network has it, and has a meaning for what is given."""
    general = [each for each, law in LIKELIHOODS.items() if law.any_network and each not in own]
    require_choice(
        "likelihood",
        name,
        [*own, *general],
        "for other laws put a network of nns.blocks into a model of PyMC",
    )
    law = LIKELIHOODS[name]
    for argument, value in given.items():
        if value is not None and argument not in law.accepts:
            raise ValueError(f'{argument} has no meaning with likelihood="{name}"; leave it out.')
    return law


# Targets


def _binary(y: Any, n_obs: int, two: str, more: str) -> data.Targets:
    return data.binary_targets(y, n_obs, "bernoulli", "categorical", several=True)


def _sign(y: Any, n_obs: int, two: str, more: str) -> data.Targets:
    return data.binary_targets(y, n_obs)


def _classes(name: str, y: Any, n_obs: int, two: str, more: str) -> data.Targets:
    return data.class_targets(y, n_obs, name)


def _numbers(name: str, y: Any, n_obs: int, two: str, more: str) -> data.Targets:
    """Numbers of a sign and kind that the law of this name has, none missing."""
    targets = data.regression_targets(y, n_obs, two, more)
    values = targets.filled
    if targets.missing.any():
        raise ValueError(
            f'y has {targets.missing.sum()} missing values, which likelihood="{name}" does not '
            "draw; leave these rows out."
        )
    if name in COUNTS:
        what, strange = "hold counts 0, 1, 2, ...", (values < 0) | (values != np.rint(values))
        advice = "; for rates pass the counts, and what they are divided by as exposure"
    else:
        what, strange, advice = "be positive", values <= 0, ""
    if strange.any():
        where = tuple(np.argwhere(strange)[0])
        place = ", ".join(map(str, where))
        raise ValueError(
            f'y must {what} with likelihood="{name}"; got {values[where]:g} at y[{place}]{advice}.'
        )
    if name not in COUNTS:
        return targets
    return data.Targets(values.astype("int64"), targets.n_outputs, targets.outputs)


def _ordered(y: Any, n_obs: int, two: str, more: str) -> data.Targets:
    """Numbers of ordered labels, consecutive integers or categories, for one output."""
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, pd.CategoricalDtype):
        is_ordered = bool(dtype.ordered)
    else:
        given = np.asarray(y)
        is_ordered = given.dtype.kind in "biuf"
        if is_ordered and given.ndim == 1 and len(given) and np.isfinite(given).all():
            present = np.unique(given)
            if not np.array_equal(present, present[0] + np.arange(len(present))):
                raise ValueError(
                    'y must hold consecutive integers with likelihood="ordered", each at least '
                    "once; pass other labels as pandas.Categorical(y, categories=[...], "
                    "ordered=True)."
                )
            y = pd.Categorical(given.astype("int64"), ordered=True)
    if not is_ordered:
        raise ValueError(
            'y has labels without an order, but likelihood="ordered" needs one; pass '
            "pandas.Categorical(y, categories=[...], ordered=True)."
        )
    targets = data.class_targets(y, n_obs, "ordered")
    return data.Targets(targets.values, 1, targets.outputs)


# Laws of real targets


def normal(f: TensorVariable, seen: ObservedData, sd: Scale) -> TensorVariable:
    """``y ~ N(f, sd^2)``."""
    return pm.Normal("y", f, sd, **seen.options)


def student_t(f: TensorVariable, seen: ObservedData, sd: Scale, freedom: float) -> TensorVariable:
    """``y`` Student-t about ``f``."""
    return pm.StudentT("y", floating(freedom), f, sigma=sd, **seen.options)


# Laws of classes, counts and durations


def bernoulli(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """``P(y = 1) = 1 / (1 + exp(-f))``."""
    return pm.Bernoulli("y", logit_p=f, **seen.options)


def categorical(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """``P(y = k)`` in proportion to ``exp(f_k)``."""
    return pm.Categorical("y", logit_p=f, **seen.options)


def ordered(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """``P(y <= k) = 1 / (1 + exp(f - c_k))``, where ``f = 0`` gives the classes uniform shares."""
    shares = pm.Dirichlet("shares", np.ones(seen.n_classes, config.floatX), dims="class")
    below = pt.cumsum(shares)[:-1]
    cutpoints = pm.Deterministic("cutpoints", pt.log(below) - pt.log1p(-below))
    return pm.OrderedLogistic("y", eta=f, cutpoints=cutpoints, compute_p=False, **seen.options)


def poisson(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """``y ~ Poisson(exposure exp(f))``."""
    return pm.Poisson("y", _rate(f, seen), **seen.options)


def negative_binomial(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """Mean ``m = exposure exp(f)``, variance ``m + (dispersion m)^2``."""
    shape = _dispersion(seen) ** -2
    return pm.NegativeBinomial("y", mu=_rate(f, seen), alpha=shape, **seen.options)


def gamma(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """Mean ``exp(f)``, and the dispersion is the standard deviation as a share of it."""
    shape = _dispersion(seen) ** -2
    return pm.Gamma("y", shape, shape * pt.exp(-f), **seen.options)


def weibull(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    """``log y = f + dispersion g``, ``P(g > x) = exp(-exp(x))``, or longer where censored."""
    shape, scale = 1 / _dispersion(seen), pt.exp(f)
    if seen.censored is None:
        return pm.Weibull("y", shape, scale, **seen.options)
    ended = 1 - seen.of_rows(seen.censored).astype(config.floatX)
    return pm.CustomDist(
        "y",
        shape,
        scale,
        ended,
        dist=_whole_duration,
        logp=_log_censored_weibull,
        class_name="CensoredWeibull",
        **seen.options,
    )


def _whole_duration(
    shape: TensorVariable, scale: TensorVariable, ended: TensorVariable, size: TensorVariable
) -> TensorVariable:
    return pm.Weibull.dist(shape, scale, size=size)


def _log_censored_weibull(
    value: TensorVariable, shape: TensorVariable, scale: TensorVariable, ended: TensorVariable
) -> TensorVariable:
    """Log density of durations that have ended, log probability of longer ones of the others."""
    log_hazard = pt.log(shape / scale) + (shape - 1) * pt.log(value / scale)
    return ended * log_hazard - (value / scale) ** shape


def _rate(f: TensorVariable, seen: ObservedData) -> TensorVariable:
    return pt.exp(f) if seen.exposure is None else seen.of_rows(seen.exposure) * pt.exp(f)


def _dispersion(seen: ObservedData) -> TensorVariable:
    """Half-normal with standard deviation 1: one for each output."""
    dims = seen.dims[1:]
    return pm.HalfNormal("dispersion", floating(1), shape=(seen.n_outputs,) * len(dims), dims=dims)


def _log_of_counts(seen: ObservedData) -> TensorVariable:
    log = pt.log(pt.as_tensor(seen.y) + floating(0.5))
    return log if seen.exposure is None else log - pt.log(seen.of_rows(seen.exposure))


def _log(seen: ObservedData) -> TensorVariable:
    return pt.log(pt.as_tensor(seen.y))


def _one_hot(seen: ObservedData) -> TensorVariable:
    return pt.eq(pt.as_tensor(seen.y)[:, None], pt.arange(seen.n_classes)).astype(config.floatX)


# Laws of utilities, in networks with noise


def probit(
    mean: TensorVariable, seen: ObservedData, name: str, variance: float, start: Start
) -> TensorVariable:
    """The sign of the last pre-activation: ``y = 1[Z > 0]``, ``Z ~ N(F, Delta)``."""
    targets = pt.as_tensor(seen.y)
    shape = (targets.shape[0], 1)
    side = pt.switch(targets[:, None] > 0, 1.0, -1.0)
    size = abs(_prior_utilities(variance, shape)) if start == "prior" else variance**0.5
    z = begin_at(noisy(name, mean, variance, ("obs", "output")), side * size)
    return pm.Bernoulli("y", p=pt.gt(z[:, 0], 0).astype(config.floatX), **seen.options)


def multinomial_probit(
    mean: TensorVariable, seen: ObservedData, name: str, variance: float, start: Start
) -> TensorVariable:
    """The largest of the last pre-activations: ``y = argmax_a Z_a``, ``Z ~ N(F, Delta)``."""
    targets = pt.as_tensor(seen.y)
    classes = pt.arange(seen.n_classes)
    is_target = pt.eq(targets[:, None], classes)
    if start == "prior":
        drawn = _prior_utilities(variance, (targets.shape[0], seen.n_classes))
        largest = drawn.max(axis=1, keepdims=True)
        own = drawn[pt.arange(targets.shape[0]), targets][:, None]
        initval = pt.switch(is_target, largest, pt.switch(pt.eq(drawn, largest), own, drawn))
    else:
        initval = is_target * variance**0.5
    z = begin_at(noisy(name, mean, variance, ("obs", "output")), initval)
    is_largest = pt.eq(pt.argmax(z, axis=1, keepdims=True), classes)
    return pm.Categorical("y", p=is_largest.astype(config.floatX), **seen.options)


def _prior_utilities(variance: float, shape: tuple[TensorVariable, int]) -> TensorVariable:
    """Utilities as widespread as those of a network whose outputs have unit variance."""
    return pm.Normal.dist(0.0, np.sqrt(1.0 + variance), shape=shape)


COUNTS = ("poisson", "negative_binomial")

OF_REAL = ("sigma", "noise_beta", "noise_network")

LIKELIHOODS: dict[str, Likelihood] = {
    "normal": Likelihood(data.regression_targets, normal, accepts=OF_REAL, any_network=False),
    "student_t": Likelihood(data.regression_targets, student_t, accepts=OF_REAL, any_network=False),
    "probit": Likelihood(_sign, probit, any_network=False),
    "multinomial_probit": Likelihood(
        partial(_classes, "multinomial_probit"), multinomial_probit, any_network=False
    ),
    "bernoulli": Likelihood(_binary, bernoulli, lambda seen: floating(2) * seen.y - floating(1)),
    "categorical": Likelihood(partial(_classes, "categorical"), categorical, _one_hot),
    "poisson": Likelihood(partial(_numbers, "poisson"), poisson, _log_of_counts, ("exposure",)),
    "negative_binomial": Likelihood(
        partial(_numbers, "negative_binomial"), negative_binomial, _log_of_counts, ("exposure",)
    ),
    "gamma": Likelihood(partial(_numbers, "gamma"), gamma, _log),
    "ordered": Likelihood(
        _ordered, ordered, lambda seen: seen.y - floating((seen.n_classes - 1) / 2)
    ),
    "weibull": Likelihood(partial(_numbers, "weibull"), weibull, _log, ("censored",)),
}
"""All of them, by the names that builders take."""

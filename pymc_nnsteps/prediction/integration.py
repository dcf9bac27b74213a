r"""The likelihood of each row with the noise of its layers integrated out.

Given noise e, the mean of a row's target (of a threshold: its utility) is m(e), and its covariance
C, of the target's own noise and of all noise that m is affine in, which is so integrated out. Where
no other noise is left this is exact, and else :math:`L = E[p(y \mid e)]` is estimated by importance
sampling with proposals of two kinds: the prior, and what e would be given y if m were linear, as it
is about some e':

.. math::

    m(e) \approx m_k + G_k e, \quad S_k = C_k + G_k G_k^T, \qquad
    e = e_0 + G_k^T S_k^{-1} (y - m_k - G_k e_0 - \xi), \quad e_0 \sim N(0, I), \ \xi \sim N(0, C_k)

in shares :math:`\alpha` and :math:`\alpha_k`, each draw weighted by

.. math::

    w = \frac{p(y \mid e)}
    {\alpha + \sum_k \alpha_k\, N(y \mid m_k + G_k e, C_k) / N(y \mid m_k, S_k)}.

The first e' is zero, the others are draws of the prior: behind kinks, targets may come from places
that the slope at zero does not lead to. The estimate :math:`\bar w` is unbiased; w is bounded by
:math:`p(y \mid e) / \alpha`, and nearly constant where the noise is small beside the kinks of the
activation. Behind a threshold, y is a utility that is drawn from its truncated law under the linear
model. For all other laws noise is drawn from its prior. Gates are drawn from theirs. The logarithm
of the estimate has the standard error of :math:`\bar w` divided by its mean, and minus half the
square of that as bias.

References
----------
Owen and Zhou, *Safe and Effective Importance Sampling*, JASA 95 (2000).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import scipy
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.network.activations import Largest, Threshold
from pymc_nnsteps.network.layers import Normal
from pymc_nnsteps.prediction.blocks import BLOCK_BYTES, compiled
from pymc_nnsteps.prediction.forward import NoisyPass
from pymc_nnsteps.prediction.laws import Other, log_probability_above, log_probability_of_largest
from pymc_nnsteps.prediction.row_data import repeated, taken
from pymc_nnsteps.random.truncated_normal import truncated_normal_kernel

Numbers = NDArray[np.float64]

SHARE_OF_PRIOR = 0.2

CENTRES = 4
"""Values of the noise about which the mean is linearised: zero, and draws of its prior."""

LARGEST_ERROR = 0.3
"""Upper limit of the standard errors that are reported: of a hundred draws, ten count."""

ALIKE = 1e-9
"""Standard error below which weights are the same: it is then that of what no draw has met."""


@dataclass(frozen=True)
class Integral:
    """Log likelihood of each row (n_obs,), and its standard error, infinite if not known."""

    log: Numbers
    standard_error: Numbers


@dataclass(frozen=True)
class _Local:
    """The law of the targets about some noise, linearised."""

    mean: Numbers
    covariance: Numbers
    slope: Numbers

    def without(self, missing: NDArray[np.bool]) -> "_Local":
        """The law with missing targets set to zero with density one, whatever the noise."""
        if not missing.any():
            return self
        alone = np.eye(missing.shape[1]) / (2 * np.pi)
        either = missing[:, :, None] | missing[:, None, :]
        return _Local(
            np.where(missing, 0.0, self.mean),
            np.where(either, missing[:, :, None] * alone, self.covariance),
            np.where(missing[:, :, None], 0.0, self.slope),
        )

    @property
    def marginal(self) -> Numbers:
        """Covariance of the targets with the noise integrated out, if their mean were linear."""
        return self.covariance + self.slope @ self.slope.transpose(0, 2, 1)

    def about(self, e: Numbers) -> "_Local":
        """The linear model with this value at ``e``, stated by its mean at zero."""
        return _Local(self.mean - _times(self.slope, e), self.covariance, self.slope)

    def repeated(self, n: int) -> "_Local":
        """The same for ``n`` draws of each row."""
        return _Local(*(np.repeat(a, n, axis=0) for a in (self.mean, self.covariance, self.slope)))


class Integrator:
    """The likelihood of rows as a function of the weights.

    ``data`` are the inputs and what goes with their rows, shape (n_obs, ...). ``y`` of shape
    (n_obs,) or (n_obs, n_outputs) is NaN where it is missing: the likelihood is that of the others.
    With ``apart`` each column of a row has a likelihood of its own.
    """

    def __init__(
        self,
        network: NoisyPass,
        data: Sequence[np.ndarray],
        y: NDArray[np.number],
        draws: int,
        rng: np.random.Generator,
        apart: bool = False,
    ) -> None:
        self._network, self._data, self._draws, self._rng = network, data, draws, rng
        self._missing = np.isnan(y.reshape(len(y), -1))
        self._y, self._apart = np.nan_to_num(y).reshape(len(y), -1), apart
        self._guided = isinstance(network.law, Normal) or (
            isinstance(network.law, Threshold) and self._y.shape[1] == 1
        )
        self._linear = [e for e in network.normal if self._guided and e in network.linear]
        self._rest = [e for e in network.normal if e not in self._linear]
        self._of_complete_rows: Integrator | None = None
        if (complete := network.of_complete_rows) is not None:
            own = dict(zip(network.rows, data, strict=True))
            held = [own[each] for each in complete.rows]
            self._of_complete_rows = Integrator(complete, held, y, draws, rng, apart)

    @property
    def n_obs(self) -> int:
        """Number of rows."""
        return len(self._y)

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Rows of which something was observed."""
        return ~self._missing.all(axis=1)

    @property
    def is_exact(self) -> bool:
        """Whether no noise has to be drawn."""
        return not (self._rest or self._network.uniform)

    def __call__(self, weights: Sequence[np.ndarray]) -> Integral:
        """The likelihood of all rows, or of each number apart, given weights in their order."""
        own = dict(zip(self._network.weights, weights, strict=True))
        gaps = np.zeros(self.n_obs, dtype=bool)
        for values in self._data:
            gaps |= np.isnan(values.reshape(self.n_obs, -1)).any(axis=1)
        found = []
        for integrator, of_kind in ((self, gaps), (self._of_complete_rows or self, ~gaps)):
            if (chosen := self.observed & of_kind).any():
                given = [own[each] for each in integrator._network.weights]
                found.append((chosen, integrator._by_draws(np.flatnonzero(chosen), given)))
        each = next((len(integral.log) // chosen.sum() for chosen, integral in found), 1)
        log, error = np.zeros((2, self.n_obs, each))
        for chosen, integral in found:
            log[chosen] = integral.log.reshape(-1, each)
            error[chosen] = integral.standard_error.reshape(-1, each)
        return Integral(log.ravel(), error.ravel())

    def _by_draws(self, rows: NDArray[np.intp], weights: Sequence[np.ndarray]) -> Integral:
        """The likelihood of rows that are not missing as a whole, by draws of the noise left."""
        n_draws = 1 if self.is_exact else self._draws
        noise = sum(_size(e) for e in (*self._network.normal, *self._network.uniform))
        width = sum(each[0].size for each in self._data) + (1 + self._y.shape[1]) * noise
        at_once = max(1, BLOCK_BYTES // (8 * n_draws * max(width, 1)))
        parts = [
            self._log_weights(rows[start : start + at_once], n_draws, weights)
            for start in range(0, len(rows), at_once)
        ]
        log_weights, most = (np.concatenate(each) for each in zip(*parts, strict=True))
        log = scipy.special.logsumexp(log_weights, axis=1) - np.log(n_draws)
        if n_draws == 1:
            return Integral(log, np.zeros(len(log)))
        with np.errstate(invalid="ignore", over="ignore"):
            relative = np.exp(log_weights - log[:, None])
            unseen = np.exp(most - log) / n_draws
        error = relative.std(axis=1, ddof=1) / n_draws**0.5
        error = np.where(error < ALIKE, unseen, error)
        return Integral(log, np.where(error <= LARGEST_ERROR, error, np.inf))

    def _log_weights(
        self, rows: NDArray[np.intp], n: int, weights: Sequence[np.ndarray]
    ) -> tuple[Numbers, Numbers]:
        """Logs of the weights (rows, n) of draws for each row, and the largest there can be."""
        data, y, missing = taken(self._data, rows), self._y[rows], self._missing[rows]
        many_y = np.repeat(y, n, axis=0)
        levels = [self._rng.random((len(many_y), *e.type.shape[1:])) for e in self._network.uniform]
        if not self._guided:
            noise = [self._normal(e, len(many_y)) for e in self._rest]
            log = self._log_density(repeated(data, n), many_y, noise, levels, weights)
            if log.shape[1] < missing.shape[1]:
                missing = missing.any(axis=1, keepdims=True)
            log = np.where(np.repeat(missing, n, axis=0), 0.0, log)
            is_density = isinstance(self._network.law, Other) and "float" in self._network.y.dtype
            most = np.where(missing, -np.inf, np.inf if is_density else 0.0)
            if self._apart:
                log = log.reshape(len(y), n, -1).transpose(0, 2, 1).reshape(-1, n)
                return log, most.ravel()
            return log.sum(axis=1).reshape(len(y), n), most.max(axis=1)
        if self._network.uniform:
            data, missing = repeated(data, n), np.repeat(missing, n, axis=0)
        none = [np.zeros((len(missing), *e.type.shape[1:])) for e in self._rest]
        at = partial(self._local, data, missing, levels, weights)
        local = at(none)
        most = np.zeros(len(y))  # of a probability
        if not isinstance(self._network.law, Threshold):
            log_most = self._log_normal(local.mean, local.mean, local.covariance)
            most = log_most.reshape(len(y), -1).max(axis=1)
        if not self._network.uniform:
            data, missing = repeated(data, n), np.repeat(missing, n, axis=0)
            at = partial(self._local, data, missing, levels, weights)
            local = local.repeated(n)
        log_likelihood = self._log_normal(many_y, local.mean, local.covariance)
        if self._rest:
            log_likelihood = self._importance(many_y, n, local, at)
        return log_likelihood.reshape(len(y), n), most

    def _importance(
        self, y: np.ndarray, n: int, local: _Local, at: Callable[[list[np.ndarray]], _Local]
    ) -> Numbers:
        """Log weights of draws of noise, from the prior and from linear models ``at`` values."""
        n_prior = int(np.ceil(SHARE_OF_PRIOR * n))
        number = np.arange(len(y)) % n - n_prior  # negative: of the prior
        e0 = self._rng.standard_normal((len(y), local.slope.shape[2]))
        e, models, centre = e0, [], np.zeros_like(e0)
        for k in range(min(CENTRES, n - n_prior)):
            there = local
            if k > 0:
                centre = self._rng.standard_normal((len(y) // n, e0.shape[1])).repeat(n, axis=0)
                there = at(self._split(centre))
            model = there.about(centre)
            of_model = (number >= 0) & (number % CENTRES == k)
            e = np.where(of_model[:, None], self._given_targets(e0, y, model), e)
            models.append((np.log(of_model.mean()), model))
        proposed = np.full(len(y), np.log(n_prior / n))
        for log_share, model in models:
            log_ratio = self._log_normal(y, model.mean + _times(model.slope, e), model.covariance)
            log_ratio -= self._log_normal(y, model.mean, model.marginal)
            proposed = np.logaddexp(proposed, log_share + log_ratio)
        there = at(self._split(e))
        return self._log_normal(y, there.mean, there.covariance) - proposed

    def _given_targets(self, e: Numbers, y: np.ndarray, model: _Local) -> Numbers:
        """Draws of the noise given the targets by a linear model, from those of its prior."""
        xi = _times(self._root(model.covariance), self._rng.standard_normal(model.mean.shape))
        S, mean = model.marginal, model.mean
        residual = self._datum(y, mean, S) - mean - _times(model.slope, e) - xi
        return e + _times(
            model.slope.transpose(0, 2, 1), np.linalg.solve(S, residual[..., None])[..., 0]
        )

    def _log_normal(self, y: np.ndarray, mean: Numbers, covariance: Numbers) -> Numbers:
        """Log density of what is observed if it, or its utility, is normal with these moments."""
        if isinstance(self._network.law, Threshold):
            sd = np.sqrt(covariance[:, 0, 0])
            above, below = log_probability_above(self._network.law.level, mean[:, 0], sd)
            return np.where((y[:, 0] > 0) == self._network.law.increasing, above, below)
        root = self._root(covariance)
        white = np.linalg.solve(root, (y - mean)[..., None])[..., 0]
        log_det = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        return -0.5 * (white**2).sum(1) - log_det - 0.5 * y.shape[1] * np.log(2 * np.pi)

    def _root(self, covariance: Numbers) -> Numbers:
        """Cholesky factors, or what is wrong."""
        with suppress(np.linalg.LinAlgError):
            root: Numbers = np.linalg.cholesky(covariance)
            if np.isfinite(root).all():
                return root
        raise ValueError(
            f"the noise of {describe(self._network.y)} is zero, infinite or lost in rounding at a "
            "draw of the posterior, where the log likelihood is not defined; look for chains that "
            "have not converged, or give the noise a prior that keeps it from zero."
        )

    def _datum(self, y: np.ndarray, mean: Numbers, covariance: Numbers) -> Numbers:
        """What is observed, or a draw of its utility."""
        law = self._network.law
        if not isinstance(law, Threshold):
            return y
        above = ((y > 0) == law.increasing)[:, 0]
        lower, upper = np.where(above, law.level, -np.inf), np.where(above, np.inf, law.level)
        sd, out = np.sqrt(covariance[:, 0, 0]), np.empty(len(y))
        truncated_normal_kernel(self._rng, mean[:, 0], sd, lower, upper, out)
        return out[:, None]

    def _log_density(
        self,
        data: Sequence[np.ndarray],
        y: np.ndarray,
        noise: list[np.ndarray],
        levels: list[np.ndarray],
        weights: Sequence[np.ndarray],
    ) -> Numbers:
        """Log density of each number that is observed, given all noise."""
        law = self._network.law
        if isinstance(law, Other):
            values = y.reshape(len(y), *self._network.columns).astype(law.value.dtype)
            [log] = self._function(*data, values, *noise, *levels, *weights)
            return np.reshape(log, (len(y), -1))
        mean, sd = self._function(*data, *noise, *levels, *weights)
        if isinstance(law, Largest):
            return log_probability_of_largest(y.astype(np.intp)[:, 0], mean, sd)[:, None]
        assert isinstance(law, Threshold)
        above, below = log_probability_above(law.level, mean, sd)
        return np.where((y > 0) == law.increasing, above, below)

    def _local(
        self,
        data: Sequence[np.ndarray],
        missing: np.ndarray,
        levels: list[np.ndarray],
        weights: Sequence[np.ndarray],
        noise: list[np.ndarray],
    ) -> _Local:
        none = [np.zeros((len(missing), *e.type.shape[1:])) for e in self._linear]
        mean, sd, G, A = self._function(*data, *noise, *none, *levels, *weights)
        covariance = A @ A.transpose(0, 2, 1)
        diagonal = np.arange(mean.shape[1])
        with np.errstate(over="ignore"):
            covariance[:, diagonal, diagonal] += sd**2
        return _Local(mean, covariance, G).without(missing)

    def _split(self, e: Numbers) -> list[np.ndarray]:
        """Noise of all layers in one row of numbers, layer by layer."""
        ends = np.cumsum([_size(each) for each in self._rest])[:-1]
        return [
            part.reshape(len(e), *each.type.shape[1:])
            for part, each in zip(np.split(e, ends, axis=1), self._rest, strict=True)
        ]

    def _normal(self, e: TensorVariable, n: int) -> Numbers:
        return self._rng.standard_normal((n, *e.type.shape[1:]))

    @cached_property
    def _function(self) -> pytensor.compile.Function:
        """The law of the targets, given noise."""
        network = self._network
        inputs = [*self._rest, *self._linear, *network.uniform, *network.weights.values()]
        first = list(network.rows.values())
        if isinstance(network.law, Other):
            first = [*first, network.law.value]
            outputs = [*network.parameters]
        else:
            mean, sd = network.parameters
            n_columns = None if isinstance(network.law, Largest) else self._y.shape[1]
            sd = _as_columns(sd + pt.zeros_like(mean), n_columns)
            mean = _as_columns(mean, n_columns)
            outputs = [mean, sd]
            if self._guided:
                outputs += [_slopes(mean, self._y.shape[1], e) for e in (self._rest, self._linear)]
        return compiled([*first, *inputs], outputs)


def _as_columns(parameter: TensorVariable, n: int | None) -> TensorVariable:
    columns = parameter.reshape((parameter.shape[0], -1 if n is None else n))
    return columns.astype("float64")


def _slopes(
    mean: TensorVariable, n_columns: int, noise: Sequence[TensorVariable]
) -> TensorVariable:
    """Derivatives of each row's means by its own noise, shape (n_obs, n_columns, n_noise)."""
    if not noise:
        return pt.zeros((mean.shape[0], n_columns, 0))
    rows = []
    for column in range(n_columns):
        slopes: Any = pt.grad(mean[:, column].sum(), list(noise), disconnected_inputs="ignore")
        flat = [slope.reshape((mean.shape[0], -1)) for slope in slopes]
        rows.append(pt.concatenate(flat, axis=1))
    return pt.stack(rows, axis=1)


def _size(noise: TensorVariable) -> int:
    """Numbers for each row."""
    return int(np.prod(noise.type.shape[1:]))


def _times(matrices: Numbers, vectors: Numbers) -> Numbers:
    return (matrices @ vectors[..., None])[..., 0]

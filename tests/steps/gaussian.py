"""Gaussian priors as users write them, with the mean and the covariance that they mean."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import linalg

MEAN = np.array([1.0, -2.0, 0.5])


def covariance(seed, correlation):
    """Unequal scales, and correlations that alternate in sign or do not."""
    scales = np.random.default_rng(seed).uniform(0.5, 1.5, 3)
    return np.outer(scales, scales) * correlation ** np.abs(np.subtract.outer(range(3), range(3)))


COV = covariance(0, 0.9)
OTHER = covariance(1, -0.8)
BOTH = np.stack([COV, OTHER])


@dataclass(frozen=True)
class Prior:
    """Statement of variables inside a model; mean and covariance of their raveled values."""

    state: Callable[[], list]
    mean: np.ndarray
    covariance: np.ndarray

    def vector(self, variables):
        return pt.concatenate([pt.atleast_1d(variable).ravel() for variable in variables])

    def posterior(self, design, noise, y):
        """Mean and covariance given ``y ~ N(design theta, noise^2)``."""
        precision = np.linalg.inv(self.covariance)
        updated = np.linalg.inv(precision + design.T @ design / noise**2)
        return updated @ (precision @ self.mean + design.T @ y / noise**2), updated


def several():
    return [
        pm.Normal("scalar", -0.5, 2.0),
        pm.MvNormal("vector", MEAN, cov=COV),
        pm.Normal("matrix", [1.0, -1.0], [[0.5], [1.5]], shape=(2, 2)),
    ]


def as_data():
    mean = pm.Data("prior_mean", MEAN)
    root = pm.Data("prior_root", np.linalg.cholesky(COV))
    return [pm.MvNormal("theta", mean, chol=root)]


def one(build, *args, **kwargs):
    return lambda: [build("theta", *args, **kwargs)]


def statements(matrices):
    return {
        "cov": matrices,
        "chol": np.linalg.cholesky(matrices),
        "tau": np.linalg.inv(matrices),
    }


PRIORS = {
    "normal": Prior(one(pm.Normal, MEAN, [0.5, 1.5, 1.0]), MEAN, np.diag([0.25, 2.25, 1.0])),
    "normal, tau": Prior(one(pm.Normal, MEAN, tau=[4.0, 0.5, 1.0]), MEAN, np.diag([0.25, 2, 1])),
    "scalar": Prior(one(pm.Normal, -1.5, 2.0), np.array([-1.5]), np.array([[4.0]])),
    "data": Prior(as_data, MEAN, COV),
    "several": Prior(
        several,
        np.array([-0.5, *MEAN, 1, -1, 1, -1]),
        linalg.block_diag(4.0, COV, np.diag([0.25, 0.25, 2.25, 2.25])),
    ),
    "stacked means, tau": Prior(
        one(pm.MvNormal, np.stack([MEAN, 2 * MEAN]), tau=np.linalg.inv(COV)),
        np.array([*MEAN, *(2 * MEAN)]),
        linalg.block_diag(COV, COV),
    ),
    "batch in a batch": Prior(
        one(pm.MvNormal, MEAN, cov=BOTH[:, None], shape=(2, 2, 3)),
        np.tile(MEAN, 4),
        linalg.block_diag(COV, COV, OTHER, OTHER),
    ),
}
for name, matrix in statements(COV).items():
    PRIORS[name] = Prior(one(pm.MvNormal, MEAN, **{name: matrix}), MEAN, COV)
    PRIORS[f"repeated, {name}"] = Prior(
        one(pm.MvNormal, MEAN, **{name: matrix}, shape=(2, 3)),
        np.tile(MEAN, 2),
        linalg.block_diag(COV, COV),
    )
for name, matrices in statements(BOTH).items():
    PRIORS[f"batch, {name}"] = Prior(
        one(pm.MvNormal, MEAN, **{name: matrices}),
        np.tile(MEAN, 2),
        linalg.block_diag(COV, OTHER),
    )


def design(n):
    """Three observations of ``n`` coefficients, and what was observed."""
    rng = np.random.default_rng(n)
    return rng.normal(size=(3, n)) / np.sqrt(n), rng.normal(size=3)


def regression(prior, *, noise=1.0, link=lambda x: x):
    """A model with this prior, and the random variables that have it."""
    A, y = design(len(prior.mean))
    with pm.Model() as model:
        variables = prior.state()
        mean = link(pt.constant(A) @ prior.vector(variables))
        pm.Normal("y", mean, noise, observed=pm.Data("targets", y))
    return model, variables


class WithoutGradient(Op):
    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.array(-np.sum(inputs[0] ** 2))

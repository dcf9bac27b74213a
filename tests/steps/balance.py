"""Does a step propose from the Gaussian it states, and accept with the ratio that goes with it?

The oracle knows nothing of coordinates, carried values or rho: it takes the log density and its
gradient from PyMC, the mean and the covariance of the prior from the test, and the densities of
the proposal from SciPy. Vectors are the values of a step's variables, raveled one after another.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

import pymc_nnsteps as nns


@dataclass(frozen=True)
class Oracle:
    """Mean and covariance of a proposal, and the log density and its gradient.

    For MALA, ``covariance`` is the preconditioner and ``mean`` is not used.
    """

    model: object
    step: object
    mean: np.ndarray
    covariance: np.ndarray
    size: float

    def __post_init__(self):
        rvs = [self.model.values_to_rvs[value] for value in self.step.vars]
        how = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}
        compiled = self.model.compile_fn(self.model.logp(), point_fn=True, **how)
        object.__setattr__(self, "logp", lambda point: float(compiled(point)))
        if type(self.step) is not nns.PCN:
            gradient = self.model.compile_fn(self.model.dlogp(vars=rvs), point_fn=True, **how)
            object.__setattr__(self, "gradient", gradient)

    def vector(self, point):
        return np.concatenate([np.ravel(point[value.name]) for value in self.step.vars])

    def proposal(self, point):
        """Mean and covariance of what is proposed from ``point``."""
        x, C, size = self.vector(point), self.covariance, self.size
        if isinstance(self.step, nns.MALA):
            return x + size**2 / 2 * C @ self.gradient(point), size**2 * C
        u = x - self.mean
        if type(self.step) is nns.PCN:
            return self.mean + np.sqrt(1 - size**2) * u, size**2 * C
        g = self.gradient(point) + np.linalg.solve(C, u)
        drift = ((2 - size) * u + 2 * size * C @ g) / (2 + size)
        return self.mean + drift, 8 * size / (2 + size) ** 2 * C

    def log_ratio(self, u, v):
        """Terms of the log of p(v) q(u | v) / [p(u) q(v | u)]."""
        forward = stats.multivariate_normal(*self.proposal(u)).logpdf(self.vector(v))
        backward = stats.multivariate_normal(*self.proposal(v)).logpdf(self.vector(u))
        return np.array([self.logp(v), -self.logp(u), backward, -forward])


def propose(step, point, seed):
    """The point that a step proposes, and the log of its acceptance ratio."""
    current = step._locate(point)
    rng = np.random.default_rng(seed)
    _, log_ratio, _, values = step._proposal(rng, step.size, current.place, current.point)
    return {**point, **dict(zip(step._proposal.values, values, strict=True))}, log_ratio


def assert_balance(step, model, point, mean, covariance, size, tolerance=1e-10):
    """Fail unless proposals and ratios are those of the Gaussian that the step states.

    The noise is an unknown linear map of known normals, recovered from as many proposals as
    there are coordinates and one more, which tells that it is linear.
    """
    oracle = Oracle(model, step, np.asarray(mean, float), np.asarray(covariance, float), size)
    n = len(oracle.vector(point))
    expected_mean, expected_covariance = oracle.proposal(point)
    normals, deviations = [], []
    for seed in range(n + 1):
        proposed, log_ratio = propose(step, point, seed)
        terms = oracle.log_ratio(point, proposed)
        error = abs(log_ratio - terms.sum()) / max(1.0, np.abs(terms).max())
        assert error < tolerance, f"log ratio {log_ratio}, not {terms.sum()}"
        normals.append(np.random.default_rng(seed).standard_normal(n))
        deviations.append(oracle.vector(proposed) - expected_mean)
    root = np.linalg.solve(np.array(normals[:n]), np.array(deviations[:n])).T
    scale = max(1.0, np.abs(deviations).max())
    np.testing.assert_allclose(root @ normals[n], deviations[n], atol=1e3 * tolerance * scale)
    np.testing.assert_allclose(
        root @ root.T, expected_covariance, rtol=1e4 * tolerance, atol=1e3 * tolerance
    )

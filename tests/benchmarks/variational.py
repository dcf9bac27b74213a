"""Variational sweeps: milliseconds beside plain NumPy, and the share of matrix products.

The plain version is of the same updates for one hidden layer, one unit and one row after another
where the equations have an index. Times are medians of sweeps in turns.
"""

import time

import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_nnsteps as nns
from pymc_nnsteps.variational.ascent import start_layers, update_layers, update_scales
from pymc_nnsteps.variational.reading import Reading, read_model
from pymc_nnsteps.variational.rows import (
    GateFactors,
    chunks,
    forward_gates,
    sweep_rows,
)
from tests.benchmarks.timing import milliseconds

SETTINGS = {
    "N = 270, 2-20-1": (270, 2, (20,)),
    "N = 455, 13-50-1": (455, 13, (50,)),
    "N = 927, 8-50-1": (927, 8, (50,)),
    "N = 927, 50-50-1": (927, 50, (50,)),
    "N = 270, 2-20-20-1": (270, 2, (20, 20)),
    "N = 927, 8-50-50-1": (927, 8, (50, 50)),
}
PLAIN = 1
"""Deepest network of the plain version."""


def problem(n_obs: int, n_features: int, hidden: tuple[int, ...]) -> pm.Model:
    rng = np.random.default_rng(36)
    X = rng.uniform(-2, 2, size=(n_obs, n_features))
    y = 0.1 * X[:, 0] ** 2 + 10 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(n_obs)
    return nns.bow_tie(X, y, hidden=hidden)


class Sweeps:
    """Sweeps of coordinate ascent, one for each call."""

    def __init__(self, reading: Reading) -> None:
        self.network, self.x, self.y = reading.network, reading.inputs, reading.targets
        rng = np.random.default_rng(0)
        self.layers = start_layers(self.network, self.x, self.y, "laplace", rng, len(self.x))
        self.gates = forward_gates(self.network, self.layers, self.x)

    def __call__(self) -> None:
        pairs = zip(self.network.layers, self.layers, strict=True)
        layers = [update_scales(*pair) for pair in pairs]
        self.gates, sums = sweep_rows(self.network, layers, self.x, self.y, self.gates)
        self.layers = update_layers(self.network, layers, sums)


class PlainSweeps(Sweeps):
    """The same for one hidden layer, with a loop over its units and matrices for each."""

    def __call__(self) -> None:
        T = self.network.temperature
        pairs = zip(self.network.layers, self.layers, strict=True)
        hidden, last = (update_scales(*pair) for pair in pairs)
        [gate] = self.gates
        rho = expit(gate.logit)
        ones = np.ones((len(self.x), 1))
        x = np.hstack([ones, self.x])
        e, e_last = hidden.noise_precision, last.noise_precision
        precision = np.diag(e)
        for d in range(len(last.mean)):
            precision = precision + e_last[d] * last.second[d, 1:, 1:]
        S = np.linalg.inv(precision)
        shift = (e_last * self.y) @ last.mean[:, 1:] - e_last @ last.second[:, 0, 1:]
        mean = (shift + e * rho * (x @ hidden.mean.T)) @ S
        V = np.empty_like(mean)
        for d in range(len(hidden.mean)):
            V[:, d] = np.einsum("ni,ij,nj->n", x, hidden.second[d], x)
        z = x @ hidden.mean.T
        logit = e * (z * mean - V / 2) + z / T
        tilt = np.sqrt(V) / T
        rho, omega = expit(logit), np.tanh(tilt / 2) / (2 * tilt)
        for d in range(len(hidden.mean)):
            scales = hidden.tau.mean_inverse * hidden.psi.mean_inverse[d]
            prior = np.diag(np.append(1 / self.network.layers[0].bias_var[d], scales))
            weight = e[d] * rho[:, d] + omega[:, d] / T**2
            cov = np.linalg.inv(prior + (x * weight[:, None]).T @ x)
            m = cov @ (x.T @ (e[d] * rho[:, d] * mean[:, d] + (rho[:, d] - 0.5) / T))
            error = mean[:, d] ** 2 + S[d, d] - 2 * rho[:, d] * (x @ m) * mean[:, d]
            error = error + rho[:, d] * np.einsum("ni,ij,nj->n", x, cov + np.outer(m, m), x)
            hidden.mean[d], hidden.cov[d] = m, cov
            hidden.beta[d] = self.network.layers[0].beta[d] + error.sum() / 2
        a = np.hstack([ones, mean])
        second = a.T @ a
        second[1:, 1:] += len(a) * S
        for d in range(len(last.mean)):
            scales = last.tau.mean_inverse * last.psi.mean_inverse[d]
            prior = np.diag(np.append(1 / self.network.layers[1].bias_var[d], scales))
            cov = np.linalg.inv(prior + e_last[d] * second)
            m = cov @ (e_last[d] * (a.T @ self.y[:, d]))
            error = (self.y[:, d] ** 2).sum() - 2 * m @ (a.T @ self.y[:, d])
            error += np.sum(second * (cov + np.outer(m, m)))
            last.mean[d], last.cov[d] = m, cov
            last.beta[d] = self.network.layers[1].beta[d] + error / 2
        for layer in (hidden, last):
            layer.__dict__.pop("second", None)
            layer.__dict__.pop("squares", None)
        self.gates, self.layers = [GateFactors(logit, tilt)], [hidden, last]


def main() -> None:
    for name, (n_obs, n_features, hidden) in SETTINGS.items():
        reading = read_model(problem(n_obs, n_features, hidden))
        contenders = {"here": Sweeps(reading)}
        if len(hidden) <= PLAIN:
            contenders["plain NumPy"] = PlainSweeps(reading)
        times = milliseconds(contenders, calls=3, repeats=9)
        shown = ", ".join(f"{label} {value:.1f} ms" for label, value in times.items())
        print(f"  {name:20} per sweep: {shown}")
    share_of_products(100_000, 50, 50)


def share_of_products(n_obs: int, n_features: int, units: int) -> None:
    """Time of a large sweep, and of its matrix products alone."""
    reading = read_model(problem(n_obs, n_features, (units,)))
    sweeps = Sweeps(reading)
    sweeps()
    start = time.process_time()
    sweeps()
    total = time.process_time() - start
    pairs = (n_features + 1) * (n_features + 2) // 2
    rows = chunks(sweeps.network, n_obs)[0].stop
    outer, x, rho = np.ones((pairs, rows)), np.ones((rows, n_features)), np.ones((rows, units))
    weights, both = np.ones((units, pairs)), np.ones((rows, 2 * units))
    start = time.process_time()
    for _ in range(n_obs // rows):
        weights @ outer
        both.T @ outer.T
        for _ in range(2):
            x @ x[:units].T
            rho.T @ x
            rho.T @ rho
    products = time.process_time() - start
    print(
        f"  N = {n_obs}, {n_features}-{units}-1: {total:.1f} s per sweep, of which matrix products "
        f"take {products / total:.0%}"
    )


if __name__ == "__main__":
    main()

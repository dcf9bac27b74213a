"""The networks of ``hierarchical_mlp`` and their priors in NumPy, written from the equations."""

import re

import numpy as np
from scipy import stats

from pymc_nnsteps.activations import Normalize, PiecewiseLinear
from tests.laws.graphs import start_of

INF = np.inf


def levels(notation):
    """Width, the three alphas and whether the width is scaled."""
    numbers = notation.lstrip("x").split(":")
    numbers += [""] * (4 - len(numbers))
    return *(float(number) if number else INF for number in numbers), notation[0] == "x"


def gamma_logpdf(tau, alpha, mean):
    """Shape ``alpha / 2`` and rate ``alpha / (2 mean)``."""
    return stats.gamma.logpdf(tau, alpha / 2, scale=2 * mean / alpha).sum()


def precision_and_logp(point, name, notation, n_sources=1):
    """Lowest precision of a group, and the log density of its precisions."""
    width, common, unit, weight, scaled = levels(notation)
    precision, density = width**-2, 0.0
    if scaled:
        alpha = weight if weight < INF else unit
        assert alpha != 2
        precision *= n_sources if alpha > 2 else n_sources ** (2 / alpha)
        precision *= alpha / (alpha - 2) if 2 < alpha < INF else 1
    for alpha, tau in ((common, f"tau_{name}"), (unit, f"tau_{name}_unit")):
        if alpha < INF:
            density += gamma_logpdf(point[tau], alpha, precision)
            precision = point[tau]
        else:
            assert tau not in point
    return precision, density


def real_logpdf(residual, precision, alpha):
    law = stats.norm if alpha == INF else stats.t(alpha)
    root = np.sqrt(precision)
    return np.sum(law.logpdf(residual * root) + np.log(root))


def prior_logp(point, priors):
    """Log density of the prior of networks with full keys, such as ``h1o``."""
    density = 0.0
    adjustments = {}
    for key, alpha in priors.items():
        if key[0] == "a":
            adjustments[key[1:]] = point[f"tau_{key}"]
            density += gamma_logpdf(point[f"tau_{key}"], alpha, 1.0)
    for key, notation in priors.items():
        if key == "noise":
            density += precision_and_logp(point, key, notation)[1]
        elif weights := re.fullmatch(r"(i|h\d)(h\d|o|s)", key):
            w = point[f"W_{key}"]
            n_destinations, n_sources = w.shape
            precision, above = precision_and_logp(point, key, notation, n_sources)
            by_source = np.broadcast_to(precision, n_sources)
            by_destination = np.broadcast_to(adjustments.get(weights[2], 1.0), n_destinations)
            density += above
            for i in range(n_sources):
                for j in range(n_destinations):
                    tau = by_source[i] * by_destination[j]
                    density += real_logpdf(w[j, i], tau, levels(notation)[3])
        elif key[0] in "bt":
            precision, above = precision_and_logp(point, key, notation)
            if key[0] == "b":
                precision = precision * adjustments.get(key[1:], 1.0)
            precision = np.broadcast_to(precision, point[key].shape)
            density += above + real_logpdf(point[key], precision, levels(notation)[3])
    return density


def normalised(u, groups=1):
    parts = np.split(u, groups, axis=1)
    return np.hstack([v / np.sqrt(0.01 + np.mean(v**2, axis=1)[:, None]) for v in parts])


FUNCTIONS = {
    "tanh": np.tanh,
    "softplus": lambda u: np.log(1 + np.exp(u)),
    "softplus0": lambda u: np.log((1 + np.exp(u)) / 2),
    "identity": lambda u: u,
    "softmax": lambda u: np.exp(u) / np.exp(u).sum(axis=1)[:, None],
    "normalize": normalised,
    Normalize(2): lambda u: normalised(u, 2),
    PiecewiseLinear([0], [0.5, 1], [0.2]): lambda u: np.where(u < 0, 0.5, 1) * u + 0.2,
}


def forward(point, x, activations=("tanh",), last="o"):
    """Outputs, or how the logarithms of their noise vary: of shape (n_obs, n_outputs)."""
    passed_on = {"i": x + point.get("ti", 0.0)}
    for layer, activation in enumerate([*activations, None], 1):
        name = last if activation is None else f"h{layer}"
        u = np.zeros((len(x), 1)) + point.get(f"b{name}", 0.0)
        for source, value in passed_on.items():
            if f"W_{source}{name}" in point:
                u = u + value @ point[f"W_{source}{name}"].T
        if activation is not None:
            passed_on[name] = FUNCTIONS[activation](u) + point.get(f"t{name}", 0.0)
    return u


def random_point(model, seed=0):
    """Values of the free variables themselves: precisions, not their logarithms."""
    rng = np.random.default_rng(seed)
    draws = {name: rng.normal(size=value.shape) for name, value in start_of(model).items()}
    return {
        name.removesuffix("_log__"): np.exp(z / 2) if name.endswith("_log__") else z
        for name, z in draws.items()
    }

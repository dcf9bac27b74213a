"""The networks of this package, by their builders and what ``pm.sample`` gives them to."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
from pytensor import config

import pymc_nnsteps as nns
from tabular.data import Split
from tabular.predictions import Predicted, mean_density

BUILDERS = {
    "hierarchical": nns.hierarchical_mlp,
    "bow_tie": nns.bow_tie,
    "intermediate_noise": nns.intermediate_noise_mlp,
}
CLASS_LIKELIHOODS = {
    "hierarchical": ("bernoulli", "categorical"),
    "intermediate_noise": ("probit", "multinomial_probit"),
}
"""Likelihoods of two classes, and of more; ``bow_tie`` has none."""


@dataclass(frozen=True)
class Network:
    """A builder with its arguments, and the lengths of chains.

    Attributes
    ----------
    builder : {"hierarchical", "bow_tie", "intermediate_noise"}
    options : mapping
        Arguments of the builder that are not its defaults.
    draws, tune, chains : int
    sampler : {"pymc", "nutpie"}
        As of ``pm.sample(nuts_sampler=)``: "pymc" leaves steps to the package.
    precision : {"float64", "float32"}
    trained : mapping or None
        Arguments of ``nns.trained_starts`` if chains begin there.
    """

    builder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    draws: int = 300
    tune: int = 300
    chains: int = 2
    sampler: str = "pymc"
    precision: str = "float64"
    trained: Mapping[str, Any] | None = None

    def __call__(self, data: Split, seed: int) -> tuple[Predicted | np.ndarray, dict[str, float]]:
        """Predictions, and how well chains agree on the function at test inputs."""
        logging.getLogger("pymc").setLevel(logging.ERROR)
        with config.change_flags(floatX=self.precision):
            return self._sampled(data, seed)

    def _sampled(self, data: Split, seed: int) -> tuple[Predicted | np.ndarray, dict[str, float]]:
        options = dict(self.options)
        if data.n_classes:
            likelihoods = CLASS_LIKELIHOODS[self.builder]
            options["likelihood"] = likelihoods[data.n_classes > 2]
        with BUILDERS[self.builder](data.X, data.y, **options) as model:
            given: dict[str, Any] = {}
            if self.sampler != "pymc":
                given["nuts_sampler"] = self.sampler
            if self.trained is not None:
                given["initvals"] = nns.trained_starts(
                    chains=self.chains, random_seed=seed, **self.trained
                )
            idata = pm.sample(
                self.draws,
                tune=self.tune,
                chains=self.chains,
                cores=1,
                random_seed=seed,
                var_names=nns.without_latents(),
                compute_convergence_checks=False,
                progressbar=False,
                quiet=True,
                **given,
            )
        if data.n_classes:
            return class_probabilities(idata, model, data, seed), {}
        agreement = nns.diagnose(idata, data.X_test, model=model).table.loc["f"]
        found = {"rhat": float(agreement["rhat"]), "rhat_worst": float(agreement["rhat worst"])}
        return predictions(idata, model, data, seed), found


def predictions(idata: Any, model: pm.Model, data: Split, seed: int) -> Predicted:
    """The predictive law of real targets: the mixture over all draws."""
    quiet = {"model": model, "progressbar": False}
    means = nns.predict(idata, data.X_test, **quiet).values
    drawn = nns.predict(idata, data.X_test, kind="response", random_seed=seed, **quiet).values
    drawn = drawn.reshape(-1, len(data.X_test))
    mean = means.reshape(drawn.shape).mean(axis=0)
    with model:
        pm.set_data({"inputs": data.X_test, "targets": data.y_test})
    densities = nns.log_likelihood(idata, random_seed=seed, **quiet)["log_likelihood"]["y"]
    log_density = mean_density(densities.values.reshape(drawn.shape))
    return Predicted(mean, drawn.std(axis=0), log_density, lambda p: np.quantile(drawn, p, axis=0))


def class_probabilities(idata: Any, model: pm.Model, data: Split, seed: int) -> np.ndarray:
    """Probabilities of all classes, the means over all draws."""
    drawn = nns.predict(
        idata, data.X_test, model=model, kind="probability", random_seed=seed, progressbar=False
    )
    found = drawn.mean(("chain", "draw")).values
    return np.hstack([1 - found, found]) if data.n_classes == 2 else found

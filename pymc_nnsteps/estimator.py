"""What estimators of scikit-learn have in common: they standardise inputs, sample, and predict."""

import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from numbers import Integral
from typing import Any, Self

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    check_X_y,
    validate_data,
)

from pymc_nnsteps.arguments import integer_from_zero, positive_integer, require_bool, require_finite
from pymc_nnsteps.diagnostics import diagnose
from pymc_nnsteps.models import Model, bow_tie, hierarchical_mlp, intermediate_noise_mlp
from pymc_nnsteps.prediction import predict, without_latents
from pymc_nnsteps.prediction.new_inputs import Kind
from pymc_nnsteps.tables import before_encoding, encoded, sources

BUILDERS: dict[str, Callable[..., pm.Model]] = {
    "hierarchical": hierarchical_mlp,
    "bow_tie": bow_tie,
    "intermediate_noise": intermediate_noise_mlp,
}

OF_ROWS = {"exposure", "censored"}
"""Options with an entry for each row."""

FEWEST_DRAWS = 4
"""Draws of a chain from which its convergence can be judged."""

JUDGED = 100
"""About the number of rows whose function values are judged."""

_log = logging.getLogger("pymc.nnsteps")


@dataclass(eq=False, repr=False)
class NetworkEstimator(BaseEstimator):
    """Base of the regressor and the classifier: samples a network and predicts new rows."""

    network: str = "hierarchical"
    _: KW_ONLY
    hidden: Sequence[int] | None = None
    options: Mapping[str, Any] | None = None
    draws: int = 200
    tune: int = 200
    chains: int = 4
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state with the model as bytes: ``pickle`` itself does not take models of PyMC."""
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = cloudpickle.dumps(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        if "model_" in state:
            state = state | {"model_": cloudpickle.loads(state["model_"])}
        super().__setstate__(state)

    def _sample(
        self, X: NDArray[np.float64], y: object, times: NDArray[np.int64], **options: Any
    ) -> Self:
        """Sample a network of standardised inputs and these targets, each row so many times."""
        if self.hidden is not None:
            options["hidden"] = self.hidden
        options |= self._further(options)
        for name in OF_ROWS & options.keys():
            values = np.asarray(options[name])
            options[name] = values.repeat(times) if values.shape == times.shape else values
        self._require_arguments()
        rows = self._named(X)
        output = "pandas" if isinstance(rows, pd.DataFrame) else "default"
        self.input_scaler_ = StandardScaler().set_output(transform=output).fit(rows)
        of_levels = (np.isin(X, (0, 1)) | np.isnan(X)).all(axis=0)  # indicators have their scale
        self.input_scaler_.mean_[of_levels], self.input_scaler_.scale_[of_levels] = 0.0, 1.0
        inputs = self.input_scaler_.transform(rows)
        began = time.perf_counter()
        self._sampling_seed, self._noise_seed = (
            int(seed) for seed in check_random_state(self.random_state).randint(2**31 - 1, size=2)
        )
        with Model(model=None) as self.model_:
            BUILDERS[self.network](inputs, y, **options)
            self.idata_ = pm.sample(
                draws=self.draws,
                tune=self.tune,
                chains=self.chains,
                cores=effective_n_jobs(self.n_jobs),
                random_seed=self._sampling_seed,
                var_names=without_latents(self.model_),
                compute_convergence_checks=False,
                progressbar=self._is_seen,
                quiet=True,
            )
        verdict = "Whether they have converged is not known."
        if self.chains > 1 and self.draws >= FEWEST_DRAWS:
            judged = inputs[:: max(1, len(inputs) // JUDGED)]
            self.diagnosis_ = diagnose(self.idata_, judged, model=self.model_)
            verdict = self.diagnosis_.verdict
            if not self.diagnosis_.converged:
                warnings.warn(self.diagnosis_.verdict, ConvergenceWarning, stacklevel=3)
        if self._is_seen:
            _log.info(
                f"{type(self).__name__}: {BUILDERS[self.network].__name__} given {len(rows)} rows "
                f"of {rows.shape[1]} inputs, {self.chains} chains of {self.draws} draws after "
                f"{self.tune} of tuning, {time.perf_counter() - began:.0f} s. {verdict}"
            )
        return self

    @property
    def _is_seen(self) -> bool:
        """Whether somebody sees progress: on request, or in a terminal or notebook."""
        if self.verbose is None:
            return sys.stderr.isatty() or "ipykernel" in sys.modules
        return self.verbose

    def _validated(self, X: Any, *y: Any, reset: bool = True, **options: Any) -> Any:
        """Numbers of a table, of text and categories indicators of the levels seen by ``fit``."""
        options["ensure_all_finite"] = "allow-nan"
        if reset:
            has_text = bool(_columns_of_no_numbers(X))
            self._labels = encoded("X", X, ("obs", "feature")).columns if has_text else None
        if self._labels is None:
            found = validate_data(self, X, *y, dtype="float64", reset=reset, **options)
        else:
            rows = encoded("X", X, ("obs", "feature"), self._labels).values
            if rows.ndim != 2 or rows.shape[1] != len(self._labels):
                raise ValueError(
                    f"X must be a table with the columns {before_encoding(self._labels)}, as for "
                    f"fit; got an array of shape {rows.shape}."
                )
            validate_data(self, X, reset=reset, skip_check_array=True)
            check = check_X_y if y else check_array
            found = check(rows, *y, dtype="float64", estimator=self, **options)
        if not self._imputes:
            advice = (
                'remove or impute them, or pass options={"missing": "impute"} to have them drawn'
            )
            require_finite("X", found[0] if y else found, advice, sources(self._names))
        return found

    @property
    def _names(self) -> Sequence[object]:
        """Names of the columns of numbers, if these are known."""
        if self._labels is not None:
            return self._labels
        return list(getattr(self, "feature_names_in_", ()))

    @property
    def _imputes(self) -> bool:
        """Whether missing inputs are variables of the network."""
        return isinstance(self.options, Mapping) and self.options.get("missing") == "impute"

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn is to know of the estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._imputes
        return tags

    def _require_arguments(self) -> None:
        """Check the arguments of the sampler."""
        for name in ("draws", "chains"):
            positive_integer(name, getattr(self, name))
        integer_from_zero("tune", self.tune)
        if self.verbose is not None:
            require_bool("verbose", self.verbose)
        if not isinstance(self.n_jobs, Integral | None):
            raise ValueError(f"n_jobs must be an integer, or None; got {self.n_jobs!r}.")

    def _further(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Further arguments of the builder, beside those that the estimator gives to it."""
        builder = BUILDERS[self.network]
        known = [
            name
            for name, argument in signature(builder).parameters.items()
            if argument.kind is argument.KEYWORD_ONLY and name not in (*own, "likelihood")
        ]
        further = {} if self.options is None else self.options
        if not isinstance(further, Mapping):
            raise ValueError(
                f"options must be a mapping from arguments to values; got {further!r}."
            )
        for name in further:
            if name not in known:
                raise ValueError(
                    f"options has {name!r}, which the estimator sets itself or "
                    f"{builder.__name__} does not have; it may have {', '.join(known)}."
                )
        return further

    def _named(self, rows: NDArray[np.float64]) -> NDArray[np.float64] | pd.DataFrame:
        """Inputs with the names of their columns, if these are known."""
        return pd.DataFrame(rows, columns=self._names) if len(self._names) else rows

    def _predict(self, X: ArrayLike | pd.DataFrame, kind: Kind) -> NDArray[np.float64]:
        """Predictions of all draws for new rows, of shape (n_draws, n_obs, n_outputs)."""
        check_is_fitted(self, "idata_")
        rows = self._validated(X, reset=False)
        new = {"inputs": self.input_scaler_.transform(self._named(rows))}
        if "exposure" in self.model_:
            new["exposure"] = np.ones(len(rows))
        predicted = predict(
            self.idata_,
            new,
            model=self.model_,
            kind=kind,
            random_seed=self._noise_seed,
            progressbar=self._is_seen,
        )
        return np.asarray(predicted.stack(sample=("chain", "draw")).transpose("sample", ...))


def times_of(rows: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[np.int64]:
    """How often each row counts, by its weight: the power of its likelihood."""
    if sample_weight is None:
        return np.ones(len(rows), dtype="int64")
    weights = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
    if np.any(weights != np.rint(weights)):
        raise ValueError(
            "sample_weight must be whole numbers, how often a row counts: these networks have no "
            "likelihood to a fractional power."
        )
    return np.asarray(weights, dtype="int64")


def _columns_of_no_numbers(table: Any) -> list[Any]:
    """Names of the columns of a table that have text, dates, or the like."""
    found = []
    for name in getattr(table, "columns", ()):
        try:
            np.asarray(table[name], dtype="float64")
        except (TypeError, ValueError):
            found.append(name)
    return found

"""Networks as estimators of scikit-learn, which standardise their data and sample by ``pm.sample``.

scikit-learn is an optional dependency: ``pip install "pymc_nnsteps[sklearn]"``.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import Any, Literal, Self

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from pymc_nnsteps.arguments import (
    positive_integer,
    positive_number,
    require_bool,
    require_choice,
)
from pymc_nnsteps.diagnostics import diagnose
from pymc_nnsteps.models import Model, bow_tie, hierarchical_mlp, intermediate_noise_mlp
from pymc_nnsteps.prediction import predict, without_latents
from pymc_nnsteps.prediction.new_inputs import Kind

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError:
    raise ImportError(
        "pymc_nnsteps.sklearn needs scikit-learn; install it with "
        'pip install "pymc_nnsteps[sklearn]".'
    ) from None

__all__ = ["NetworkClassifier", "NetworkRegressor"]

BUILDERS: dict[str, Callable[..., pm.Model]] = {
    "hierarchical": hierarchical_mlp,
    "bow_tie": bow_tie,
    "intermediate_noise": intermediate_noise_mlp,
}

CLASS_LIKELIHOODS = {
    "hierarchical": ("bernoulli", "categorical"),
    "intermediate_noise": ("probit", "multinomial_probit"),
}
"""Likelihoods of two classes, and of more."""

FEWEST_DRAWS = 4
"""Draws of a chain from which its convergence can be judged."""

JUDGED = 100
"""About the number of rows whose function values are judged."""


class _Network(BaseEstimator):
    """Base of the regressor and the classifier: samples a network and predicts new rows."""

    def __init__(
        self,
        network: str = "hierarchical",
        *,
        hidden: Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        draws: int = 200,
        tune: int = 200,
        chains: int = 4,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.hidden = hidden
        self.options = options
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __getstate__(self) -> dict[str, Any]:
        """The state with the model as bytes: ``pickle`` itself does not take models of PyMC."""
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = cloudpickle.dumps(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = state | {"model_": cloudpickle.loads(state["model_"])}
        super().__setstate__(state)

    def _sample(self, X: NDArray[np.float64], y: object, **options: Any) -> Self:
        """Sample a network of standardised inputs and these targets."""
        if self.hidden is not None:
            options["hidden"] = self.hidden
        options |= self._further(options)
        self._require_arguments()
        rows = self._named(X)
        output = "pandas" if isinstance(rows, pd.DataFrame) else "default"
        self.input_scaler_ = StandardScaler().set_output(transform=output).fit(rows)
        inputs = self.input_scaler_.transform(rows)
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
                progressbar=self.verbose,
                quiet=not self.verbose,
            )
        if self.chains > 1 and self.draws >= FEWEST_DRAWS:
            judged = inputs[:: max(1, len(inputs) // JUDGED)]
            self.diagnosis_ = diagnose(self.idata_, judged, model=self.model_)
            if not self.diagnosis_.converged:
                warnings.warn(self.diagnosis_.verdict, ConvergenceWarning, stacklevel=3)
        return self

    def _require_arguments(self) -> None:
        """Check the arguments of the sampler."""
        for name in ("draws", "chains"):
            positive_integer(name, getattr(self, name))
        if self.tune != 0:
            positive_integer("tune", self.tune)
        require_bool("verbose", self.verbose)
        if not isinstance(self.n_jobs, Integral | None):
            raise ValueError(f"n_jobs must be an integer, or None; got {self.n_jobs!r}.")

    def _further(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Further arguments of the builder, beside those that the estimator gives to it."""
        builder = BUILDERS[self.network]
        known = [
            name
            for name, argument in signature(builder).parameters.items()
            if argument.kind is argument.KEYWORD_ONLY and name not in own
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
        if hasattr(self, "feature_names_in_"):
            return pd.DataFrame(rows, columns=self.feature_names_in_)
        return rows

    def _predict(self, X: ArrayLike | pd.DataFrame, kind: Kind) -> NDArray[np.float64]:
        """Predictions of all draws for new rows, of shape (n_draws, n_obs, n_outputs)."""
        check_is_fitted(self, "idata_")
        rows = validate_data(self, X, dtype="float64", reset=False)
        predicted = predict(
            self.idata_,
            self.input_scaler_.transform(self._named(rows)),
            model=self.model_,
            kind=kind,
            random_seed=self._noise_seed,
            progressbar=self.verbose,
        )
        return np.asarray(predicted.stack(sample=("chain", "draw")).transpose("sample", ...))


class NetworkRegressor(RegressorMixin, _Network):
    """Regression by a Bayesian neural network, with intervals, as an estimator of scikit-learn.

    Inputs and targets are standardised before the network sees them, and predictions are in the
    units of the targets. Sample weights are not supported.

    Parameters
    ----------
    network : {"hierarchical", "bow_tie", "intermediate_noise"}
        Builder of the network: :func:`~pymc_nnsteps.hierarchical_mlp`,
        :func:`~pymc_nnsteps.bow_tie` or :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    hidden : sequence of int, optional
        Widths of the hidden layers; the builder's default if not given.
    sigma : float or "network", optional
        ``"network"``: the noise varies with the inputs. A number: its standard deviation, that of
        standardised targets. It is learnt if not given.
    options : mapping of str, optional
        Further arguments of the builder, such as ``{"activation": "relu"}``. Scales among them
        are those of standardised data.
    draws, tune, chains : int
        As of ``pm.sample``. The defaults are for the hierarchical network; Gibbs sweeps of the
        others are cheaper, and more of them are needed.
    n_jobs : int, optional
        Chains that run at the same time: one if not given, as many as there are processors if -1.
    random_state : int, RandomState or None
        Seed of the chains and of the noise of predictions: a fitted estimator repeats its
        predictions.
    verbose : bool
        Whether to show progress and the messages of ``pm.sample``.

    Attributes
    ----------
    model_ : pm.Model
        The model of the standardised data.
    idata_ : DataTree
        Result of ``pm.sample``, without variables that have an entry for each row of the data.
    diagnosis_ : Diagnosis
        What :func:`~pymc_nnsteps.diagnose` says of two chains or more, at training inputs. If they
        have not converged, ``fit`` gives scikit-learn's ``ConvergenceWarning`` with its verdict.
    input_scaler_, target_scaler_ : StandardScaler
        Scalers that standardise inputs and targets.
    n_features_in_ : int
        Number of columns of ``X``.
    feature_names_in_ : ndarray of str
        Their names, if they are strings; also coordinates of ``model_``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_nnsteps.sklearn import NetworkRegressor
    >>> X = np.random.default_rng(0).uniform(-100, 100, size=(60, 1))
    >>> y = np.abs(X[:, 0])
    >>> network = NetworkRegressor(
    ...     "intermediate_noise", hidden=(4,), draws=50, tune=50, chains=2, random_state=1
    ... ).fit(X, y)
    >>> bool(network.score(X, y) > 0.9)
    True
    >>> lower, upper = network.predict_interval(X, coverage=0.95)
    >>> bool(np.mean((lower < y) & (y < upper)) > 0.9)
    True
    >>> sorted(network.idata_["posterior"].data_vars)
    ['W1', 'W2', 'b1', 'b2', 'noise_X2', 'noise_Z2', 'noise_y']
    """

    def __init__(
        self,
        network: str = "hierarchical",
        *,
        hidden: Sequence[int] | None = None,
        sigma: float | Literal["network"] | None = None,
        options: Mapping[str, Any] | None = None,
        draws: int = 200,
        tune: int = 200,
        chains: int = 4,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            network,
            hidden=hidden,
            options=options,
            draws=draws,
            tune=tune,
            chains=chains,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.sigma = sigma

    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | pd.Series | pd.DataFrame) -> Self:
        """Sample the posterior of the network.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)

        Returns
        -------
        NetworkRegressor
            Itself.
        """
        require_choice("network", self.network, tuple(BUILDERS))
        rows, targets = validate_data(
            self, X, y, dtype="float64", multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        columns = targets.reshape(len(targets), -1)
        self.target_scaler_ = StandardScaler().fit(columns)
        self._has_columns = targets.ndim == 2
        standardised = self.target_scaler_.transform(columns)
        options = {} if self.sigma is None else {"sigma": self.sigma}
        if columns.shape[1] == 1:
            return self._sample(rows, standardised[:, 0], **options)
        if isinstance(y, pd.DataFrame):
            return self._sample(rows, pd.DataFrame(standardised, columns=y.columns), **options)
        return self._sample(rows, standardised, **options)

    def predict(
        self, X: ArrayLike | pd.DataFrame, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict the mean of the targets: the posterior mean of the network's function.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        return_std : bool
            Whether to return standard deviations of predicted targets as well, noise included.

        Returns
        -------
        ndarray, or a pair of ndarray, of shape (n_obs,) or (n_obs, n_outputs)
            The mean, and the standard deviation if it is asked for.
        """
        mean = self._in_units(self._predict(X, "function").mean(axis=0))
        if not return_std:
            return mean
        std = self._predict(X, "response").std(axis=0) * self.target_scaler_.scale_
        return mean, std.reshape(mean.shape)

    def predict_interval(
        self, X: ArrayLike | pd.DataFrame, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict intervals that hold the targets with this probability, with equal tails.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        coverage : float
            Probability of the interval, between 0 and 1.

        Returns
        -------
        lower, upper : ndarray, shape (n_obs,) or (n_obs, n_outputs)
        """
        tail = (1 - positive_number("coverage", coverage, below=1)) / 2
        lower, upper = np.quantile(self._predict(X, "response"), [tail, 1 - tail], axis=0)
        return self._in_units(lower), self._in_units(upper)

    def _in_units(self, standardised: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values in the units and the shape of the targets."""
        values: NDArray[np.float64] = self.target_scaler_.inverse_transform(standardised)
        return values if self._has_columns else values[:, 0]

    def __sklearn_tags__(self) -> Tags:
        """Tags of the estimator for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NetworkClassifier(ClassifierMixin, _Network):
    """Classification by a Bayesian neural network, as an estimator of scikit-learn.

    Inputs are standardised before the network sees them. Labels may be of any kind, two or more.
    Sample weights are not supported.

    Parameters
    ----------
    network : {"hierarchical", "intermediate_noise"}
        Builder of the network: :func:`~pymc_nnsteps.hierarchical_mlp`, whose probabilities are
        logistic, or :func:`~pymc_nnsteps.intermediate_noise_mlp`, where they are probit.
    hidden, options, draws, tune, chains, n_jobs, random_state, verbose
        As of :class:`NetworkRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    model_, idata_, input_scaler_, n_features_in_, feature_names_in_
        As of :class:`NetworkRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_nnsteps.sklearn import NetworkClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> sign = np.where(X[:, 0] > 0, "positive", "negative")
    >>> network = NetworkClassifier(
    ...     "intermediate_noise", hidden=(2,), draws=50, tune=50, chains=2, random_state=1
    ... ).fit(X, sign)
    >>> network.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['positive', 'negative']
    >>> network.predict_proba(X).shape
    (60, 2)
    """

    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | pd.Series) -> Self:
        """Sample the posterior of the network.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        y : array_like or Series, shape (n_obs,)
            Labels.

        Returns
        -------
        NetworkClassifier
            Itself.
        """
        require_choice("network", self.network, tuple(CLASS_LIKELIHOODS))
        rows, labels = validate_data(self, X, y, dtype="float64", ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        of_two, of_more = CLASS_LIKELIHOODS[self.network]
        if len(self.classes_) <= 2:
            return self._sample(rows, codes, likelihood=of_two)
        labelled = pd.Categorical.from_codes(codes, self.classes_)
        return self._sample(rows, labelled, likelihood=of_more)

    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.float64]:
        """Predict the probability of each class: the mean over the posterior.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)

        Returns
        -------
        ndarray, shape (n_obs, n_classes)
            In the order of ``classes_``.
        """
        probability: NDArray[np.float64] = self._predict(X, "probability").mean(axis=0)
        if len(self.classes_) == 2:
            return np.hstack([1 - probability, probability])
        return probability

    def predict(self, X: ArrayLike | pd.DataFrame) -> NDArray[Any]:
        """Predict the class of the largest probability.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)

        Returns
        -------
        ndarray, shape (n_obs,)
        """
        largest = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[largest]
        return labels

"""Networks as scikit-learn estimators, which standardise their data and sample by ``pm.sample``.

scikit-learn is an optional dependency: ``pip install "pymc_nnsteps[sklearn]"``.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import Tags
    from sklearn.utils.multiclass import check_classification_targets
except ModuleNotFoundError:
    raise ImportError(
        "pymc_nnsteps.sklearn needs scikit-learn; install it with "
        'pip install "pymc_nnsteps[sklearn]".'
    ) from None

from pymc_nnsteps.arguments import positive_number, require_choice
from pymc_nnsteps.estimator import BUILDERS, NetworkEstimator, times_of

__all__ = ["NetworkClassifier", "NetworkRegressor"]

CLASS_LIKELIHOODS = {
    "hierarchical": ("bernoulli", "categorical"),
    "intermediate_noise": ("probit", "multinomial_probit"),
}
"""Likelihoods of two classes, and of more."""

REAL = (None, "normal", "student_t")
"""Likelihoods of real targets, which are standardised."""

OF_CLASSES = sorted(name for names in CLASS_LIKELIHOODS.values() for name in names)


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRegressor(RegressorMixin, NetworkEstimator):
    """Regression by a Bayesian neural network, with intervals, as a scikit-learn estimator.

    Inputs (except columns of 0 and 1) and real targets are standardised for the network, and
    predictions are in the units of the targets.

    Parameters
    ----------
    network : {"hierarchical", "bow_tie", "intermediate_noise"}
        Builder of the network: :func:`~pymc_nnsteps.hierarchical_mlp`,
        :func:`~pymc_nnsteps.bow_tie` or :func:`~pymc_nnsteps.intermediate_noise_mlp`.
    hidden : sequence of int, optional
        Widths of the hidden layers; the builder's default if not given.
    sigma : float or "network", optional
        ``"network"``: the noise varies with the inputs. A number: its standard deviation, for
        standardised targets. It is learnt by default.
    likelihood : str, optional
        Likelihood of the builder, such as ``"student_t"``. Targets are standardised for this and
        for ``"normal"``, the default, and left unchanged for counts and durations.
    options : mapping of str, optional
        Further arguments of the builder, such as ``{"activation": "relu"}``, or
        ``{"missing": "impute"}`` for inputs with NaN. Scales among them refer to standardised data.
        With ``exposure``, predictions are for an exposure of one.
    draws, tune, chains : int
        As for ``pm.sample``. The defaults suit the hierarchical network; the others have cheaper
        Gibbs sweeps and need more of them.
    n_jobs : int, optional
        Number of chains that run in parallel: one by default, as many as there are processors if
        -1.
    random_state : int, RandomState or None
        Seed of the chains and of the noise of predictions: predictions of a fitted estimator are
        reproducible.
    verbose : bool, optional
        Whether to show progress, and a line about what was sampled. By default, only in a terminal
        or a notebook.

    Attributes
    ----------
    model_ : pm.Model
        The model of the standardised data.
    idata_ : DataTree
        Result of ``pm.sample``, without variables that have an entry for each row of the data.
    diagnosis_ : Diagnosis
        Result of :func:`~pymc_nnsteps.diagnose` at training inputs, for two chains or more. If they
        have not converged, ``fit`` issues scikit-learn's ``ConvergenceWarning`` with its verdict.
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

    sigma: float | Literal["network"] | None = None
    likelihood: str | None = None

    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | pd.Series | pd.DataFrame,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Sample the posterior of the network.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        y : array_like, Series or DataFrame, shape (n_obs,) or (n_obs, n_outputs)
        sample_weight : array_like of whole numbers, shape (n_obs,), optional
            Number of times each row counts: the power of its likelihood.

        Returns
        -------
        NetworkRegressor
            Itself.
        """
        require_choice("network", self.network, tuple(BUILDERS))
        if self.likelihood in OF_CLASSES:
            raise ValueError(f'likelihood="{self.likelihood}" is for classes: NetworkClassifier.')
        if y is not None and pd.api.types.infer_dtype(np.asarray(y).ravel()) == "string":
            raise ValueError(
                "y has text; convert it to numbers, or use NetworkClassifier for classes."
            )
        rows, targets = self._validated(
            X, y, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        times = times_of(rows, sample_weight)
        rows, targets = rows.repeat(times, axis=0), targets.repeat(times, axis=0)
        columns = targets.reshape(len(targets), -1)
        scaled = self.likelihood in REAL
        self.target_scaler_ = StandardScaler(with_mean=scaled, with_std=scaled).fit(columns)
        self._has_columns = targets.ndim == 2
        standardised = self.target_scaler_.transform(columns)
        given = {"sigma": self.sigma, "likelihood": self.likelihood}
        options = {name: value for name, value in given.items() if value is not None}
        if columns.shape[1] == 1:
            return self._sample(rows, standardised[:, 0], times, **options)
        if hasattr(y, "columns"):
            standardised = pd.DataFrame(standardised, columns=y.columns)
        return self._sample(rows, standardised, times, **options)

    def predict(
        self, X: ArrayLike | pd.DataFrame, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict the mean of the targets.

        For real targets this is the posterior mean of the network's function; for others, the mean
        of targets drawn from the posterior.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        return_std : bool
            Whether to also return standard deviations of predicted targets, including noise.

        Returns
        -------
        ndarray, or a pair of ndarray, of shape (n_obs,) or (n_obs, n_outputs)
            The mean, and the standard deviation if requested.
        """
        drawn = self._predict(X, "function" if self.likelihood in REAL else "response")
        mean = self._in_units(drawn.mean(axis=0))
        if not return_std:
            return mean
        scale = self.target_scaler_.scale_
        std = self._predict(X, "response").std(axis=0) * (1 if scale is None else scale)
        return mean, std.reshape(mean.shape)

    def predict_interval(
        self, X: ArrayLike | pd.DataFrame, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict equal-tailed intervals that contain the targets with a given probability.

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


class NetworkClassifier(ClassifierMixin, NetworkEstimator):
    """Classification by a Bayesian neural network, as a scikit-learn estimator.

    Inputs (except columns of 0 and 1) are standardised for the network. There may be two or more
    labels, of any kind.

    Parameters
    ----------
    network : {"hierarchical", "intermediate_noise"}
        Builder of the network: :func:`~pymc_nnsteps.hierarchical_mlp`, with logistic probabilities,
        or :func:`~pymc_nnsteps.intermediate_noise_mlp`, with probit probabilities.
    hidden, options, draws, tune, chains, n_jobs, random_state, verbose
        As for :class:`NetworkRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    model_, idata_, input_scaler_, n_features_in_, feature_names_in_
        As for :class:`NetworkRegressor`.

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

    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | pd.Series,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Sample the posterior of the network.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)
        y : array_like or Series, shape (n_obs,)
            Labels.
        sample_weight : array_like of whole numbers, shape (n_obs,), optional
            Number of times each row counts: the power of its likelihood.

        Returns
        -------
        NetworkClassifier
            Itself.
        """
        require_choice("network", self.network, tuple(CLASS_LIKELIHOODS))
        rows, labels = self._validated(X, y, ensure_min_samples=2)
        if n_missing := int(pd.isna(labels).sum()):
            raise ValueError(f"y has {n_missing} missing labels; leave those rows out.")
        check_classification_targets(labels)
        times = times_of(rows, sample_weight)
        rows, labels = rows.repeat(times, axis=0), labels.repeat(times, axis=0)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        of_two, of_more = CLASS_LIKELIHOODS[self.network]
        if len(self.classes_) <= 2:
            return self._sample(rows, codes, times, likelihood=of_two)
        labelled = pd.Categorical.from_codes(codes, self.classes_)
        return self._sample(rows, labelled, times, likelihood=of_more)

    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.float64]:
        """Predict the posterior mean of the probability of each class.

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
        """Predict the class of largest probability.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n_obs, n_features)

        Returns
        -------
        ndarray, shape (n_obs,)
        """
        largest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[largest]

"""Methods of scikit-learn, XGBoost and CatBoost, with the settings that their users begin with.

Point predictions become normal ones by the standard deviation of their errors in five-fold cross
validation, which their CPU time includes.
"""

from collections.abc import Callable

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_predict, train_test_split

from tabular.data import Split
from tabular.predictions import Predicted, normal

TREES = 500
BOOSTING = {"learning_rate": 0.05, "random_state": 0}
MOST_ROWS = 2000
"""Rows of a Gaussian process; of larger tables so many at random."""

Answer = Predicted | np.ndarray


def fitted(regressor: Callable, classifier: Callable, data: Split) -> Answer:
    """Predictions of an estimator of scikit-learn."""
    if data.n_classes:
        return probabilities(classifier().fit(data.X, data.y), data)
    estimator = regressor()
    errors = data.y - cross_val_predict(estimator, data.X, data.y, cv=5)
    predicted = estimator.fit(data.X, data.y).predict(data.X_test)
    return normal(predicted, float(np.sqrt(np.mean(errors**2))), data.y_test)


def probabilities(classifier: object, data: Split) -> np.ndarray:
    """Probabilities of all classes, those too that the training rows lack."""
    found = np.zeros((len(data.X_test), data.n_classes))
    found[:, classifier.classes_.astype(int)] = classifier.predict_proba(data.X_test)
    return found


def linear(data: Split, seed: int) -> Answer:
    """Ridge regression, its penalty by cross validation; logistic regression by its defaults."""
    return fitted(
        lambda: RidgeCV(np.logspace(-3, 4, 15)),
        lambda: LogisticRegression(max_iter=1000),
        data,
    )


def forest(data: Split, seed: int) -> Answer:
    """500 trees."""
    return fitted(
        lambda: RandomForestRegressor(TREES, random_state=seed),
        lambda: RandomForestClassifier(TREES, random_state=seed),
        data,
    )


def hist_boosting(data: Split, seed: int) -> Answer:
    """Gradient boosting of scikit-learn."""
    options = {**BOOSTING, "max_iter": TREES, "random_state": seed}
    return fitted(
        lambda: HistGradientBoostingRegressor(**options),
        lambda: HistGradientBoostingClassifier(**options, early_stopping=True),
        data,
    )


def gaussian_process(data: Split, seed: int) -> Answer:
    """A Gaussian process with one length scale for each input, all by maximal likelihood."""
    rows = np.random.default_rng(seed).permutation(len(data.X))[:MOST_ROWS]
    kernel = ConstantKernel(1.0) * RBF(np.full(data.X.shape[1], 3.0), (0.05, 1e3))
    if data.n_classes:
        process = GaussianProcessClassifier(kernel, random_state=seed)
        return probabilities(process.fit(data.X[rows], data.y[rows]), data)
    process = GaussianProcessRegressor(kernel + WhiteKernel(0.1, (1e-6, 10)), random_state=seed)
    mean, sd = process.fit(data.X[rows], data.y[rows]).predict(data.X_test, return_std=True)
    return normal(mean, sd, data.y_test)


def xgboost(data: Split, seed: int) -> Answer:
    """1000 trees of depth 5, at a small rate, each of a part of rows and columns."""
    import xgboost

    options = {
        "n_estimators": 2 * TREES,
        "learning_rate": 0.05,
        "max_depth": 5,
        "subsample": 0.8,
        "colsample_bytree": 0.8,
        "n_jobs": 1,
        "random_state": seed,
    }
    return fitted(
        lambda: xgboost.XGBRegressor(**options), lambda: xgboost.XGBClassifier(**options), data
    )


def catboost(data: Split, seed: int) -> Answer:
    """CatBoost, with the variance of real targets; a tenth of the rows says when to stop.

    Without that the predicted variance goes to nothing at the training rows.
    """
    import catboost

    options = {
        "verbose": False,
        "thread_count": 1,
        "random_seed": seed,
        "allow_writing_files": False,
        "early_stopping_rounds": 50,
    }
    X, X_stop, y, y_stop = train_test_split(data.X, data.y, test_size=0.1, random_state=seed)
    rows = {"X": X, "y": y, "eval_set": (X_stop, y_stop)}
    if data.n_classes:
        return probabilities(catboost.CatBoostClassifier(**options).fit(**rows), data)
    model = catboost.CatBoostRegressor(loss_function="RMSEWithUncertainty", **options)
    mean, variance = model.fit(**rows).predict(data.X_test).T
    return normal(mean, np.sqrt(variance), data.y_test)

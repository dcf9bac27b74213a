"""Tables with their splits: the same rows and the same standardisation for all methods."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import train_test_split

FILES = ("yacht", "boston", "concrete", "bikesharing", "airfoil", "energy")
"""Tables that are read from ``NAME.csv`` in the folder ``--data``: a header, the target last."""

PERIODIC = {"bikesharing_periodic": ("bikesharing", {"hr": (24, 3), "mnth": (12, 1)})}
"""Tables with further inputs: a file, and the period and number of harmonics of its columns.

Sines and cosines of a column say that its last value is next to its first.
"""

SHIPPED: dict[str, Callable] = {
    "diabetes": load_diabetes,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
}
"""Tables that scikit-learn ships."""

CLASSES = ("breast_cancer", "wine", "digits")

FIRST_SEED = 42


@dataclass(frozen=True)
class Split:
    """A table in two parts, standardised by the first.

    Attributes
    ----------
    X, X_test : ndarray, shape (n_obs, n_features), (n_test, n_features)
    y, y_test : ndarray, shape (n_obs,), (n_test,)
        Targets over their standard deviation, about their mean; or labels 0, 1, ...
    unit : float
        Standard deviation of the training targets, in the units of the table; 1 for labels.
    n_classes : int
        0 for real targets.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    unit: float
    n_classes: int


def split(name: str, number: int, folder: Path) -> Split:
    """One random split of a table.

    90 % of the rows are for training, with ``random_state`` 42, 43, ... as in ``bow_tie_uci.py``;
    of bikesharing 80 %, with ``random_state`` 0, 1, ...: its published figures are of split 0.

    Parameters
    ----------
    name : str
    number : int
    folder : Path
        Where the files are.
    """
    X, y = table(name, folder)
    large = name.startswith("bikesharing")
    share, seed = (0.2, number) if large else (0.1, FIRST_SEED + number)
    X, X_test, y, y_test = train_test_split(X, y, test_size=share, random_state=seed)
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1
    X, X_test = (X - centre) / spread, (X_test - centre) / spread
    if name in CLASSES:
        return Split(X, y, X_test, y_test, 1.0, int(y.max()) + 1)
    level, unit = y.mean(), y.std()
    return Split(X, (y - level) / unit, X_test, (y_test - level) / unit, float(unit), 0)


def table(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a table."""
    if name in SHIPPED:
        unscaled = {"scaled": False} if name == "diabetes" else {}
        return SHIPPED[name](return_X_y=True, **unscaled)  # type: ignore[no-any-return]
    file, periods = PERIODIC.get(name, (name, {}))
    columns = pd.read_csv(folder / f"{file}.csv").astype(float)
    y = columns.pop(columns.columns[-1])
    for column, (period, harmonics) in periods.items():
        for k in range(1, harmonics + 1):
            angle = 2 * np.pi * k * columns[column] / period
            columns[f"{column}_sin{k}"], columns[f"{column}_cos{k}"] = np.sin(angle), np.cos(angle)
    return columns.to_numpy(), y.to_numpy()


def is_there(name: str, folder: Path) -> bool:
    """Whether a table is shipped, or in the folder."""
    file, _ = PERIODIC.get(name, (name, {}))
    return name in SHIPPED or (folder / f"{file}.csv").exists()

"""The result of a fit: draws, moments and predictions, with the model's names."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args, override

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_nnsteps.arguments import (
    in_type,
    positive_integer,
    positive_number,
    require_choice,
    require_finite,
)
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.tables import Table, encoded
from pymc_nnsteps.variational.ascent import Fitted
from pymc_nnsteps.variational.draws import (
    LayerDraws,
    Prediction,
    Selection,
    by_iteration,
    by_monte_carlo,
    draw_layer,
    select,
)
from pymc_nnsteps.variational.factors import GIG
from pymc_nnsteps.variational.reading import Reading

Numbers = NDArray[np.float64]
PredictionMethod = Literal["monte_carlo", "iteration"]
RandomSeed = int | np.random.Generator | None

LEVELS = (1e-4, 1e-3, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)


class Mixture(ABC):
    """Draws, predictions and starts of one approximation or of several with weights."""

    members: "tuple[Approximation, ...]"

    @property
    @abstractmethod
    def weights(self) -> Numbers:
        """Weights of the members, in sum one."""

    @one_thread
    def sample(self, draws: int = 1000, *, random_seed: RandomSeed = None) -> xr.DataTree:
        """Draw weights, biases, noise and scales.

        Gates and activations of the training rows are left out; predictions do not need them.

        Parameters
        ----------
        draws : int
        random_seed : int or Generator, optional

        Returns
        -------
        DataTree
            With a group ``posterior`` of one chain, for ``nns.predict``,
            ``pm.sample_posterior_predictive`` and ArviZ.

        Raises
        ------
        ValueError
            If ``draws`` is not a positive integer.
        """
        from arviz_base import from_dict

        rng = np.random.default_rng(random_seed)
        counts = rng.multinomial(positive_integer("draws", draws), self.weights)
        drawn = [m.draw(n, rng) for m, n in zip(self.members, counts, strict=True) if n]
        order = rng.permutation(draws)
        reading, values = self.members[0].reading, {}
        for names, parts in zip(reading.names, zip(*drawn, strict=True), strict=True):
            for role in parts[0]:
                joined = np.concatenate([part[role] for part in parts])[order]
                values[names[role]] = joined[None]
        dims = {name: list(_dims(reading, name, each.ndim - 2)) for name, each in values.items()}
        coords = {dim: list(labels) for dim, labels in reading.coords.items()}
        return from_dict({"posterior": values}, coords=coords, dims=dims)

    @one_thread
    def predict(
        self,
        X: ArrayLike | pd.DataFrame,
        *,
        method: PredictionMethod = "monte_carlo",
        draws: int = 1000,
        random_seed: RandomSeed = None,
    ) -> xr.Dataset:
        r"""Predict targets at new inputs.

        The mean of a mixture is :math:`\sum w_k E_k` and its variance
        :math:`\sum w_k (V_k + E_k^2) - (\sum w_k E_k)^2`.

        Parameters
        ----------
        X : array_like or table, shape (n_obs, n_features)
        method : {"monte_carlo", "iteration"}
            Draw weights and noise and run the network forward, or fit the distributions of the
            activations of the new rows without targets, which is deterministic.
        draws : int
            Number of Monte Carlo draws.
        random_seed : int or Generator, optional

        Returns
        -------
        Dataset, dims (obs, output)
            ``mean`` and ``sd`` of the targets, and the ends ``lower`` and ``upper`` of 95 %
            intervals: quantiles of the draws, or of a normal distribution with
            ``method="iteration"``.

        Raises
        ------
        ValueError
            If ``X`` has other columns than the model's inputs or is not finite.
        """
        reading = self.members[0].reading
        table, x = read_inputs(reading, X)
        rng = np.random.default_rng(random_seed)
        draws = positive_integer("draws", draws)
        parts = [member.prediction(x, method, draws, rng) for member in self.members]
        weights = self.weights
        mean = np.einsum("k,kno->no", weights, [part.mean for part in parts])
        spread = np.einsum("k,kno->no", weights, [(part.mean - mean) ** 2 for part in parts])
        within = np.einsum("k,kno->no", weights, [part.variance for part in parts])
        counts = rng.multinomial(draws, weights)
        drawn = [
            part.draws[:n] for part, n in zip(parts, counts, strict=True) if part.draws is not None
        ]
        mixture = Prediction(mean, within + spread, np.concatenate(drawn) if drawn else None)
        return labelled_prediction(reading, table, mixture)

    def initvals(self, chains: int, *, random_seed: RandomSeed = None) -> list[dict[str, Any]]:
        """Starting points for ``pm.sample(initvals=...)``, one draw for each chain.

        The members of a mixture take turns. Gates are open where ``z > 0`` with the drawn
        weights, and activations are ``max(z, 0)``.

        Parameters
        ----------
        chains : int
        random_seed : int or Generator, optional

        Returns
        -------
        list of dict
            Values of all free variables.
        """
        rng, n = np.random.default_rng(random_seed), len(self.members)
        turns = [self.members[i % n] for i in range(positive_integer("chains", chains))]
        return [_start_point(member.reading, member.draw(1, rng)) for member in turns]


@dataclass(frozen=True, eq=False)
class Approximation(Mixture):
    """An approximation of the posterior of a bow-tie network.

    Attributes
    ----------
    reading : Reading
        The network, its data and its names.
    fitted : Fitted
        The distributions that were found.
    selection : Selection or None
        The weights and units that :meth:`select` has kept, as masks.
    """

    reading: Reading
    fitted: Fitted
    selection: Selection | None = None

    def __post_init__(self) -> None:
        """A mixture of one."""
        object.__setattr__(self, "members", (self,))

    @property
    @override
    def weights(self) -> Numbers:
        return np.ones(1)

    @property
    def elbo(self) -> Numbers:
        """The evidence lower bound after each sweep, in nats, with all constants."""
        return self.fitted.history

    @cached_property
    def mean(self) -> xr.Dataset:
        """Mean of each variable; of scales it may be infinite."""
        return self._by_variable("mean")

    @cached_property
    def sd(self) -> xr.Dataset:
        """Standard deviation of each variable; of scales it may be infinite."""
        return self._by_variable("standard_deviation")

    def select(self, level: float = 0.01) -> "Approximation":
        """Remove weights whose sign is in doubt, and units without weights.

        Parameters
        ----------
        level : float
            The Bayesian false discovery rate: the mean probability, over the weights kept, of
            having the opposite sign.

        Returns
        -------
        Approximation
            With the masks of what is kept in ``.selection``.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1/2.
        """
        selection = self._selection(level)
        return replace(
            self, fitted=replace(self.fitted, layers=selection.layers), selection=selection
        )

    def _selection(self, level: float) -> Selection:
        level = positive_number("level", level, at_most=0.5)
        return select(self.fitted.network, self.fitted.layers, level)

    def selection_path(self, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Numbers of weights and hidden units kept at several levels.

        ``.plot(logx=True, drawstyle="steps-post")`` of the result shows the path.

        Parameters
        ----------
        levels : sequence of float

        Returns
        -------
        DataFrame
            Indexed by level, with columns ``weights``, ``hidden1``, ``hidden2``, ...
        """
        rows = {}
        for level in levels:
            chosen = self._selection(level)
            counts = {f"hidden{i}": int(kept.sum()) for i, kept in enumerate(chosen.units, 1)}
            rows[float(level)] = {"weights": sum(int(w.sum()) for w in chosen.weights), **counts}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("level")

    def draw(self, draws: int, rng: np.random.Generator) -> list[LayerDraws]:
        """Draws of each layer."""
        return [draw_layer(layer, draws, rng) for layer in self.fitted.layers]

    def prediction(
        self, x: Numbers, method: PredictionMethod, draws: int, rng: np.random.Generator
    ) -> Prediction:
        """Moments and, with Monte Carlo, draws of new targets."""
        require_choice("method", method, get_args(PredictionMethod))
        network, layers = self.fitted.network, self.fitted.layers
        if method == "iteration":
            return by_iteration(network, layers, x)
        return by_monte_carlo(network, layers, x, draws, rng)

    def _by_variable(self, moment: Literal["mean", "standard_deviation"]) -> xr.Dataset:
        reading, arrays = self.reading, {}
        for names, layer in zip(reading.names, self.fitted.layers, strict=True):
            rows = layer.mean if moment == "mean" else np.sqrt(np.einsum("dii->di", layer.cov))
            noise = GIG(-layer.alpha[0], 2 * layer.beta, np.zeros_like(layer.beta))
            laws = {"eta_sq": noise, "tau": layer.tau, "psi": layer.psi}
            values = {r: getattr(law, moment) for r, law in laws.items() if law is not None}
            for role, value in {"W": rows[:, 1:], "b": rows[:, 0], **values}.items():
                name = names[role]
                arrays[name] = xr.DataArray(value, dims=_dims(reading, name, np.ndim(value)))
        data = xr.Dataset(arrays)
        return data.assign_coords({d: list(c) for d, c in reading.coords.items() if d in data.dims})


@dataclass(frozen=True, eq=False)
class Ensemble(Mixture):
    r"""A mixture of approximations from several starts.

    Weights are proportional to :math:`\exp(\zeta\,\text{ELBO})` (Section 3.6 of the paper). The
    evidence of two starts may differ by tens of nats, so that with :math:`\zeta = 1` one member has
    nearly all the weight; with :math:`\zeta = 0` all members have the same weight.

    Attributes
    ----------
    members : tuple of Approximation
    """

    members: tuple[Approximation, ...]
    zeta: float

    @property
    @override
    def weights(self) -> Numbers:
        evidence = self.zeta * np.array([member.fitted.evidence for member in self.members])
        weights = np.exp(evidence - evidence.max())
        return weights / weights.sum()

    @property
    def best(self) -> Approximation:
        """The member with the highest evidence."""
        return max(self.members, key=lambda member: member.fitted.evidence)


def _dims(reading: Reading, name: str, ndim: int) -> tuple[str, ...]:
    """Names of a variable's dimensions."""
    return reading.dims[name] or tuple(f"{name}_dim_{axis}" for axis in range(ndim))


def labelled_prediction(reading: Reading, table: Table, prediction: Prediction) -> xr.Dataset:
    """Moments and intervals with the labels of rows and outputs."""
    sd = np.sqrt(prediction.variance)
    if prediction.draws is None:
        lower, upper = prediction.mean - 1.96 * sd, prediction.mean + 1.96 * sd
    else:
        lower, upper = np.quantile(prediction.draws, [0.025, 0.975], axis=0)
    values = {"mean": prediction.mean, "sd": sd, "lower": lower, "upper": upper}
    data = xr.Dataset({name: (("obs", "output"), value) for name, value in values.items()})
    labels = reading.coords.get("output")
    if labels is not None and len(labels) == data.sizes["output"]:
        data = data.assign_coords(output=list(labels))
    if table.rows is not None and table.rows.nlevels == 1:
        data = data.assign_coords(obs=table.rows.rename("obs"))
    return data


def read_inputs(reading: Reading, X: object, name: str = "X") -> tuple[Table, Numbers]:
    """A table of new inputs, and its values with the model's columns in their order."""
    dims = reading.input_dims
    table = encoded(name, X, dims, reading.coords.get(dims[1]))
    x = in_type(table.values, float)
    n_features = reading.inputs.shape[1]
    if x.ndim != 2 or x.shape[1] != n_features:
        raise ValueError(f"{name} must have shape (n_obs, {n_features}); got {x.shape}.")
    require_finite(name, x)
    return table, x


def _start_point(reading: Reading, layers: Sequence[LayerDraws]) -> dict[str, Any]:
    """Values of all free variables from one draw of the weights, noise and scales."""
    point: dict[str, Any] = {}
    x = reading.inputs
    for names, drawn in zip(reading.names, layers, strict=True):
        point |= {names[role]: value[0] for role, value in drawn.items()}
        if "gamma" in names:
            z = x @ drawn["W"][0].T + drawn["b"][0]
            x = np.maximum(z, 0)
            point |= {names["gamma"]: (z > 0).astype("int64"), names["a"]: x}
    return point

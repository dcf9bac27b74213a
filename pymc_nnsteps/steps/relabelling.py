"""Units of hidden layers relabelled at random at the end of a draw.

The posterior of a network does not change where units of a layer change places, or signs behind an
odd activation. A chain that is never relabelled stays with one of the labellings by chance, and the
convergence of single weights is an accident. With permutations and signs drawn independently of the
state the posterior is left invariant, all units have the same law in each chain, and R-hat and
effective sample sizes of every variable mean what they say (Fruhwirth-Schnatter, *Markov chain
Monte Carlo estimation of classical and dynamic switching and mixture models*, JASA 96, 2001).
"""

from collections.abc import Collection, Mapping

import numpy as np
import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.row_axes import Rows
from pymc_nnsteps.network.exchangeable import ExchangeableUnits, exchangeable_units
from pymc_nnsteps.steps.networks import networks_of


def relabelled_units(model: pm.Model, moved: Collection[TensorVariable]) -> list[ExchangeableUnits]:
    """Layers of the networks of a model of which all variables with units are among some."""
    networks = networks_of(model)
    members = networks.of_gibbs | networks.functional
    return [
        units
        for units in exchangeable_units(model)
        if units.axes.keys() <= set(moved) and not members.isdisjoint(units.axes)
    ]


class Relabelling:
    """Random labels of the units of layers of which all variables are moved by a step."""

    def __init__(self, model: pm.Model, moved: Collection[TensorVariable]) -> None:
        names = {rv: model.rvs_to_values[rv].name for rv in moved}
        self._layers = [
            (
                {names[rv]: axis for rv, axis in units.axes.items()},
                [{names[rv] for rv in signs} for signs in units.signs],
            )
            for units in relabelled_units(model, moved)
        ]

    def __call__(
        self, rng: np.random.Generator, point: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """New values of what is relabelled."""
        new = dict(point)
        for axes, signs in self._layers:
            [name, *_] = axes
            order = rng.permutation(len(_units(new[name], axes[name])))
            for name, place in axes.items():
                new[name] = new[name].copy()
                _units(new[name], place)[:] = _units(new[name], place)[order]
            for turned in signs:
                sign = rng.choice([-1.0, 1.0], len(order))
                for name in turned:
                    units = _units(new[name], axes[name])
                    units *= sign.reshape(-1, *[1] * (units.ndim - 1)).astype(units.dtype)
        return {name: new[name] for axes, _ in self._layers for name in axes}


def _units(value: np.ndarray, place: Rows) -> np.ndarray:
    """A view of the entries of units, which run along its first axis."""
    entries = np.moveaxis(value, place.axis, 0)
    if place.within is None:
        return entries
    first, n_units = place.within
    return entries[first : first + n_units]

"""Groups of a hierarchical network's parameters: their names, and the connections they make.

Layers are called ``i`` (inputs), ``h1``, ``h2``, ... (hidden), ``o`` (outputs) and ``s`` (logarithm
of the noise), and a group by what it is and where it stands: ``h1h2`` for weights, ``bh1`` for
biases. The keys are those of :func:`~pymc_nnsteps.hierarchical_mlp`; without numbers they stand for
a plain network of any depth.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor import config
from pytensor.tensor import TensorVariable

from pymc_nnsteps.arguments import is_finite_number
from pymc_nnsteps.graphs.initial_values import begin_at
from pymc_nnsteps.models.parts.layers import floating
from pymc_nnsteps.models.priors import Prior
from pymc_nnsteps.tables import listed

ABSENT = -1


@dataclass(frozen=True, eq=False)
class Connections:
    """Weights that are shared by connections, or absent, and biases and offsets alike."""

    # shape (fan_out, fan_in), of biases and offsets (units,): the weight of each connection; -1
    # where there is none.
    index: NDArray[np.integer]

    @property
    def n_weights(self) -> int:
        """Number of different weights."""
        return int(self.index.max()) + 1

    @property
    def n_sources(self) -> int:
        """Largest number of connections that lead into a unit."""
        return int((self.index != ABSENT).sum(axis=-1).max())

    def of_each(self, weights: TensorVariable) -> TensorVariable:
        """Weight of each connection, shaped as the index, from those of shape (n_weights,)."""
        absent = pt.zeros(1, dtype=weights.dtype)
        return pt.concatenate([weights, absent])[self.index]


def connections_between(key: str, given: ArrayLike, shape: tuple[int, ...]) -> Connections:
    """Check the connections of a group of this name, between layers of this shape."""
    name = f"connections[{key!r}]"
    if np.ma.is_masked(given):
        raise ValueError(
            f"{name} is masked; write {ABSENT} where there is no connection, as by "
            f"index.filled({ABSENT})."
        )
    index: NDArray[Any] = np.asarray(given)
    if index.shape != shape:
        raise ValueError(
            f"{name} must have the shape {shape}, as without connections; got {index.shape}."
        )
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            f"{name} must be integers, the number of each connection's weight or {ABSENT}; got "
            f"{index.dtype}."
        )
    used = np.unique(index[index != ABSENT])
    if not np.array_equal(used, np.arange(len(used))) or not len(used):
        raise ValueError(
            f"{name} must use every weight from 0 to the largest, and {ABSENT} where there is no "
            f"connection; got {listed(np.unique(index).tolist())}."
        )
    return Connections(index)


PriorLike = Prior | str | float | None

DEFAULT_PRIORS: dict[str, PriorLike] = {
    "ih": "0.2:4:4",
    "bh": "0.5:4",
    "hh": "x0.5:4",
    "ho": "x0.5:4",
    "hs": "x0.2:1",
    "io": "0.2:4:4",
    "is": "0.1:1:4",
    "bo": "1",
    "noise": "0.2:0.5",
}
"""Priors for standardised inputs and targets. ``io`` and ``is`` are there if there are no hidden
layers."""

REAL = ("normal", "student_t")
"""Likelihoods of real targets."""

HEAVY_TAILS = 4.0
"""Degrees of freedom of Student-t noise, unless they are given."""


@dataclass(frozen=True)
class Groups:
    """The groups of one network by their keys, in the order of their variables."""

    priors: dict[str, Prior]  # of weights, biases and offsets
    adjustments: dict[str, float]
    noise: Prior | None
    connections: dict[str, Connections]  # of the groups whose connections are given
    # Layers along the axes of each group; inputs are 0, outputs L + 1, their noise L + 2.
    layers: dict[str, tuple[int, ...]]
    names: list[str]  # of the layers

    def n_sources(self, key: str, units: Sequence[int]) -> int:
        """Number of units among which the variance of weights may be divided."""
        connections = self.connections.get(key)
        return units[self.layers[key][-1]] if connections is None else connections.n_sources


def groups(
    given: Mapping[str, PriorLike] | None,
    units: Sequence[int],
    likelihood: str | None,
    connections: Mapping[str, ArrayLike] | None = None,
    varying_noise: bool = False,
) -> Groups:
    """Find the groups of a network with layers of these widths.

    ``given`` replaces the default priors by their keys: None leaves a group out, a number fixes its
    width. ``connections`` are the weight of each connection, or of biases and offsets of each unit.
    The likelihood is None if it is stated elsewhere.
    """
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ValueError(
            f'priors must be a mapping such as {{"ih": "0.05:0.5", "bo": 1}}; got {given!r}.'
        )
    keys = _Keys(len(units) - 2, varying_noise)
    priors, alphas = _chosen(given, keys, likelihood)
    connected = {
        key: connections_between(
            key, index, tuple((*units, units[-1])[i] for i in keys.layers[key])
        )
        for key, index in _by_full_key(connections, keys).items()
    }
    for key in connected:
        asked = key in keys.expanded(given)
        priors[key] = _of_connections(key, priors.get(key), asked)
        adjustment = f"a{keys.names[keys.layers[key][0]]}"
        if not key.startswith("t") and adjustment in alphas:
            raise ValueError(
                f"priors[{adjustment!r}] adjusts units, to which the parameters of "
                f"connections[{key!r}] do not belong; leave one of them out."
            )
    noise = _noise(priors.pop("noise", None), likelihood)
    _require_connected(priors, keys)
    found = Groups(priors, alphas, noise, connected, keys.layers, keys.names)
    _require_precisions(found, units)
    return found


class _Keys:
    """Keys of all groups that a network may have, and the layers they stand between or at."""

    def __init__(self, n_hidden: int, varying_noise: bool) -> None:
        hidden = [f"h{layer}" for layer in range(1, n_hidden + 1)]
        self.names = names = ["i", *hidden, "o", *["s"] * varying_noise]
        self.layers: dict[str, tuple[int, ...]] = {
            names[source] + name: (layer, source)
            for layer, name in enumerate(names)
            for source in range(min(layer, n_hidden + 1))
        }
        for kind, own in (("b", names[1:]), ("t", names[: n_hidden + 1]), ("a", names[1:])):
            self.layers |= {kind + name: (names.index(name),) for name in own if name != "s"}
        # Keys without numbers, and the full keys that they stand for.
        self.shorthand = {
            "ih": [f"i{layer}" for layer in hidden[:1]],
            "hh": [k + layer for k, layer in pairwise(hidden)],
            "ho": [f"{layer}o" for layer in hidden[-1:]],
            "hs": [f"{layer}s" for layer in hidden[-1:] if varying_noise],
            **{f"{kind}h": [kind + layer for layer in hidden] for kind in "bta"},
        }

    def expanded[Given](self, given: Mapping[str, Given]) -> dict[str, Given]:
        """What is given by full keys; one with numbers comes before one without."""
        short_first = sorted(given, key=lambda key: key not in self.shorthand)
        return {full: given[k] for k in short_first for full in self.shorthand.get(k, [k])}


def _by_full_key(connections: Mapping[str, ArrayLike] | None, keys: _Keys) -> dict[str, ArrayLike]:
    """Connections by full keys."""
    if connections is None:
        return {}
    if not isinstance(connections, Mapping):
        raise ValueError(
            'connections must be a mapping such as {"ih": index}, with an integer array of shape '
            f"(fan_out, fan_in); got {type(connections).__name__}."
        )
    stood_for = [key for key, full in keys.shorthand.items() if full]
    known = [key for key in (*stood_for, *keys.layers) if not key.startswith("a")]
    for key in connections:
        if key not in known:
            raise ValueError(
                f"connections has the key {key!r}; groups of this network are {', '.join(known)}."
            )
    return keys.expanded(connections)


def _of_connections(key: str, prior: Prior | None, asked: bool) -> Prior:
    """The prior of parameters that do not each belong to one unit."""
    if prior is None:
        raise ValueError(
            f"connections has the key {key!r}, a group that is left out; give it a prior, as in "
            f"priors={{{key!r}: 1.0}}."
        )
    if asked and math.isfinite(prior.alpha_unit):
        raise ValueError(
            f"priors[{key!r}] must have an infinite alpha_unit, as the weights of "
            f'connections[{key!r}] do not each come from one unit; got "{prior}".'
        )
    return replace(prior, alpha_unit=math.inf)


def _chosen(
    given: Mapping[str, PriorLike], keys: _Keys, likelihood: str | None
) -> tuple[dict[str, Prior], dict[str, float]]:
    """Priors and shapes of adjustments by full keys, with the defaults."""
    known = [*(key for key, full in keys.shorthand.items() if full), *keys.layers]
    n_hidden = keys.names.index("o") - 1
    if likelihood in REAL:
        known.append("noise")
    strange = [key for key in given if key not in known]
    if strange:
        law = "" if likelihood is None else f' and likelihood="{likelihood}"'
        raise ValueError(
            f"priors has the key {strange[0]!r}; with {n_hidden} hidden layers{law} the keys "
            f"are {', '.join(known)}."
        )
    chosen: dict[str, Prior | float | None] = {}
    for priors in (DEFAULT_PRIORS, given):
        read = {key: _read(key, prior) for key, prior in priors.items() if key in known}
        chosen |= keys.expanded(read)
    for key in ("io", "is"):
        if n_hidden and key not in given:
            chosen.pop(key, None)
    return (
        {key: prior for key, prior in chosen.items() if isinstance(prior, Prior)},
        {key: alpha for key, alpha in chosen.items() if isinstance(alpha, float)},
    )


def _read(key: str, given: PriorLike) -> Prior | float | None:
    """A prior; the shape alpha, of adjustments; None, of a group that is left out."""
    if given is None:
        return None
    if key.startswith("a"):
        if not is_finite_number(given) or given <= 0:
            raise ValueError(
                f"priors[{key!r}] must be a positive number, the shape alpha of adjustments; got "
                f"{given!r}."
            )
        return float(given)
    try:
        prior = (
            given
            if isinstance(given, Prior)
            else Prior.parse(given)
            if isinstance(given, str)
            else Prior.of(given)
            if hasattr(given, "distribution")
            else Prior(given)
        )
    except ValueError as reason:
        raise ValueError(f"priors[{key!r}] is not a prior: {reason}") from None
    if not key.startswith(("i", "h")):
        _require_no_sources(key, prior)
    return prior


def _require_no_sources(key: str, prior: Prior) -> None:
    """Biases, offsets and noise do not come from units."""
    if prior.scale:
        raise ValueError(f"priors[{key!r}] must not have scale=True (x): it has no source units.")
    if key != "noise" and math.isfinite(prior.alpha_unit):
        raise ValueError(
            f"priors[{key!r}] must have an infinite alpha_unit: it has no source units; for "
            'Student-t parameters give alpha_weight, as in "1:2::4".'
        )


def _noise(prior: Prior | None, likelihood: str | None) -> Prior | None:
    if likelihood not in REAL:
        return None
    if prior is None:
        raise ValueError('priors["noise"] must be a prior: real targets have noise.')
    if likelihood == "student_t":
        if math.isinf(prior.alpha_weight):
            return replace(prior, alpha_weight=HEAVY_TAILS)
    elif math.isfinite(prior.alpha_weight):
        raise ValueError(
            'priors["noise"] has a finite alpha_weight, the degrees of freedom of Student-t noise; '
            'pass likelihood="student_t".'
        )
    return prior


def _require_connected(priors: Collection[str], keys: _Keys) -> None:
    """Check that weights lead into each layer behind the inputs, and out of each hidden one."""
    ways = [keys.layers[key] for key in priors if len(keys.layers[key]) == 2]
    for end, way in enumerate(("into", "out of")):
        for layer, name in enumerate(keys.names[1:], 1):
            if (end == 0 or name.startswith("h")) and layer not in [ends[end] for ends in ways]:
                raise ValueError(f"priors leaves no weights that lead {way} layer {name}.")


def _require_precisions(group: Groups, units: Sequence[int]) -> None:
    """Widths and scalings of which a floating-point number can hold the precision."""
    sources = [(p, group.n_sources(key, (*units, units[-1]))) for key, p in group.priors.items()]
    sources += [(group.noise, 1)] if group.noise is not None else []
    limits = np.finfo(config.floatX)
    for prior, n_sources in sources:
        try:
            omega = prior.mean_precision(n_sources)
        except OverflowError:
            omega = math.inf
        if not limits.tiny < omega < limits.max:
            raise ValueError(
                f'priors has "{prior}", whose precision is out of the range of {config.floatX}; '
                "take another width or larger alphas."
            )


Scale = TensorVariable | NDArray[np.floating]

VAGUE = 4.0
"""Largest alpha of a precision that does not begin at its mean."""


def gamma(
    name: str, alpha: float, mean: Scale, *dims: str, start: float | None = None
) -> TensorVariable:
    """A precision: Gamma with shape ``alpha`` and this mean, in Neal's parametrisation.

    It begins at a standard deviation, if its prior is so vague that this is no worse than others.
    """
    shape = floating(alpha / 2)
    rv = pm.Gamma(name, shape, shape / mean, dims=dims)
    if start is None or alpha > VAGUE:
        return rv
    size = rv.owner.op.size_param(rv.owner)
    return begin_at(rv, pt.full([size[axis] for axis in range(len(dims))], floating(start**-2)))


def common_precision(name: str, prior: Prior, n_sources: int, start: float | None) -> Scale:
    """Precision of a group, or its mean where ``alpha_common`` is infinite."""
    omega = floating(prior.mean_precision(n_sources))
    if math.isinf(prior.alpha_common):
        return omega
    return gamma(f"tau_{name}", prior.alpha_common, omega, start=start)


def precision_of_units(
    name: str, prior: Prior, common: Scale, start: float | None, *dims: str
) -> Scale:
    """Precisions of a group's units, or the common one where ``alpha_unit`` is infinite."""
    if math.isinf(prior.alpha_unit):
        return common
    vague = None if math.isinf(prior.alpha_common) else start
    return gamma(f"tau_{name}_unit", prior.alpha_unit, common, *dims, start=vague)


def parameter(name: str, prior: Prior, precision: Scale, **size: Any) -> TensorVariable:
    """Normal or Student-t parameters about zero with these precisions."""
    sigma = pt.reciprocal(pt.sqrt(precision))
    if math.isinf(prior.alpha_weight):
        return pm.Normal(name, 0.0, sigma, **size)
    return pm.StudentT(name, floating(prior.alpha_weight), 0.0, sigma=sigma, **size)

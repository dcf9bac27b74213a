"""Noise of a network, given once for all, or by kind and layer."""

from collections.abc import Mapping, Sequence

from pymc_nnsteps.models.parts import layers

__all__ = ["DEFAULT_NOISE", "Noise", "Variances", "variances"]

Noise = float | Mapping[str, float | Sequence[float]]
Variances = dict[str, tuple[float, ...]]
"""From each kind of noise to the variances of its layers; ``"output"`` has one."""

DEFAULT_NOISE = 1e-2
"""Variance of all noise where none is given."""


def variances(
    noise: Noise | None,
    sigma: Noise | None,
    counts: Mapping[str, tuple[int, str]],
    *,
    observed: bool = True,
) -> Variances:
    """Variance of each noise of a network.

    Parameters
    ----------
    noise : float, mapping or None
        Variances: one for all, or a mapping from each kind, and ``"output"``, to one for all
        layers of the kind or one per layer.
    sigma : float, mapping or None
        Standard deviations in their place.
    counts : mapping
        From each kind but ``"output"`` to its number of layers, and what these are called in
        messages, such as ``"hidden layer"``.
    observed : bool
        Whether one number for all noise is that of the output too, which must be positive then.

    Returns
    -------
    dict
        From each kind to its variances; ``"output"`` has one.

    Raises
    ------
    ValueError
        If a number is none, negative or lost in rounding, if that of an observed output is not
        positive, if kinds are missing or unknown, or both ``noise`` and ``sigma`` are given.

    Examples
    --------
    >>> from pymc_nnsteps.models.parts.noise import variances
    >>> variances({"pre": 0.1, "output": 0.5}, None, {"pre": (2, "hidden layer")})
    {'pre': (0.1, 0.1), 'output': (0.5,)}
    >>> variances(None, 2.0, {"pre": (2, "hidden layer")})
    {'pre': (4.0, 4.0), 'output': (4.0,)}
    """
    if noise is not None and sigma is not None:
        raise ValueError(
            "noise is a variance and sigma a standard deviation of the same; pass one of them."
        )
    if sigma is not None:
        name, meaning, given, power = "sigma", "a standard deviation", sigma, 2
    else:
        name, meaning, power = "noise", "a variance", 1
        given = DEFAULT_NOISE if noise is None else noise
    numbers = _numbers(name, given, counts, observed=observed)
    every = [number for each in numbers.values() for number in each]
    if min(every) < 0:
        raise ValueError(f"{name} is {meaning} and must not be negative; got {given!r}.")
    if observed and numbers["output"][0] == 0:
        zeros = ", ".join(f'"{kind}": 0' for kind in counts)
        raise ValueError(
            f"{name} of the output must be positive; for hidden layers without noise pass "
            f'{name}={{{zeros}, "output": 0.1}}.'
        )
    for number in every:
        if number > 0:
            layers.require_resolved(number**power, name, given)
    return {kind: tuple(number**power for number in each) for kind, each in numbers.items()}


def _numbers(
    name: str, given: Noise, counts: Mapping[str, tuple[int, str]], *, observed: bool
) -> Variances:
    """The numbers of each kind, as they are given."""
    if not isinstance(given, Mapping):
        number = layers.per_layer(name, given, 1, None)
        of_hidden = {kind: number * count for kind, (count, _) in counts.items()}
        return {**of_hidden, "output": number if observed else (0.0,)}
    if set(given) != {*counts, "output"}:
        kinds = ", ".join(f'"{kind}"' for kind in counts)
        raise ValueError(
            f'{name} must have exactly the keys {kinds} and "output"; got {list(given)}.'
        )
    found = {
        kind: layers.per_layer(f'{name}["{kind}"]', given[kind], count, called)
        for kind, (count, called) in counts.items()
    }
    return {**found, "output": layers.per_layer(f'{name}["output"]', given["output"], 1, None)}

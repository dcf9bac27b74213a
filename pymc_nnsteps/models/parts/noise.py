"""Variances of the noise of a network, given once for all, or by kind and layer."""

from collections.abc import Mapping, Sequence

from pymc_nnsteps.models.parts import layers

__all__ = ["Noise", "variances"]

Noise = float | Mapping[str, float | Sequence[float]]


def variances(noise: Noise, counts: Mapping[str, tuple[int, str]]) -> dict[str, tuple[float, ...]]:
    """Variance of each noise of a network.

    Parameters
    ----------
    noise : float or mapping
        One for all, or a mapping from each kind, and ``"output"``, to one for all layers of the
        kind or one per layer.
    counts : mapping
        From each kind but ``"output"`` to its number of layers, and what these are called in
        messages, such as ``"hidden layer"``.

    Returns
    -------
    dict
        From each kind to its variances; ``"output"`` has one.

    Raises
    ------
    ValueError
        If a variance is no number, negative or lost in rounding, if that of the output is not
        positive, or if kinds are missing or unknown.

    Examples
    --------
    >>> from pymc_nnsteps.models.parts.noise import variances
    >>> variances({"pre": 0.1, "output": 0.5}, {"pre": (2, "hidden layer")})
    {'pre': (0.1, 0.1), 'output': (0.5,)}
    """
    if isinstance(noise, Mapping):
        if set(noise) != {*counts, "output"}:
            kinds = ", ".join(f'"{kind}"' for kind in counts)
            raise ValueError(
                f'noise must have exactly the keys {kinds} and "output"; got {list(noise)}.'
            )
        found = {
            kind: layers.per_layer(f'noise["{kind}"]', noise[kind], count, called)
            for kind, (count, called) in counts.items()
        }
        found["output"] = layers.per_layer('noise["output"]', noise["output"], 1, None)
    else:
        output = layers.per_layer("noise", noise, 1, None)
        found = {kind: output * count for kind, (count, _) in counts.items()}
        found["output"] = output
    every = [variance for each in found.values() for variance in each]
    if min(every) < 0:
        raise ValueError(f"noise is a variance and must not be negative; got {noise!r}.")
    if found["output"][0] == 0:
        zeros = ", ".join(f'"{kind}": 0' for kind in counts)
        raise ValueError(
            "noise of the output must be positive; for hidden layers without noise pass "
            f'noise={{{zeros}, "output": 0.1}}.'
        )
    for variance in every:
        if variance > 0:
            layers.require_resolved(variance, "noise", noise)
    return found

r"""Gaussian entries given that some of them sum to zero.

For a draw :math:`x \sim N(m, P^{-1})` and a vector :math:`c` of zeros and ones,

.. math:: x - P^{-1} c \, \frac{c \cdot x}{c \cdot P^{-1} c}

has the law of :math:`x` given :math:`c \cdot x = 0` (conditioning by kriging; Rue and Held,
*Gaussian Markov Random Fields*, 2005, section 2.3.3). Several sums are conditioned
on one after another.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add

from pytensor.tensor.variable import TensorVariable

Entries = tuple[TensorVariable, ...]
"""A vector as arrays of any shapes."""


def given_zero_sums(
    drawn: Entries, sums: Sequence[Entries], responses: Sequence[Entries]
) -> Entries:
    """Make a draw one of the law given that sums are zero.

    Parameters
    ----------
    drawn : tuple of TensorVariable
        Draw from ``N(m, P^{-1})``.
    sums : sequence of tuple of TensorVariable
        The vectors ``c``: one where an entry is summed, and zero elsewhere.
    responses : sequence of tuple of TensorVariable
        ``P^{-1} c`` for each of them.
    """
    left = list(zip(sums, responses, strict=True))
    while left:
        (summed, response), *left = left
        drawn = _without(drawn, summed, response)
        left = [(other, _without(its, summed, response)) for other, its in left]
    return drawn


def _without(entries: Entries, summed: Entries, response: Entries) -> Entries:
    """Entries whose sum is made zero along a response."""
    share = _dot(summed, entries) / _dot(summed, response)
    return tuple(each - share * along for each, along in zip(entries, response, strict=True))


def _dot(first: Entries, second: Entries) -> TensorVariable:
    return reduce(add, ((a * b).sum() for a, b in zip(first, second, strict=True)))

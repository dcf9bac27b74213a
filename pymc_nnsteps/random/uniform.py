"""Uniform numbers of the configured precision."""

from typing import Any

import pytensor.tensor as pt
from pytensor import config
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable


def uniform(rng: Variable, size: Any) -> tuple[Variable, TensorVariable]:
    """Draw numbers between zero and one, of an array with the given shape."""
    zero, one = pt.zeros((), config.floatX), pt.ones((), config.floatX)
    next_rng, draw = pt.random.uniform(zero, one, size=size, rng=rng, return_next_rng=True)
    return next_rng, draw

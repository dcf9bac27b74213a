"""Forms in which a Gaussian block can be drawn, the cheapest first."""

from typing import Protocol

from pytensor.graph.basic import Variable

from pymc_nnsteps.gaussian import (
    banded,
    batched,
    diagonal,
    few_rows,
    labels,
    observations,
    shared,
    windows,
)
from pymc_nnsteps.gaussian.block import Block, Drawn


class Form(Protocol):
    """When a form of a block applies, and how it is drawn: a module of this room."""

    def applies(self, block: Block) -> bool:
        """Whether the block can be drawn in this form."""

    def draw(self, rng: Variable, block: Block) -> Drawn:
        """Draw the block."""


FORMS: tuple[Form, ...] = (
    diagonal,
    windows,
    observations,
    banded,
    few_rows,
    labels,
    shared,
    batched,
)
"""The first that applies is the one that is drawn."""


def draw(rng: Variable, block: Block) -> Drawn:
    """Draw a block in the first form that applies."""
    return next(form for form in FORMS if form.applies(block)).draw(rng, block)

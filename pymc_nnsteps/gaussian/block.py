"""A Gaussian block: what is known of it before one of its forms draws it."""

from dataclasses import dataclass
from functools import cached_property

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.evidence import Evidence, SharedDesign, Total, rows_of, total_of
from pymc_nnsteps.gaussian.layout import BlockPrior
from pymc_nnsteps.graphs.linear_terms import Length, expand

Drawn = tuple[Variable, TensorVariable]
"""The generator after a draw, and the block with axes (labels, d)."""


@dataclass(frozen=True)
class Sizes:
    """Numbers that decide which form of a block is cheapest."""

    # Number of labels, and of entries at each (d).
    labels: int
    entries: int
    rows: tuple[int, ...]  # number of rows of the design, for each child


@dataclass(frozen=True)
class Block:
    """Prior of a block and the likelihood of its children."""

    prior: BlockPrior
    evidence: tuple[Evidence, ...]  # one for each child
    # Lengths of the dense axes of the block's only variable; empty where it has several.
    dense: tuple[Length, ...]
    independent: bool  # whether the entries of the block are independent: each is a label
    sizes: Sizes
    summed: Total | None = None  # sums over rows that are not here, in the place of ``evidence``

    @property
    def has_children(self) -> bool:
        """Whether there is more than the prior."""
        return bool(self.evidence) or self.summed is not None

    @cached_property
    def total(self) -> Total | None:
        """Precision and linear part that the children add; None without children."""
        if not self.evidence:
            return self.summed
        return total_of(self.evidence, elementwise=self.independent)

    @cached_property
    def rows(self) -> SharedDesign | None:
        """Likelihood of the children through designs that labels share, if there are such."""
        return rows_of(self.evidence)

    @cached_property
    def rows_in_part(self) -> SharedDesign | None:
        """The same with children that see some of the labels: the others have weight zero."""
        return rows_of(self.evidence, in_part=True)

    def by_case(self, rows: SharedDesign) -> tuple[TensorVariable, TensorVariable]:
        """Weight and score of every row, with all labels in one axis."""
        every_row = {self.prior.n_label_axes: rows.design.shape[0]}
        weight, score = (
            self.prior.cases(expand(array, every_row)) for array in (rows.weight, rows.score)
        )
        return weight, score

    @property
    def only(self) -> Evidence | None:
        """Likelihood of the only child, if there is one and all labels share its information."""
        if len(self.evidence) == 1 and self.prior.shared and self.evidence[0].shared:
            return self.evidence[0]
        return None

    @property
    def shares_precision(self) -> bool:
        """Whether neither the prior nor the information varies with the label."""
        return self.prior.shared and self.total is not None and self.total.shared

    @property
    def many_labels(self) -> bool:
        """Whether there are as many labels as entries, or more."""
        return self.sizes.labels >= self.sizes.entries

    @property
    def few_rows(self) -> bool:
        """Whether the only child has fewer rows than the block has entries."""
        return self.only is not None and self.sizes.rows[0] < self.sizes.entries

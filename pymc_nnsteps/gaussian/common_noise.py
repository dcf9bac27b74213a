r"""Rows of several outputs that have noise in common, as rows with noise of their own.

Model, for outputs k of a row n, with whatever linear a mean :math:`m_{nk}` is:

.. math::

    y_{nk} = m_{nk} + l_{nk} \cdot e_n + \epsilon_{nk}, \qquad
    e_n \sim N(0, \Sigma), \quad \epsilon_{nk} \sim N(0, 1 / w_{nk})

with diagonal :math:`\Sigma`. The outputs of a row have the covariance
:math:`V_n = \text{diag}(w_n)^{-1} + l_n \Sigma l_n^T = T_n\, \text{diag}(v_n)\, T_n^T`, where
:math:`T_n` is lower triangular with ones in its diagonal. So the entries of
:math:`T_n^{-1} y_n`, of which each is an output less its regression on those before it, are
independent with the variances :math:`v_n` around :math:`T_n^{-1} m_n`, which is linear in the same
variables. Where there is one output, only the variance changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.groups import ChildLikelihood
from pymc_nnsteps.graphs.linear_terms import Length


@dataclass(frozen=True)
class CommonNoise:
    """Noise that some outputs have in common."""

    outputs: tuple[int, ...]  # their positions among all
    loadings: tuple[TensorVariable, ...]  # how each of them sees the noise, shape (n or 1, d)
    variance: TensorVariable  # shape (d,)
    # The row of each entry, and the number of rows, of outputs without an entry in each row.
    rows: Mapping[int, tuple[TensorVariable, Length]] = field(default_factory=dict)

    def removed(self, said: Sequence[ChildLikelihood]) -> list[ChildLikelihood]:
        """What all outputs say, those with common noise as others without.

        Outputs that have noise in common see each variable by the same index, or all of it.
        """
        every = list(said)
        for position, (index, n_rows) in self.rows.items():
            every[position] = _in_rows(every[position], index, n_rows)
        seen = [every[position] for position in self.outputs]
        left = {
            (i, j): pt.dot(self.loadings[i] * self.loadings[j], self.variance)
            for i in range(len(seen))
            for j in range(i + 1)
        }
        for j, own in enumerate(seen):
            left[j, j] = left[j, j] + pt.reciprocal(own.weight)
        for j, position in enumerate(self.outputs):
            every[position] = seen[j] = replace(seen[j], weight=pt.reciprocal(left[j, j]))
            for i in range(j + 1, len(seen)):
                share = left[i, j] / left[j, j]
                seen[i] = _less(seen[i], share, seen[j])
                for m in range(j + 1, i + 1):
                    left[i, m] = left[i, m] - share * left[m, j]
        return every


def _in_rows(said: ChildLikelihood, index: TensorVariable, n_rows: Length) -> ChildLikelihood:
    """What an output says, with an entry for each row, of weight zero where it has none."""

    def in_rows(array: TensorVariable) -> TensorVariable:
        zeros = pt.zeros((n_rows, *list(array.shape)[1:]), array.dtype)
        placed: TensorVariable = zeros[index].set(array)
        return placed

    parts = tuple(replace(part, design=in_rows(part.design)) for part in said.parts)
    return ChildLikelihood(in_rows(said.response), in_rows(said.weight), parts)


def _less(said: ChildLikelihood, share: TensorVariable, other: ChildLikelihood) -> ChildLikelihood:
    """What an output says without a share of another one."""
    parts = tuple(
        replace(own, design=own.design - share[:, None] * before.design)
        for own, before in zip(said.parts, other.parts, strict=True)
    )
    return ChildLikelihood(said.response - share * other.response, said.weight, parts)

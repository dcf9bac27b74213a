r"""Kernels of a convolution moved with their pre-activations, which keep their noise.

A kernel is a row of weights that is seen at many positions of an image (:mod:`.interweaving` has
the move of rows, whose letters these are). Model, for a kernel :math:`w_a` at the positions q of
an image n with the patches :math:`\tilde x`, with or without pooling by a known matrix A:

.. math::

    z_{naq} \sim N(\tilde x_{nq} \cdot w_a, \cdot), \qquad
    p_{naq} \sim N(\textstyle\sum_r A_{qr} z_{nar}, \cdot), \qquad
    y_n \mid p \sim N(\textstyle\sum_{aq} C_{aq} \sigma(p_{naq}), V_n)

with activations integrated out as there. Where there is pooling, z is integrated out as well:
with its noise and that of p in e, :math:`p_{naq} = \bar x_{nq} \cdot w_a + e_{naq}` with
:math:`\bar x = A \tilde x`, and e is kept. Let B and r be C and the residual of y, whitened by
:math:`V_n`. On the present pieces the density of :math:`w_a` is then :math:`N(m, P^{-1})` with

.. math::

    u_{ni} = \sum_q B_{i,aq} s_{naq} \bar x_{nq}, \qquad
    P = \Lambda_a + \sum_{ni} u_{ni} u_{ni}^T, \qquad
    P (m - w_a) = \Lambda_a (\mu_a - w_a) + \sum_{ni} u_{ni} r_{ni},

so that P costs one pass over the patches for each output i. Proposal and acceptance are those of
rows. Outputs are what sees the whole of an image: responses, utilities, or a dense layer. A
convolution above would see each position by outputs of its own, and is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.observation import Observation, evidence_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import Length, varies
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.graphs.shapes import known_shape
from pymc_nnsteps.graphs.values import array_constant
from pymc_nnsteps.kernels.ops import move_kernels
from pymc_nnsteps.laws.conditional import Conditional, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.moves.interweaving import Interweaving, design_of_all, layer_above, only_child


@dataclass(frozen=True)
class InterwovenKernels(Interweaving):
    """Kernels of a convolution with its pre-activations, its activations integrated out.

    Where these are pooled, the pooled ones are moved and the others integrated out too. The inputs
    are patches, or pooled patches, shape (n_obs * positions, d).
    """

    unpooled: Gaussian | None = None  # the draw of the pre-activations that are pooled

    @property
    @override
    def integrates_out(self) -> tuple[TensorVariable, ...]:
        unpooled = () if self.unpooled is None else self.unpooled.draws
        return (*super().integrates_out, *unpooled)

    @property
    @override
    def refreshed(self) -> tuple[Conditional, ...]:
        return (*super().refreshed, *(() if self.unpooled is None else (self.unpooled,)))

    @property
    @override
    def kernel(self) -> Any:
        return move_kernels

    @override
    def why_slow(self, shapes: Shapes) -> str | None:
        if self.likelihood.has_one_output:
            return super().why_slow(shapes)
        return "several outputs depend on its positions, and each costs a pass over the patches"

    @property
    @override
    def n_units(self) -> TensorVariable:
        return self.pre_activations.shape[1]

    @override
    def pre_activations_by_unit(self) -> TensorVariable:
        z = self.pre_activations
        return z.reshape((z.shape[0], pt.prod(z.shape[1:]))).T

    @override
    def pre_activations_by_row(self) -> TensorVariable:
        z = self.pre_activations
        return pt.swapaxes(z, 0, 1).reshape((z.shape[1], pt.prod(z.shape) // z.shape[1]))

    @override
    def by_axes(self, pre_activations: TensorVariable) -> TensorVariable:
        z = self.pre_activations
        shape = z.shape[1], z.shape[0], *(z.shape[axis] for axis in range(2, z.ndim))
        return pt.swapaxes(pre_activations.reshape(shape), 0, 1)


def match_kernels(
    model: pm.Model, z: TensorVariable, conditionals: Sequence[Conditional], passes: int
) -> InterwovenKernels:
    """Find the kernels and the activations of pre-activations, to be moved with them."""
    gaussian = [c for c in conditionals if isinstance(c, Gaussian)]
    likelihood, activation = layer_above(model, z, gaussian, of_positions=True)
    a, layer = likelihood.activations, likelihood.layer
    if (layer.labels, layer.dense) != ((0,), tuple(range(1, a.ndim))):
        raise NotConjugate(f"the axes of {describe(a)} are not samples, channels and positions")
    above = [seen.child for seen in likelihood.fresh.observations]
    if mapped := [child for child in above if child.ndim > 2]:
        raise NotConjugate(f"{describe(mapped[0])} has an output for each of its positions")
    found = [(c, _pooling(model, c, z)) for c in gaussian if only_child(c) is z]
    unpooled, pooling = next(((c, A) for c, A in found if A is not None), (None, None))
    first = z if unpooled is None else unpooled.draws[0]
    for weights in gaussian:
        patches = _patches(model, weights) if only_child(weights) is first else None
        if patches is not None:
            break
    else:
        raise NotConjugate("no kernels enter it alone, at the positions of each sample")
    if likelihood.depends_on([*weights.draws, z, first]):
        raise NotConjugate(f"a child of {describe(a)} also depends on it or its weights")
    return InterwovenKernels(
        (*weights.draws, z),
        likelihood,
        weights.members,
        patches if pooling is None else _pooled(patches, pooling),
        passes,
        z,
        activation,
        unpooled,
        tuning=pt.dvector(f"rho of {describe(z)}"),
    )


def _pooling(model: pm.Model, pixels: Gaussian, pooled: TensorVariable) -> NDArray[Any] | None:
    """The matrix (positions, pixels) by which pooled pre-activations alone see others, if one does.

    All samples and channels must share it. Rows or columns of an image may be pooled alone.
    """
    [z, *others] = pixels.draws
    if others or children(model, z) != (pooled,) or z.ndim != pooled.ndim:
        return None
    [seen] = pixels.observations
    shape = known_shape(model, z)
    axes = [axis for axis in range(z.ndim) if axis in seen.label_axes]
    carried = [link.axis for link in seen.terms[0].links if link is not None]
    whole = 0 in axes and (1 in axes or shape[1] == 1)
    if not isinstance(seen, Observation) or carried != axes or not whole:
        return None
    evidence = evidence_of(pixels.members, seen)
    design = evidence.whole_design
    if varies(design, range(design.ndim - 2)):
        return None
    window = array_constant(design.dimshuffle(design.ndim - 2, design.ndim - 1))
    indices = dict(zip(axes, evidence.index, strict=True))
    alone = [axis for axis in axes if axis > 1]
    each = [_picks(indices[axis], shape[axis]) for axis in alone]
    known = [matrix for matrix in each if matrix is not None]
    if window is None or len(known) < len(each) or indices[0] or indices.get(1):
        return None
    both: NDArray[Any] = np.eye(1)
    for matrix in known:
        both = np.kron(both, matrix)
    if alone == list(range(2, 2 + len(alone))):
        return np.kron(both, window)
    return np.kron(window, both) if alone == list(range(z.ndim - len(alone), z.ndim)) else None


def _picks(
    index: tuple[TensorVariable, Length] | None, length: int | None
) -> NDArray[np.floating] | None:
    """The matrix by which rows or columns of pixels are picked; None if that is not known."""
    entries = np.arange(length or 0) if index is None else array_constant(index[0])
    return None if length is None or entries is None else np.eye(length)[entries]


def _pooled(patches: TensorVariable, pooling: NDArray[Any]) -> TensorVariable:
    """Pooled patches of each image, shape (n_obs * positions, d)."""
    pixels = patches.T.reshape((-1, pooling.shape[1]))
    return pt.dot(pixels, pooling.T).reshape((patches.shape[1], -1)).T


def _patches(model: pm.Model, weights: Gaussian) -> TensorVariable | None:
    """Patches that all kernels share, if pre-activations have a kernel for each channel."""
    [seen] = weights.observations
    shape = known_shape(model, seen.child)
    channels = [] if shape[1] == 1 and not weights.members[0].labels else [1]
    if any(axis not in (1, *seen.varying_axes) and n != 1 for axis, n in enumerate(shape)):
        return None
    return design_of_all(weights, channels)

r"""Layers of activations drawn jointly, by filtering backwards and drawing forwards.

Model, sample by sample, for Gaussian layers :math:`a_1, \dots, a_L` of which each is a child of
the one before, with whatever else is seen of each of them:

.. math::

    a_l \mid a_{l-1} \sim N(o_l + \text{diag}(g_l) T_l a_{l-1}, \Lambda_l^{-1}), \qquad
    y_l \mid a_l \sim N(C_l a_l, \text{diag}(w_l)^{-1})

Posterior: a Gaussian chain, whose backward recursion is eq. (19) of Sheinkman and Wade with every
expectation replaced by the present value (:func:`draw_chain`). In a bow-tie
network :math:`T_l` are the weights and :math:`g_l` the gates. The gates of the layer above are, by
augmentation, another observation of the pre-activations.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.jit import inline, jit
from pymc_nnsteps.compile.linear_algebra import (
    TOO_PRECISE,
    Array,
    copy,
    factorise,
    is_rounding,
    put,
    solve,
    solve_rows_transposed,
    solve_transposed,
    weighted_gram,
)
from pymc_nnsteps.compile.ops import as_op
from pymc_nnsteps.gaussian.layout import Layout, Member, split
from pymc_nnsteps.gaussian.observation import (
    Evidence,
    Observation,
    SharedDesign,
    evidence_of,
    rows_of,
)
from pymc_nnsteps.graphs.linear_terms import Length, align, expand
from pymc_nnsteps.graphs.search import given_any
from pymc_nnsteps.laws.conditional import Conditional, Draw, Group, Shapes
from pymc_nnsteps.laws.gaussian import Gaussian, augmented, with_any_precision
from pymc_nnsteps.moves.plan import Context, proposes
from pymc_nnsteps.random.standard_normal import standard_normal


class LayerSizes[Of](NamedTuple):
    """Units of each layer and rows of its design, shape (L,); arrays are larger than these."""

    widths: Of
    counts: Of


class Layers[Of](NamedTuple):
    """Each layer given the one below it."""

    # prior, offset of shape (L, n_obs, d): the diagonal of ``Lambda``, and ``o``.
    prior: Of
    offset: Of
    transition: Of  # shape (L, d, d): ``T``; that of the first layer is not looked at
    gain: Of  # shape (L, n_obs, d): ``g``


class LayerObservations[Of](NamedTuple):
    """What else is said of each layer."""

    design: Of  # shape (L, m, d): ``C``
    weight: Of  # shape (L, n_obs, m): ``w``
    linear: Of  # shape (L, n_obs, d): ``s``


@inline
def add_layer_above(
    layers: Layers, above: int, sample: int, factor: Array, told: Array, linear: Array, gram: Array
) -> Array:
    """Add what the layer above tells, given its ``P`` and ``h``; return ``R^T P^{-1} R``."""
    width, d = len(factor), len(gram)
    prior, offset = layers.prior[above, sample], layers.offset[above, sample]
    gain = layers.gain[above, sample]
    known, direct = np.empty(width, gram.dtype), np.empty(width, gram.dtype)
    for i in range(width):
        known[i] = told[i] + prior[i] * offset[i]
    solve_transposed(factor, known)
    solve(factor, known)
    step = layers.transition[above, :width, :d]
    whitened = np.empty((width, d), gram.dtype)
    for i in range(width):
        slope = prior[i] * gain[i]
        shift = slope * (known[i] - offset[i])
        direct[i] = slope * gain[i]
        for j in range(d):
            linear[j] += shift * step[i, j]
            whitened[i, j] = slope * step[i, j]
    solve_rows_transposed(factor, whitened)
    gram += weighted_gram(step, direct)
    lost = np.dot(whitened.T, whitened)
    gram -= lost
    return lost


@inline
def add_mean(layers: Layers, layer: int, sample: int, below: Array, linear: Array) -> None:
    """Add ``Lambda (o + diag(g) T a)`` with the layer below, which the first has not."""
    for j in range(len(linear)):
        mean = float(layers.offset[layer, sample, j])
        if layer > 0:
            carried = 0.0
            for k in range(len(below)):
                carried += layers.transition[layer, j, k] * below[k]
            mean += layers.gain[layer, sample, j] * carried
        linear[j] += layers.prior[layer, sample, j] * mean


@jit
def draw_chain(sizes: LayerSizes, layers: Layers, seen: LayerObservations, noise: Array) -> Array:
    r"""Draw the layers of a chain jointly, sample by sample: backward filter, forward draw.

    At each sample, :math:`a_l \sim N(o_l + \text{diag}(g_l) T_l a_{l-1}, \Lambda_l^{-1})`, and of
    :math:`a_l` more is said by :math:`\exp(-\tfrac12 a_l^T C_l^T \text{diag}(w_l) C_l a_l
    + a_l^T s_l)`. With :math:`R_l = \Lambda_l \text{diag}(g_l) T_l`, backwards from the last layer,

    .. math::

        P_l &= \Lambda_l + C_l^T \text{diag}(w_l) C_l
               + R_{l+1}^T (\Lambda_{l+1}^{-1} - P_{l+1}^{-1}) R_{l+1}, \\
        h_l &= s_l + R_{l+1}^T (P_{l+1}^{-1} (h_{l+1} + \Lambda_{l+1} o_{l+1}) - o_{l+1}),

    and forwards :math:`a_l \sim N(P_l^{-1} (h_l + \Lambda_l (o_l + \text{diag}(g_l) T_l a_{l-1})),
    P_l^{-1})`.

    ``noise`` is standard normal, (L, n_obs, d).
    """
    n_layers, n_obs, width = noise.shape
    out = np.zeros_like(noise)
    factors = np.zeros((n_layers, width, width), noise.dtype)
    for n in range(n_obs):
        # Backwards: h, which the draw then takes the place of, and the factor of P.
        finite = True
        for layer in range(n_layers - 1, -1, -1):
            d, m = sizes.widths[layer], sizes.counts[layer]
            gram = weighted_gram(seen.design[layer, :m, :d], seen.weight[layer, n, :m])
            linear = out[layer, n, :d]
            copy(seen.linear[layer, n, :d], linear)
            lost = np.zeros((d, d), noise.dtype)
            if layer + 1 < n_layers:
                w = sizes.widths[layer + 1]
                told, factor = out[layer + 1, n, :w], factors[layer + 1, :w, :w]
                lost = add_layer_above(layers, layer + 1, n, factor, told, linear, gram)
            size, root = np.empty(d, noise.dtype), np.empty(d, noise.dtype)
            for j in range(d):
                gram[j, j] += layers.prior[layer, n, j]
                size[j] = gram[j, j] + lost[j, j]
            finite = finite and factorise(gram)
            for j in range(d):
                root[j] = gram[j, j]
            if is_rounding(size, root):
                raise np.linalg.LinAlgError(TOO_PRECISE)
            put(gram, factors[layer], 0, 0)
        # Forwards: each layer given the one below.
        for layer in range(n_layers):
            d, below = sizes.widths[layer], max(layer - 1, 0)
            row, factor = out[layer, n, :d], factors[layer, :d, :d]
            add_mean(layers, layer, n, out[below, n, : sizes.widths[below]], row)
            solve_transposed(factor, row)
            row += noise[layer, n, :d]
            solve(factor, row)
            if not finite:
                row[:] = np.nan
    return out


@dataclass(frozen=True)
class GaussianChain(Conditional):
    """Joint full conditional of layers, from the first to the last."""

    name = "Gaussian chain"
    layers: tuple[Gaussian, ...]

    @override
    def group(self, model: pm.Model) -> Group:
        return Group.POST_ACTIVATIONS

    @override
    def draw(self, rng: Variable, shapes: Shapes) -> Draw:
        rng, seen, steps = self._seen_and_steps(rng)
        size = (len(self.layers), self._n_obs, _largest(self._widths))
        rng, noise = standard_normal(rng, size, self._dtype)
        drawn = as_op(draw_chain, 3)(
            LayerSizes(_vector(self._widths), _vector([rows.design.shape[0] for rows in seen])),
            Layers(*self._noise(steps), *self._transitions(steps)),
            self._likelihood(seen),
            noise,
        )
        values: dict[TensorVariable, TensorVariable] = {}
        for i, (layer, width) in enumerate(zip(self.layers, self._widths, strict=True)):
            values.update(split(drawn[i, :, :width], layer.members))
        return Draw(rng, values)

    @property
    def _members(self) -> list[Member]:
        return [layer.members[0] for layer in self.layers]

    @property
    def _n_obs(self) -> Length:
        [first, *_] = self._members
        return first.lengths[first.labels[0]]

    @property
    def _widths(self) -> list[Length]:
        return [member.lengths[member.dense[0]] for member in self._members]

    @property
    def _dtype(self) -> str:
        return str(self.draws[0].dtype)

    def _seen_and_steps(
        self, rng: Variable
    ) -> tuple[Variable, list[SharedDesign], list[Observation]]:
        """What is seen of each layer beside the next one, and how each leads to the next."""
        seen: list[SharedDesign] = []
        steps: list[Observation] = []
        next_each = (*self.draws[1:], None)
        for layer, following, width in zip(self.layers, next_each, self._widths, strict=True):
            evidence = []
            for child in layer.observations:
                rng, observation = augmented(rng, child)
                if child.child is following:
                    steps.append(observation)
                else:
                    evidence.append(evidence_of(layer.members, observation))
            nothing = ((0, width), (self._n_obs, 0), (self._n_obs, 0))
            seen.append(
                rows_of(evidence)
                or SharedDesign(*(pt.zeros(shape, self._dtype) for shape in nothing))
            )
        return rng, seen, steps

    def _noise(self, steps: Sequence[Observation]) -> tuple[TensorVariable, TensorVariable]:
        r""":math:`\Lambda_l`, and :math:`o_l` (of the first layer the mean)."""
        offsets = [self._members[0].mean, *(step.offset for step in steps)]
        precisions = [_by_sample(member, member.precision) for member in self._members]
        means = [_by_sample(*pair) for pair in zip(self._members, offsets, strict=True)]
        return self._per_sample(precisions), self._per_sample(means)

    def _likelihood(self, seen: Sequence[SharedDesign]) -> LayerObservations[TensorVariable]:
        """``C_l``, ``w_l`` and ``C_l^T w_l y_l``."""
        counts = [rows.design.shape[0] for rows in seen]
        weights = [
            expand(rows.weight, {0: self._n_obs, 1: count})
            for rows, count in zip(seen, counts, strict=True)
        ]
        most, widest = _largest(counts), _largest(self._widths)
        return LayerObservations(
            _stack([rows.design for rows in seen], most, widest, self._dtype),
            _stack(weights, self._n_obs, most, self._dtype),
            self._per_sample([pt.dot(rows.score, rows.design) for rows in seen]),
        )

    def _transitions(self, steps: Sequence[Observation]) -> tuple[TensorVariable, TensorVariable]:
        """``T_l`` and ``g_l``, of which the first layer has none."""
        passed = [
            evidence_of(layer.members, step)
            for layer, step in zip(self.layers, steps, strict=False)
        ]
        designs = [None, *(step.shared_design for step in passed)]
        widest = _largest(self._widths)
        gains = self._per_sample([None, *(_gain(step) for step in passed)])
        return _stack(designs, widest, widest, self._dtype), gains

    def _per_sample(self, arrays: Sequence[TensorVariable | None]) -> TensorVariable:
        """Arrays of the layers that broadcast to (samples, units), stacked."""
        full = [
            None if array is None else expand(array, {0: self._n_obs, 1: width})
            for array, width in zip(arrays, self._widths, strict=True)
        ]
        return _stack(full, self._n_obs, _largest(self._widths), self._dtype)


@proposes(priority=600)
def propose_chains(context: Context) -> None:
    """Propose to draw layers jointly that follow each other.

    Layers whose fresh draw must follow another keep it, but for the last, where a chain serves too.
    """
    for chain in match_chains([block for block in context.blocks if isinstance(block, Gaussian)]):
        *_, last = chain.layers
        [own] = [d for d in context.sweep if isinstance(d, Gaussian) and d.draws == last.draws]
        sees_alike = zip(own.observations, last.observations, strict=True)
        served = all(seen is unheld for seen, unheld in sees_alike)
        context.put([chain] if served else [own, chain], at=own, removes=chain.layers)


def match_chains(blocks: Sequence[Gaussian]) -> list[GaussianChain]:
    """Layers among Gaussian blocks that can be drawn jointly and gain by it.

    Others, whose weights are the same for all samples, are drawn far more cheaply one by one.
    """
    layers = [block for block in blocks if _is_layer(block)]
    pairs = [(layer, upper) for layer in layers for upper in layers if _leads_to(layer, upper)]
    lower_of = Counter(upper.draws[0] for _, upper in pairs)
    upper_of = Counter(layer.draws[0] for layer, _ in pairs)
    above = {
        layer.draws[0]: upper
        for layer, upper in pairs
        if upper_of[layer.draws[0]] == lower_of[upper.draws[0]] == 1
    }
    not_first = {upper.draws[0] for upper in above.values()}
    chains = []
    for layer in layers:
        chain = [layer]
        while chain[-1].draws[0] in above:
            chain.append(above[chain[-1].draws[0]])
        if layer.draws[0] not in not_first and len(chain) > 1 and _is_separate(chain):
            chains.append(GaussianChain(tuple(c.draws[0] for c in chain), tuple(chain)))
    return chains


def _is_separate(chain: Sequence[Gaussian]) -> bool:
    """Whether what is seen of each layer, and how it leads to the next, is given without others."""
    drawn = [layer.draws[0] for layer in chain]
    for layer in chain:
        for child in layer.observations:
            seen = with_any_precision(child)
            evidence = evidence_of(layer.members, seen)
            parts = [evidence.design, evidence.weight, _gain(evidence)]
            if child.child not in drawn:
                parts.append(evidence.response)
            elif seen.offset is not None:
                parts.append(seen.offset)
            if given_any(parts, drawn):
                return False
    return True


def _is_layer(block: Gaussian) -> bool:
    [member, *others] = block.members
    if others or (len(member.labels), len(member.dense)) != (1, 1):
        return False
    return rows_of(_unweighted(block)) is not None


def _leads_to(layer: Gaussian, upper: Gaussian) -> bool:
    """Whether ``upper`` is the layer after ``layer``, and the samples weigh it differently."""
    [member] = upper.members
    for child in layer.observations:
        if child.child is member.rv and isinstance(child, Observation):
            by_sample = any(not seen.shared for seen in _unweighted(layer))
            return by_sample and child.label_axes == list(member.labels)
    return False


def _unweighted(block: Gaussian) -> list[Evidence]:
    """What the children of a block say, before precisions have been drawn."""
    return [evidence_of(block.members, with_any_precision(seen)) for seen in block.observations]


def _by_sample(layout: Layout, array: TensorVariable | None) -> TensorVariable | None:
    """An array with the axes of a layer as (samples, units)."""
    if array is None:
        return None
    return align(array, layout.rv.ndim).dimshuffle(*layout.labels, *layout.dense)


def _gain(step: Evidence) -> TensorVariable:
    return pt.ones_like(step.weight) if step.factor is None else step.factor


def _vector(numbers: Sequence[Length]) -> TensorVariable:
    return pt.stack([pt.as_tensor(number).astype("int64") for number in numbers])


def _largest(numbers: Sequence[Length]) -> TensorVariable:
    return reduce(pt.maximum, [pt.as_tensor(number) for number in numbers])


def _stack(
    arrays: Sequence[TensorVariable | None], rows: Length, columns: Length, dtype: str
) -> TensorVariable:
    """Matrices, padded with zeros to the same shape; zeros for what there is not."""
    stacked = pt.zeros((len(arrays), rows, columns), dtype)
    for i, array in enumerate(arrays):
        if array is not None:
            stacked = stacked[i, : array.shape[0], : array.shape[1]].set(array)
    return stacked

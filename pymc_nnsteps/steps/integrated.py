r"""A Gaussian block integrated out of the log density of a gradient step.

Where the posterior of a block :math:`v` given all else is :math:`N(P^{-1} h, P^{-1})`
(:mod:`pymc_nnsteps.laws.gaussian`), the density of all else is

.. math::

    \log \int p(\theta, v, y)\, dv = \log p(\theta, v = 0, y)
    + \tfrac12 h^T P^{-1} h - \tfrac12 \log |P| + \text{constant},

P and h functions of :math:`\theta`. With :math:`m = P^{-1} h` the gradients of the two terms are
:math:`m` with respect to h and :math:`-\tfrac12 (m m^T + P^{-1})` with respect to P.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.gaussian.layout import BlockPrior, dense_size, prior_of
from pymc_nnsteps.gaussian.observation import Child, Observation, Total, evidence_of, total_of
from pymc_nnsteps.graphs.errors import known_or_none
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.linear_terms import expand, flatten
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.conditional import Shapes
from pymc_nnsteps.laws.gaussian import Gaussian
from pymc_nnsteps.laws.recognition import find_conditionals, match
from pymc_nnsteps.moves.plan import Choice
from pymc_nnsteps.steps.network_curvature import network_curvature

LARGEST = 100
"""Upper limit of the entries of a block per label for ``collapse="auto"``."""


def block_to_collapse(
    model: pm.Model, rvs: Sequence[TensorVariable], collapse: Choice, shapes: Shapes
) -> Gaussian | None:
    """The largest Gaussian block, but not all, of some variables, if it is to be integrated out."""
    if collapse is False or (collapse == "auto" and not _is_precise_network(model, rvs)):
        return None
    members = [rv for rv in rvs if _is_gaussian(model, rv)]
    blocks = [c for c in find_conditionals(model, members) if isinstance(c, Gaussian)]
    sizes = {block: dense_size(block.members, shapes) for block in blocks}
    block = max(sizes, key=sizes.__getitem__, default=None)
    if block is not None and len(block.draws) < len(rvs):
        total = likelihood(block, block.observations)
        cheap = sizes[block] <= LARGEST and _is_shared(prior_of(block.members), total)
        cheap = cheap and any(seen.child not in rvs for seen in block.observations)
        return block if collapse is True or cheap else None
    if collapse is True:
        what = "none of" if block is None else "all of"
        raise ValueError(
            f"collapse is True, but {what} {', '.join(map(describe, rvs))} can be integrated out "
            f"and drawn exactly; {'pass False' if block is None else 'use nns.Gibbs'}."
        )
    return None


def _is_precise_network(model: pm.Model, rvs: Sequence[TensorVariable]) -> bool:
    """Whether variables are weights, in float64, of a network that can be read."""
    is_network = known_or_none(network_curvature, model, rvs) is not None
    return is_network and all(rv.dtype == "float64" for rv in rvs)


def _is_gaussian(model: pm.Model, rv: TensorVariable) -> bool:
    found = known_or_none(match, model, rv)
    return isinstance(found, Gaussian) and all(
        isinstance(seen, Observation) for seen in found.observations
    )


def log_integral(model: pm.Model, block: Gaussian, total: Total | None) -> TensorVariable:
    """Log integral over a block, relative to the log density with the block at zero."""
    prior = prior_of(block.members)
    n = len(prior.label_lengths)
    labels = dict(enumerate(prior.label_lengths))
    diagonal = prior.precision[..., None] * pt.eye(prior.precision.shape[-1])
    precision = diagonal if total is None else diagonal + total.information
    linear = prior.linear(None if total is None else total.linear)
    h = flatten(expand(linear, labels), 0, n)
    if _is_shared(prior, total):
        p, h = precision.dimshuffle("x", n, n + 1), h[None]
    else:
        p, h = flatten(expand(precision, labels), 0, n), h[:, None]
    p, h = substitute([p.astype("float64"), h.astype("float64")], natural_values(model))
    return _log_gaussian_integral(p, h)


def likelihood(block: Gaussian, observations: Sequence[Child]) -> Total | None:
    """Total of the contributions of some children of a block, if there are any."""
    evidence = []
    for seen in observations:
        assert isinstance(seen, Observation)
        evidence.append(evidence_of(block.members, seen))
    return total_of(evidence, elementwise=False) if evidence else None


def _is_shared(prior: BlockPrior, total: Total | None) -> bool:
    """Whether all labels have the same precision matrix."""
    return prior.shared and (total is None or total.shared)


def _log_gaussian_integral(p: TensorVariable, h: TensorVariable) -> TensorVariable:
    """Sum over g, r of ``h_gr^T P_g^-1 h_gr / 2 - log |P_g| / 2``, with its gradient by hand."""
    p_in, h_in = p.type(), h.type()
    root = cholesky(p_in, lower=True)
    whitened = solve_triangular(root, h_in.mT, lower=True, b_ndim=2)
    log_roots = pt.log(pt.diagonal(root, axis1=-2, axis2=-1)).sum()
    value = pt.sqr(whitened).sum() / 2 - h_in.shape[1] * log_roots

    def pullback(
        inputs: list[TensorVariable],
        outputs: list[TensorVariable],
        cotangents: list[TensorVariable],
    ) -> list[TensorVariable]:
        p, h = inputs
        [slope] = cotangents
        inverse_root = solve_triangular(
            cholesky(p, lower=True), pt.broadcast_to(pt.eye(p.shape[-1]), p.shape), lower=True
        )
        inverse = inverse_root.mT @ inverse_root
        m = h @ inverse
        return [-slope / 2 * (m.mT @ m + h.shape[1] * inverse), slope * m]

    integral: Any = OpFromGraph([p_in, h_in], [value], inline=True, pullback=pullback)
    return integral(p, h)

"""The log density that a step samples from, as a graph of the model's value variables.

It is PyMC's, except that a multivariate normal has a gradient by hand: differentiating through
the Cholesky factorisation costs several times as much.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe, has_prior
from pymc_nnsteps.graphs.search import depends_on, parameters
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.multivariate import inverted


def moved_with(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """These variables, first, and others whose transforms depend on them, as on bounds."""
    values = [model.rvs_to_values[rv] for rv in rvs]
    natural = natural_values(model)
    others = [rv for rv in model.free_RVs if rv not in rvs and depends_on(natural[rv], values)]
    return [*rvs, *others]


def dependent_factors(model: pm.Model, rvs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Random variables and potentials whose log density depends on ``rvs``, their own left out.

    Partly observed vectors count with their siblings: PyMC gives one of them the density of both.
    """
    moved = moved_with(model, rvs)
    nodes = {rv.owner for rv in rvs}
    barriers = model.basic_RVs
    dependent = [
        rv
        for rv in barriers
        if rv.owner in nodes or any(depends_on(i, moved, barriers) for i in rv.owner.inputs)
    ]
    factors = [rv for rv in dependent if rv not in rvs]
    return factors + [term for term in model.potentials if depends_on(term, moved, barriers)]


def log_density(model: pm.Model, factors: Sequence[TensorVariable]) -> TensorVariable:
    """Sum of log densities in float64, in terms of the model's value variables."""
    by_hand = [rv for rv in factors if _is_multivariate_normal(model, rv)]
    others = [factor for factor in factors if factor not in by_hand]
    terms = model.logp(vars=others, sum=False) if others else []
    terms += [_multivariate_normal(model, rv) for rv in by_hand]
    arrays = [pt.as_tensor(term, allow_xtensor_conversion=True) for term in terms]
    zero = pt.constant(0.0, dtype="float64")
    return pt.add(zero, *(pt.sum(array, dtype="float64") for array in arrays))


def gradient_of(
    target: TensorVariable, parts: Sequence[TensorVariable], values: Sequence[Variable]
) -> list[TensorVariable]:
    """Gradient of a log density with respect to ``parts``, from which ``values`` are made."""
    try:
        slopes: Any = pt.grad(target, list(parts), disconnected_inputs="ignore")
    except (NullTypeGradError, NotImplementedError) as error:
        names = ", ".join(map(describe, values))
        raise ValueError(
            f"The log density has no gradient with respect to {names} ({error}); "
            "use PCN, which needs none."
        ) from error
    return list(slopes)


def _is_multivariate_normal(model: pm.Model, factor: TensorVariable) -> bool:
    if factor in model.potentials or not has_prior(model, factor, MvNormalRV):
        return False
    covariance = unbatched(parameters(factor)[1])
    return covariance.ndim == 2 and inverted(covariance) is None


def _multivariate_normal(model: pm.Model, rv: TensorVariable) -> TensorVariable:
    mean, covariance = parameters(rv)
    mean, covariance = substitute([mean, unbatched(covariance)], natural_values(model))
    deviations = (model.rvs_to_values[rv] - mean).reshape((-1, covariance.shape[-1]))
    return _gaussian_log_density(deviations, covariance)


def _gaussian_log_density(deviations: TensorVariable, covariance: TensorVariable) -> TensorVariable:
    """``sum_c log N(r_c; 0, K)`` over m rows, with its gradient by hand.

    With ``A = K^{-1} R^T`` the gradients are ``-A^T`` and ``(A A^T - m K^{-1}) / 2``.
    """
    r, k = deviations.type(), covariance.type()
    m, n = r.shape
    root = cholesky(k)
    whitened = solve_triangular(root, r.mT, lower=True)
    log_determinant = pt.log(pt.diagonal(root)).sum()
    constant = np.asarray(np.log(2 * np.pi) / 2, dtype=r.dtype)
    value = -pt.sqr(whitened).sum() / 2 - m * (log_determinant + n * constant)

    def pullback(
        inputs: list[TensorVariable],
        outputs: list[TensorVariable],
        cotangents: list[TensorVariable],
    ) -> list[TensorVariable]:
        r, k = inputs
        [slope] = cotangents
        inverse_root = solve_triangular(cholesky(k), pt.eye(k.shape[0], dtype=k.dtype), lower=True)
        inverse = inverse_root.mT @ inverse_root
        a = inverse @ r.mT
        return [-slope * a.mT, slope / 2 * (a @ a.mT - r.shape[0] * inverse)]

    density: Any = OpFromGraph([r, k], [value], inline=True, pullback=pullback)
    return density(deviations, covariance)


def unbatched(matrix: TensorVariable) -> TensorVariable:
    """Matrix without the leading axes of length one that broadcasting has added."""
    while (
        matrix.owner is not None
        and isinstance(matrix.owner.op, DimShuffle)
        and matrix.owner.op.is_left_expand_dims
        and matrix.ndim > 2
    ):
        matrix = matrix.owner.inputs[0]
    return matrix

"""The last layer of a network with the targets' law integrated over it, and the way back.

Given the hidden layers, a network is linear in its readout weights ``theta_c`` (one row per
output ``c``). With ``Psi`` the last hidden layer in the scaling of the readout, and a column for
its bias, of shape ``(n_obs, n_columns)``::

    theta_c ~ N(0, I),   y_c ~ N(Psi theta_c, sigma^2 I)
    y_c ~ N(0, K),       K = sigma^2 I + Psi Psi^T
    theta_c | y_c ~ N(mu_c, Sigma),   Sigma = (I + Psi^T Psi / sigma^2)^-1,
                                      mu_c = Sigma Psi^T y_c / sigma^2

Hence ``theta_c = mu_c + A phi_c`` with ``phi_c ~ N(0, I)`` and any ``A A^T = Sigma`` is the
readout layer given hidden layers and targets. There are two forms of the same law: *by rows*
with ``K = L L^T``, for few observations, and *by columns* with ``Sigma^-1 = R R^T``, for few
hidden units. Either factorises one matrix for all outputs.

References
----------
Pezzetti, Favaro and Peluchetti, *Function-Space MCMC for Bayesian Wide Neural Networks* (2025),
Section 2; Hron et al., *Wide Bayesian Neural Networks Have a Simple Weight Posterior* (2022).
"""

from copy import copy
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor import config
from pytensor.compile.mode import optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.features import ReplaceValidate
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import TensorConstant, TensorVariable
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.type import TensorType

from pymc_nnsteps.graphs.initial_values import locals_of
from pymc_nnsteps.models.parts.layers import standard_deviation

MARGINAL = "marginal_of_readout"
"""Name of operations that draw targets with the readout integrated over its prior."""

INSTEAD = "or build the network with reparametrize=False, whose variables have the same names."

refused = CheckAndRaise(
    ValueError,
    "y cannot be drawn from the posterior of wide_mlp with a reparametrised readout, over whose "
    f'prior it is drawn; use nns.predict with kind="response", {INSTEAD}',
)

refused_function = CheckAndRaise(
    ValueError,
    "f and the readout of wide_mlp with a reparametrised readout are those given the data that the "
    f"model has now, which need not be those of the posterior; use nns.predict, {INSTEAD}",
)


class _MarginalNormalRV(NormalRV):
    def rng_fn(
        self,
        rng: np.random.Generator,
        mean: np.ndarray,
        sigma: np.ndarray,
        size: tuple[int, ...] | None,
    ) -> np.ndarray:
        """Draws in Python, which PyTensor looks up by the operation's name."""
        return np.asarray(rng.normal(mean, sigma, size))


class _MarginalNormal(pm.Normal):
    rv_op = _MarginalNormalRV(name=MARGINAL)


class _MarginalMvNormal(pm.MvNormal):
    rv_op = MvNormalRV(name=MARGINAL, method="cholesky")


def by_rows(
    features: TensorVariable,
    bias_var: float,
    noise: float,
    targets: TensorVariable,
    phi: TensorVariable,
) -> TensorVariable:
    """Observe ``y_c ~ N(0, K)`` as ``pm.MvNormal`` and return the readout weights ``theta``.

    ``A = I - Psi^T L^-T (L + sigma I)^-1 Psi``. ``features`` are the last hidden layer in the
    scaling of the readout, shape (n_obs, units), ``bias_var`` is the prior variance of the bias
    (zero: none), and ``noise`` is ``sigma``. ``targets`` have shape (n_obs,) with one output, or
    (n_outputs, n_obs); ``phi`` and ``theta`` have (n_outputs, n_columns) with the biases in the
    last column.
    """
    sigma, identity = _constant(noise), pt.eye(features.shape[0])
    of_bias_and_noise = _constant(bias_var) + sigma**2 * identity
    covariance = features @ features.T + of_bias_and_noise
    _MarginalMvNormal("y", 0.0, covariance, observed=targets, dims=_dims(targets))

    psi, columns = _design(features, bias_var), pt.atleast_2d(targets).T
    root = pt.linalg.cholesky(covariance)
    whitened = _solve(root, columns) - _solve(root + sigma * identity, psi @ phi.T)
    return phi + _solve_transposed(root, whitened).T @ psi


def by_columns(
    features: TensorVariable,
    bias_var: float,
    noise: float,
    targets: TensorVariable,
    phi: TensorVariable,
) -> TensorVariable:
    """Observe ``y_c ~ N(0, K)`` without forming ``K`` and return the readout weights ``theta``.

    With ``Sigma^-1 = R R^T``, by the matrix determinant lemma and Woodbury's identity::

        log det K = 2 n log sigma + 2 log det R
        y^T K^-1 y = (y^T y - |R^-1 Psi^T y|^2 / sigma^2) / sigma^2

    Forward draws of ``y_c`` are ``Psi v + sigma e`` with standard normal ``v`` and ``e``.
    ``A = R^-T``. Arguments are those of :func:`by_rows`.
    """
    sigma, psi = _constant(noise), _design(features, bias_var)
    pm.CustomDist(
        "y",
        psi,
        sigma,
        dist=_linear_normal,
        logp=_linear_normal_logp,
        signature="(n,p),()->(n)",
        class_name="LinearNormal",
        observed=targets,
        dims=_dims(targets),
    )

    root, columns = _root_of_precision(psi, sigma), pt.atleast_2d(targets).T
    whitened = _solve(root, psi.T @ columns) / sigma**2 + phi.T
    return _solve_transposed(root, whitened).T


def _design(features: TensorVariable, bias_var: float) -> TensorVariable:
    """The matrix ``Psi``."""
    if bias_var == 0:
        return features
    column = pt.full((features.shape[0], 1), standard_deviation(bias_var))
    return pt.concatenate([features, column], axis=1)


def _constant(number: float) -> TensorConstant:
    return pt.constant(number, dtype=config.floatX)


def _linear_normal(
    psi: TensorVariable, sigma: TensorVariable, size: TensorVariable
) -> TensorVariable:
    outputs = () if rv_size_is_none(size) else tuple(size)
    weights = pm.Normal.dist(size=(*outputs, psi.shape[1]))
    return _MarginalNormal.dist(weights @ psi.T, sigma)


def _linear_normal_logp(
    value: TensorVariable, psi: TensorVariable, sigma: TensorVariable
) -> TensorVariable:
    root = _root_of_precision(psi, sigma)
    explained = _solve(root, (value @ psi).T) / sigma
    square = (value**2).sum(-1) - (explained**2).sum(0)
    log_det = pt.log(pt.diagonal(root)).sum()
    n_obs = value.shape[-1].astype(value.dtype)
    return -square / (2 * sigma**2) - log_det - n_obs * pt.log(sigma * (2 * np.pi) ** 0.5)


def _root_of_precision(psi: TensorVariable, sigma: TensorVariable) -> TensorVariable:
    return pt.linalg.cholesky(pt.eye(psi.shape[1]) + psi.T @ psi / sigma**2)


def _solve(root: TensorVariable, right: TensorVariable) -> TensorVariable:
    return pt.linalg.solve_triangular(root, right, lower=True)


def _solve_transposed(root: TensorVariable, right: TensorVariable) -> TensorVariable:
    return pt.linalg.solve_triangular(root.T, right, lower=False)


def _dims(targets: TensorVariable) -> tuple[str, ...]:
    return ("output", "obs")[-targets.ndim :]


class _RefuseGiven(GraphRewriter):
    """Refuse draws of targets given weights, and functions of stored draws of ``phi``.

    The former are those of posterior predictive sampling, and of functions that weights are passed
    to; the latter are those that posterior predictive sampling computes.
    """

    @override
    def add_requirements(self, fgraph: FunctionGraph) -> None:
        fgraph.attach_feature(ReplaceValidate())

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        is_predictive = bool(locals_of("sample_posterior_predictive", "pymc.sampling.forward"))
        for node in list(fgraph.apply_nodes):
            if getattr(node.op, "name", None) != MARGINAL:
                continue
            entering = set(ancestors(node.inputs))
            is_given = is_predictive or any(
                variable in entering
                and isinstance(variable.type, TensorType)
                and not isinstance(variable, SharedVariable)
                for variable in fgraph.inputs
            )
            plain = copy(node.op)
            del plain.name  # that of its class is not marked
            rng, drawn = plain.make_node(*node.inputs).outputs
            new = [rng, refused(drawn, False) if is_given else drawn]
            fgraph.replace_all(zip(node.outputs, new, strict=True), import_missing=True)
        given = [v for v in fgraph.inputs if getattr(v.tag, "is_given_targets", False)]
        if given and is_predictive:
            never = pt.constant(False)
            for output in fgraph.outputs:
                if not set(given).isdisjoint(ancestors([output])) and output not in given:
                    [nothing] = refused_function.make_node(output, never).outputs
                    fgraph.replace(output, nothing, import_missing=True)


optdb.register("refuse_given", _RefuseGiven(), "fast_run", "fast_compile", position=0.01)

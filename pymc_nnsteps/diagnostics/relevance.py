"""Relevance of each input of a network, from the learnt scales of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import LaplaceRV, NormalRV, StudentTRV
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import positive_number
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.diagnostics.draws import Tabulated, at_draws
from pymc_nnsteps.graphs.known import has_prior
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import before_scaling, columns_of, depends_on, parameters, stated_in
from pymc_nnsteps.graphs.values import substitute
from pymc_nnsteps.network.layers import product_of
from pymc_nnsteps.prediction.forward import named_output
from pymc_nnsteps.prediction.new_inputs import input_container
from pymc_nnsteps.prediction.posterior import SAMPLES, posterior_with_draws, sampled_rows

SCALE_LAST = (NormalRV, StudentTRV, LaplaceRV)
"""Laws whose last parameter is a scale."""


@dataclass(frozen=True, repr=False)
class Relevance(Tabulated):
    """Scales of the weights of each input, printed as a table, the largest first.

    Attributes
    ----------
    draws : Dataset, dims (chain, draw, feature)
        The scale of each input at each draw, for each group of weights.
    prob : float
        Posterior probability of the intervals.
    """

    draws: xr.Dataset
    prob: float

    formats: ClassVar[Mapping[str, str]] = dict.fromkeys(("median", "lower", "upper"), "{:.3g}")

    @property
    @override
    def table(self) -> pd.DataFrame:
        """One row per group of weights and input."""
        tails = [0.5, (1 - self.prob) / 2, (1 + self.prob) / 2]
        groups = {}
        for name, scales in self.draws.items():
            [dim] = (dim for dim in scales.dims if dim not in SAMPLES)
            rows = scales.quantile(tails, SAMPLES).transpose(dim, "quantile")
            group = pd.DataFrame(rows.values, index=scales[dim].values, columns=list(self.formats))
            groups[name] = group.sort_values("median", ascending=False)
        return pd.concat(groups, names=["weights", "input"])


@one_thread
def relevance(
    idata: Any,
    *,
    prob: float = 0.9,
    model: pm.Model | None = None,
    inputs: str | None = None,
    output: str | None = None,
) -> Relevance:
    r"""Compare inputs by the scales of their weights, where these were learnt.

    Weights :math:`W_{dj}` lead from inputs j to units d. Given the learnt scales, their prior has
    standard deviations (for Student-t and Laplace distributions: scales) :math:`s_{dj}`. The
    relevance of an input is

    .. math:: r_j = \operatorname{sd}(x_j) \Big( \frac{1}{D} \sum_d s_{dj}^2 \Big)^{1/2}.

    It measures how far the input typically moves a unit. The standard deviation of an input is over
    the rows with which the model was sampled, stored in the result of ``pm.sample``; with the
    posterior alone, over those that the model currently holds. Scales are learnt by automatic
    relevance determination (the precisions ``tau_ih1_unit`` of
    :func:`~pymc_nnsteps.hierarchical_mlp`, the scales ``psi1`` of :func:`~pymc_nnsteps.bow_tie`),
    by the blocks of both applied directly to the inputs, and by the same models written by hand.
    Scales are more uncertain than function values, and inputs with the same information share their
    relevance. :func:`~pymc_nnsteps.partial_dependence` shows the effect of an input on the
    function.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior, or draws of a variational fit.
    prob : float
        Posterior probability of the intervals, with equal tails.
    model, inputs
        As for :func:`~pymc_nnsteps.predict`.
    output : str, optional
        Name of a ``pm.Deterministic``. Only weights on which it depends are shown, such as those of
        one of several networks.

    Returns
    -------
    Relevance
        Prints as a table with the median and the ends of an interval for each input, largest first.
        ``.table`` is a DataFrame, ``.draws`` has each draw.

    Raises
    ------
    ValueError
        If no weights of the inputs have scales that are learnt for each input, or if the posterior
        lacks these scales. Weights of the inputs have the dimension of their columns, or multiply
        them along a named dimension of their own, as those of blocks do.

    References
    ----------
    Neal, *Bayesian Learning for Neural Networks* (1996), Section 1.2.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = nns.bow_tie(X, np.abs(X[:, 1]), hidden=(5,))
    >>> draws = nns.fit(model, starts=2, random_seed=1, progressbar=False).sample(random_seed=1)
    >>> nns.relevance(draws, model=model).table.index.tolist()
    [('W1', 1), ('W1', 0)]
    """
    prob = positive_number("prob", prob, below=1)
    model = model_to_read(model)
    container = input_container("inputs", model, inputs, output)
    [*_, own] = dims_of(model, container) or (None,)
    factors = _factors(model, container)
    columns = list(dict.fromkeys([own, *factors] if own else factors))
    shown = None if output is None else named_output(model, output, container)
    groups = {
        rv: dim
        for rv in model.free_RVs
        for dim in columns
        if _has_scale_of_each(model, rv, dim) and (shown is None or depends_on(shown, {rv}))
    }
    if not groups:
        raise ValueError(
            "relevance needs weights with the dimension of the columns of "
            f"{container.name} whose scales are learnt for each column; the model has none; give "
            "weights, scales and inputs this dimension with dims=..., or build the network with "
            "nns.hierarchical_mlp or nns.bow_tie, or the block of either applied to the inputs."
        )
    posterior = posterior_with_draws(idata)
    expressions: list[Any] = model.replace_rvs_by_values([parameters(rv)[-1] for rv in groups])
    X = sampled_rows(idata, model, container)
    draws = at_draws(model, posterior, expressions)
    feature = own or "feature"
    scales = {
        rv.name: (
            (*SAMPLES, feature),
            _spread(factors.get(dim, container), container, X) * _typical(model, rv, dim, values),
        )
        for (rv, dim), values in zip(groups.items(), draws, strict=True)
    }
    labels = next(filter(None, map(model.coords.get, columns)), range(X.shape[1]))
    coords = {feature: list(labels)}
    return Relevance(xr.Dataset(scales, {each: posterior[each] for each in SAMPLES} | coords), prob)


def _factors(model: pm.Model, container: TensorSharedVariable) -> dict[str, TensorVariable]:
    """Dimensions of weights along which they multiply columns of the inputs, and these columns."""
    found: dict[str, TensorVariable] = {}
    for part in ancestors([*model.basic_RVs, *model.deterministics, *model.potentials]):
        pair = product_of(part) if isinstance(part, TensorVariable) else None
        if pair is not None and columns_of(pair[0], [container]) is not None:
            found |= dict.fromkeys(filter(None, dims_of(model, pair[1])[1:]), pair[0])
    return found


def _spread(
    expression: TensorVariable, container: TensorSharedVariable, X: NDArray[Any]
) -> NDArray[Any]:
    """Standard deviations of the columns of the inputs, scaled as they enter a network."""
    seen: Any = expression
    while any(isinstance(each.type, RandomType) for each in graph_inputs([seen])):
        seen = before_scaling(seen)
    rows = container.type()
    [seen] = substitute([seen], {container: rows})
    return np.asarray(pytensor.function([rows], seen, mode="FAST_COMPILE")(X).std(axis=0))


def _has_scale_of_each(model: pm.Model, rv: TensorVariable, dim: str) -> bool:
    """Whether a variable has a scale that is learnt for each entry along a dimension."""
    if dim not in dims_of(model, rv) or not has_prior(model, rv, *SCALE_LAST):
        return False
    learnt = stated_in([parameters(rv)[-1]], model.free_RVs)
    return any(dim in dims_of(model, scale) for scale in learnt)


def dims_of(model: pm.Model, variable: TensorVariable) -> tuple[str | None, ...]:
    """Names of a variable's dimensions."""
    return model.named_vars_to_dims.get(variable.name) or ()


def _typical(model: pm.Model, rv: TensorVariable, dim: str, scales: np.ndarray) -> np.ndarray:
    """Root mean square of scales (chain, draw, ...) over all axes but the chosen one."""
    shape = (*scales.shape[:2], *(1,) * (rv.ndim + 2 - scales.ndim), *scales.shape[2:])
    axis = 2 + dims_of(model, rv).index(dim)
    others = tuple(other for other in range(2, rv.ndim + 2) if other != axis)
    squares: np.ndarray = np.mean(scales.reshape(shape) ** 2, axis=others)
    return np.sqrt(squares)

r"""Missing inputs of new rows, drawn from the law that the model states for its own.

Each column of numbers with gaps is Normal given other columns
(:mod:`~pymc_nnsteps.models.parts.inputs`): together :math:`x = a + B x + D e` with e of
independent standard normal numbers, a triangular B, and the standard deviations on the diagonal of
D. Of a row some columns :math:`o` are known. A draw x from the joint law becomes one given these,
column by column, with the covariance S of all columns given those known so far:

.. math:: x \leftarrow x + \frac{S_{\cdot j}}{S_{jj}} (o_j - x_j), \qquad
    S \leftarrow S - \frac{S_{\cdot j} S_{j \cdot}}{S_{jj}},

known as conditioning by kriging, or Matheron's rule. A missing level of a category depends on none
of the others. It is the number of the cumulated shares below :math:`\Phi(e)`, e a standard normal
number. So completed inputs are a function of the inputs and of noise, as latent layers are.

References
----------
Doucet, *A Note on Efficient Conditional Simulation of Gaussian Distributions* (2010).
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import CategoricalRV, NormalRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.affine import affine
from pymc_nnsteps.graphs.errors import NotConjugate, declined_as, known_or_none
from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.graphs.search import depends_on, once_per_model, parameters
from pymc_nnsteps.graphs.values import constant_or_none, substitute
from pymc_nnsteps.prediction.posterior import holds
from pymc_nnsteps.prediction.row_data import Known, own_rows

__all__ = [
    "Imputation",
    "ImputedCategory",
    "ImputedColumn",
    "imputation_of",
    "imputations_of",
    "with_missing",
]


@dataclass(frozen=True)
class _Imputed:
    """Missing entries of one column, or of the columns of one category."""

    numbers: NDArray[np.intp]
    rows: NDArray[np.intp]
    # before, after of shape (n_obs, n_features): the inputs without these entries, and with them.
    before: TensorVariable
    after: TensorVariable
    entries: TensorVariable  # shape (n_missing,): the random variable of these

    @abstractmethod
    def of_rows(self, inputs: NDArray[np.floating]) -> NDArray[Any]:
        """Entries of complete rows."""


@dataclass(frozen=True)
class ImputedColumn(_Imputed):
    """Missing numbers."""

    @property
    def number(self) -> int:
        """Number of the column."""
        return int(self.numbers[0])

    @override
    def of_rows(self, inputs: NDArray[np.floating]) -> NDArray[Any]:
        return inputs[:, self.number]

    @property
    def mean(self) -> Any:
        """Mean of all entries of the column, of which the missing ones are picked."""
        return _picked(parameters(self.entries)[0])[0]

    @property
    def sigma(self) -> TensorVariable:
        """Standard deviation of an entry given other columns."""
        sigma = parameters(self.entries)[1]
        if not all(sigma.type.broadcastable):
            raise NotConjugate(
                f"the standard deviation of {describe(self.entries)} is not constant"
            )
        return sigma.flatten()[0] if sigma.ndim else sigma


@dataclass(frozen=True)
class ImputedCategory(_Imputed):
    """Missing levels."""

    @property
    def shares(self) -> TensorVariable:
        """Probabilities of the levels, shape (n_levels,)."""
        shares: TensorVariable = parameters(self.entries)[-1]
        if not all(shares.type.broadcastable[:-1]):
            raise NotConjugate(f"the probabilities of {describe(self.entries)} are not constant")
        return shares[0] if shares.ndim > 1 else shares

    @property
    def indicators(self) -> TensorVariable:
        """Entries of the columns for each level, shape (n_levels, n_columns)."""
        levels: TensorVariable = self.after.owner.inputs[1].owner.inputs[0]
        return levels

    @override
    def of_rows(self, inputs: NDArray[np.floating]) -> NDArray[Any]:
        levels = self.indicators.data  # type: ignore[attr-defined]
        same = (inputs[:, None, self.numbers] == levels).all(axis=2)
        return np.where(same.any(axis=1), same.argmax(axis=1), -1)


@dataclass(frozen=True)
class Imputation:
    """The laws of missing inputs of a table."""

    model: pm.Model
    container: TensorSharedVariable
    # Completed inputs, in terms of the data container, NaN where entries are missing, of the
    # model's variables, and of the noise.
    made: dict[Variable, TensorVariable]
    completed: TensorVariable  # the inputs with the variables of missing entries
    columns: tuple[ImputedColumn, ...]  # in the order in which they are completed
    categories: tuple[ImputedCategory, ...]
    observed: tuple[TensorVariable, ...]  # the other entries of each of these
    noise: TensorVariable  # shape (n_obs, n_columns + n_categories): standard normal
    missing: NDArray[np.bool_]  # shape (n_obs, n_features): of the model's own rows

    @property
    def inputs(self) -> TensorVariable:
        """What is completed, of shape (n_obs, n_features): the data, perhaps standardised."""
        return next(iter(self.made)).owner.inputs[0]

    @property
    def entries(self) -> list[TensorVariable]:
        """The random variables of missing entries."""
        return [each.entries for each in (*self.columns, *self.categories)]

    @property
    def missing_numbers(self) -> NDArray[np.bool_]:
        """Where entries of columns of numbers are missing."""
        numbers = [column.number for column in self.columns]
        return self.missing & np.isin(np.arange(self.missing.shape[1]), numbers)

    @property
    def holds_own_rows(self) -> bool:
        """Whether the container has the rows at present whose known entries the laws observe."""
        inputs, values = self.inputs.eval(mode="FAST_COMPILE"), self.model.rvs_to_values
        imputed = (*self.columns, *self.categories)
        known = (np.delete(each.of_rows(inputs), each.rows) for each in imputed)
        return len(inputs) == len(self.missing) and all(
            np.allclose(entries, values[rv].eval(mode="FAST_COMPILE"))
            for entries, rv in zip(known, self.observed, strict=True)
        )

    def gaps(self) -> NDArray[np.bool_]:
        """Where entries are missing; NaN of other rows than the model's, as of ``set_data``."""
        if self.holds_own_rows:
            return self.missing
        return np.isnan(self.inputs.eval(mode="FAST_COMPILE"))


@once_per_model
def imputation_of(model: pm.Model, container: TensorSharedVariable) -> Imputation | None:
    """The laws of missing inputs, Gaussian row by row, of a model; None if it has none."""
    found = list(_imputed(model, container))
    if not found:
        return None
    columns = tuple(each for each in found if isinstance(each, ImputedColumn))
    categories = tuple(each for each in found if isinstance(each, ImputedCategory))
    n_features = container.get_value(borrow=True).shape[1]
    noise = pt.tensor("noise of missing inputs", dtype="float64", shape=(None, len(found)))
    with declined_as(f"predict cannot draw missing entries of {describe(container)}"):
        drawn = _drawn_numbers(model, found[0].before, columns, categories, n_features, noise)
        for k, category in enumerate(categories, len(columns)):
            drawn = drawn + _drawn_levels(model, category, n_features, noise[:, k])
        inputs = found[0].before
        drawn = pt.where(pt.isnan(inputs), drawn, inputs).astype(inputs.dtype)
        laws = [_observed(model, each) for each in (*columns, *categories)]
        observed, lengths = zip(*laws, strict=True)
        if len(set(lengths)) > 1:
            raise NotConjugate("its columns have different numbers of rows")
    missing = np.zeros((lengths[0], n_features), dtype=bool)
    for each in found:
        missing[np.ix_(each.rows, each.numbers)] = True
    made: dict[Any, Any] = dict.fromkeys([each.after for each in found], drawn)
    whole = found[-1].after
    return Imputation(model, container, made, whole, columns, categories, observed, noise, missing)


def imputations_of(model: pm.Model) -> list[Imputation]:
    """Laws of missing inputs of all tables, as far as they can be read."""
    tables = [d for d in model.data_vars if isinstance(d, TensorSharedVariable) and d.ndim == 2]
    return list(filter(None, (known_or_none(imputation_of, model, table) for table in tables)))


def with_missing(model: pm.Model, rows: Mapping[Any, NDArray[Any]]) -> dict[Variable, NDArray[Any]]:
    """Values of data, of the rows that tables hold with NaN where their entries are missing."""
    found = dict(rows)
    for each in imputations_of(model):
        values = rows.get(each.container)
        if values is not None and holds(own_rows(each.container), values):
            found[each.container] = np.where(each.gaps(), np.nan, values)
    return found


def _imputed(
    model: pm.Model, container: TensorSharedVariable
) -> Iterator[ImputedColumn | ImputedCategory]:
    """Columns with missing entries, in the order in which they are completed."""
    before: Any = None
    node: Any
    for node in io_toposort([], [*model.basic_RVs, *model.deterministics, *model.potentials]):
        if not isinstance(node.op, AdvancedIncSubtensor):
            continue
        table, put, *given = node.inputs
        levels, entries = _levels_of(put)
        if entries not in model.free_RVs:
            continue
        is_first = before is None and _has_columns_of(table, container)
        indices = indices_from_subtensor(given, node.op.idx_list)
        if (is_first or table is before) and len(indices) == 2:
            rows, number = map(constant_or_none, indices)
            if rows is None or number is None:
                return
            kind = ImputedColumn if levels is None else ImputedCategory
            yield kind(np.ravel(number), np.ravel(rows), table, node.outputs[0], entries)
            before = node.outputs[0]


def _levels_of(put: Any) -> tuple[Any, Any]:
    """Indicators that levels pick rows of, if these are put into a table, and what is random."""
    if put.owner is not None and isinstance(put.owner.op, AdvancedSubtensor):
        levels, *picked = put.owner.inputs
        if isinstance(levels, Constant) and len(picked) == 1:
            return levels, picked[0]
    return None, put


def _has_columns_of(table: Variable, container: TensorSharedVariable) -> bool:
    """Whether each entry of a table is a function of the same entry of the container alone."""
    while table is not container:
        node = table.owner
        if node is None or not isinstance(node.op, Elemwise):
            return False
        within = [each for each in node.inputs if depends_on(each, {container})]
        others = [each for each in node.inputs if each not in within]
        if len(within) != 1 or any(not isinstance(each, Constant) for each in graph_inputs(others)):
            return False
        [table] = within
    return True


def _picked(parameter: Any) -> tuple[Any, NDArray[Any] | None]:
    """What a parameter picks entries of by constants, and which; the parameter itself if none."""
    if parameter.owner is None or not isinstance(parameter.owner.op, AdvancedSubtensor):
        return parameter, None
    full, *given = parameter.owner.inputs
    [rows, *_] = indices_from_subtensor(given, parameter.owner.op.idx_list)
    return full, constant_or_none(rows)


def _observed(model: pm.Model, column: _Imputed) -> tuple[TensorVariable, int]:
    """The variable of a column's other entries, which has the same law; number of all entries."""
    kind = NormalRV if isinstance(column, ImputedColumn) else CategoricalRV
    for rv in model.observed_RVs:
        # Standard deviations, or shares.
        same = has_law(model, rv, kind) and equal_computations(
            [parameters(rv)[-1]], [parameters(column.entries)[-1]]
        )
        if same and isinstance(column, ImputedColumn):
            full, rows = _picked(parameters(rv)[0])
            if full is column.mean and rows is not None:
                every = np.sort(np.append(rows, column.rows))
                if np.array_equal(every, np.arange(len(every))):
                    return rv, len(every)
        elif same:
            known = model.rvs_to_values[rv].shape[0].eval(mode="FAST_COMPILE")
            return rv, int(known) + len(column.rows)
    raise NotConjugate(f"no observed variable has the distribution of {describe(column.entries)}")


def _drawn_numbers(
    model: pm.Model,
    inputs: TensorVariable,
    columns: Sequence[ImputedColumn],
    categories: Sequence[ImputedCategory],
    n_features: int,
    noise: TensorVariable,
) -> TensorVariable:
    """Draws of all entries of columns of numbers given the others of a row, zero elsewhere."""
    if not columns:
        return pt.zeros_like(inputs)
    numbers = [column.number for column in columns]
    of_levels = [number for category in categories for number in category.numbers]
    others = np.setdiff1d(np.arange(n_features), [*numbers, *of_levels])
    lines = pt.stack(
        [
            _line(model, column, [*others, *numbers[:k]], n_features)
            for k, column in enumerate(columns)
        ]
    )
    scales = pt.stack([column.sigma for column in columns])
    one = pt.eye(len(columns))
    solved = pt.linalg.solve_triangular(one - lines[:, 1:][:, numbers], one, lower=True)
    root = solved * scales
    without_gaps = pt.where(np.isin(np.arange(n_features), others), inputs, 0.0)
    x = (lines[:, 0] + without_gaps @ lines[:, 1:].T) @ solved.T
    x, covariance = x + noise[:, : len(columns)] @ root.T, (root @ root.T)[None]
    for k, number in enumerate(numbers):
        known = inputs[:, number]
        gain = covariance[:, :, k] / covariance[:, k, k][:, None]
        gain = pt.where(pt.isnan(known)[:, None], 0.0, gain)
        x = x + gain * pt.where(pt.isnan(known), 0.0, known - x[:, k])[:, None]
        covariance = covariance - gain[:, :, None] * covariance[:, k, :][:, None, :]
    return x @ np.eye(n_features)[numbers]


def _drawn_levels(
    model: pm.Model, category: ImputedCategory, n_features: int, noise: TensorVariable
) -> TensorVariable:
    """Indicators of draws of levels in their columns, zero elsewhere."""
    name = describe(category.entries)
    if not has_law(model, category.entries, CategoricalRV):
        raise NotConjugate(f"{name} is not Categorical, or a potential depends on it")
    if depends_on(category.shares, {category.before}):
        raise NotConjugate(f"the probabilities of {name} depend on other columns")
    below = (1 + pt.erf(noise / np.sqrt(2))) / 2
    level = pt.gt(below[:, None], pt.cumsum(category.shares)[:-1]).sum(axis=1)
    return category.indicators[level] @ np.eye(n_features)[category.numbers]


def _line(
    model: pm.Model, column: ImputedColumn, completed: Collection[int], n_features: int
) -> TensorVariable:
    """Intercept and slopes (1 + n_features,) of a column's mean in those ``completed`` before."""
    name = describe(column.entries)
    if not has_law(model, column.entries, NormalRV):
        raise NotConjugate(f"{name} is not Normal, or a potential depends on it")
    if not set(_columns_used(column)).issubset(completed):
        raise NotConjugate(f"the mean of {name} depends on columns that are imputed after it")
    rows = column.before.type()
    try:
        with declined_as(f"the mean of {name} is not linear in other columns"):
            affine(column.mean, {column.before}, model.basic_RVs)
        fixed = [rv for rv in model.free_RVs if not depends_on(rv, {column.before})]
        known: Known = {rv: (rv, None) for rv in fixed}
        _, place = follow_rows(column.mean, known | {column.before: (rows, Rows(0))})
    except MixesRows as reason:
        raise NotConjugate(f"the mean of {name} mixes rows: {reason}") from None
    if place != Rows(0):
        raise NotConjugate(f"the mean of {name} has no rows")
    probes = np.vstack([np.zeros(n_features), np.eye(n_features)])
    [at_probes] = substitute([column.mean], {column.before: pt.constant(probes)})
    return pt.concatenate([at_probes[:1], at_probes[1:] - at_probes[0]])


def _columns_used(column: ImputedColumn) -> Iterator[int | None]:
    """Numbers of the columns that a column's mean picks of the inputs; None if it uses all."""
    for part in ancestors([column.mean], [column.before]):
        if part.owner is not None and column.before in part.owner.inputs:
            table, *given = part.owner.inputs
            of_all = table is not column.before or not isinstance(part.owner.op, AdvancedSubtensor)
            rows, numbers = (None, None)
            if not of_all:
                rows, numbers = indices_from_subtensor(given, part.owner.op.idx_list)
            stated = None if rows != slice(None) else constant_or_none(numbers)
            yield from [None] if stated is None else stated

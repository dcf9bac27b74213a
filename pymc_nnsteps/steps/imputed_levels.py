r"""Missing levels of categories, each drawn from its full conditional.

Given a network's weights, the rows of its inputs are independent. A level c of a row with shares p
has, of few levels, the probabilities

.. math:: P(c = k \mid \cdot) \propto p_k \, \pi(\text{rest of the row} \mid c = k),

with the noise of Normal latent layers held (:mod:`~pymc_nnsteps.steps.imputed_rows`): these move
along, and what is left of the row, such as targets and gates, has a density for each level.
"""

from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.step_methods.compound import StepMethodState, infer_warn_stats_info
from pymc.util import RandomGenerator, get_random_generator

from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.prediction.imputation import ImputedCategory
from pymc_nnsteps.steps.compiled import OfData, PointFunction
from pymc_nnsteps.steps.imputed_rows import (
    RowMove,
    imputed_levels,
    judged,
    moved_along,
    require_own_rows,
)
from pymc_nnsteps.steps.step import Step, Vars, chosen

CHANGED = "changed_levels"


class ImputedLevels(Step):
    """Draw missing levels of categories (``nns.blocks.table(..., missing="impute")``).

    ``vars`` are missing levels, by default all, of rows that are independent and the model's own.
    """

    name = "imputed_levels"
    _state_class = StepMethodState

    def __init__(
        self,
        vars: Vars = None,
        *,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        model = modelcontext(model)
        known = {category.entries: (move, category) for move, category in imputed_levels(model)}
        rvs = list(known) if vars is None else chosen(model, vars)
        if unknown := [describe(rv) for rv in rvs if rv not in known]:
            raise ValueError(
                f"{', '.join(unknown)} are not missing levels whose rows are known to be "
                "independent; leave them to another step."
            )
        self.vars = [model.rvs_to_values[rv] for rv in rvs]
        self.rng = get_random_generator(rng)
        self._levels = [_compiled(model, *known[rv], c_by_default(compile_kwargs)) for rv in rvs]
        stats: dict[str, Any] = {CHANGED: (np.float64, [])}
        self.stats_dtypes, self.stats_dtypes_shapes = infer_warn_stats_info([], stats, "levels")
        self._start(tune=1)

    @override
    def _of_data(self) -> list[OfData]:
        return [function for *_, functions in self._levels for function in functions]

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Draw the levels of each category in turn."""
        new_point, changed, n_entries = point.copy(), 0, 0
        for names, n_levels, (density, settle) in self._levels:
            old = new_point[names[0]]
            levels = [np.full_like(old, k) for k in range(n_levels)]
            log = np.array([density.at(new_point, each)[0] for each in levels])
            drawn = (log + self.rng.gumbel(size=log.shape)).argmax(axis=0).astype(old.dtype)
            new_point.update(zip(names, [drawn, *settle.at(new_point, drawn)], strict=True))
            changed, n_entries = changed + np.sum(drawn != old), n_entries + len(old)
        return new_point, [{CHANGED: changed / n_entries}]


def _compiled(
    model: pm.Model,
    move: RowMove,
    category: ImputedCategory,
    compile_kwargs: dict[str, Any],
) -> tuple[Sequence[str], int, tuple[PointFunction, PointFunction]]:
    """What gets new values, the number of levels, and functions of levels."""
    require_own_rows(move.imputation)
    levels, x = category.entries.type(), move.completed
    places = category.rows[:, None], category.numbers
    new = moved_along(move, pt.set_subtensor(x[places], category.indicators[levels]))
    log = pt.log(category.shares)[levels] + judged(model, move, new)[category.rows]
    density, settle = (
        PointFunction(model, [levels], model.replace_rvs_by_values(outputs), compile_kwargs)
        for outputs in ([log], [new[rv] for rv in move.layers])
    )
    names = [str(model.rvs_to_values[rv].name) for rv in (category.entries, *move.layers)]
    [n_levels] = category.indicators.type.shape[:1]
    return names, n_levels, (density, settle)

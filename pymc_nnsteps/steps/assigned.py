"""Steps for all variables of a model and starting points of chains, as in ``pm.sample``."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pymc.initial_point import PointType, make_initial_point_fns_per_chain
from pymc.pytensorf import resolve_backend_compile_kwargs
from pymc.sampling.mcmc import (
    assign_step_methods,
    get_default_tune_steps,
    init_nuts,
    instantiate_steppers,
)
from pymc.step_methods import NUTS, STEP_METHODS
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps

type Step = BlockedStep | CompoundStep


def assign(
    model: pm.Model,
    step: Step | Sequence[Step] | None,
    chains: int,
    seeds: list[int],
    tune: int | None,
    initvals: Any,
    init: str,
    compile_kwargs: Mapping[str, Any] | None,
    kwargs: Mapping[str, Any],
) -> tuple[Step, int, Sequence[PointType]]:
    """Return one step for all variables, its number of tuning draws and the starting points.

    Arguments have their names in :func:`pymc.sample`: :mod:`~pymc_nnsteps.steps.assignment` reads
    them by these names.
    """
    provided, selected = assign_step_methods(model, step, methods=STEP_METHODS)
    options = resolve_backend_compile_kwargs(None, compile_kwargs)
    points: Sequence[PointType]
    steps: Any
    if not provided and len(selected) == 1 and issubclass(next(iter(selected)), NUTS):
        rest = dict(kwargs)
        points, steps = init_nuts(
            init=init,
            chains=chains,
            model=model,
            random_seed=seeds,
            progressbar=False,
            tune=tune,
            initvals=initvals,
            compile_kwargs=options,
            **rest.pop("nuts", {}),
            **rest,
        )
    else:
        places = make_initial_point_fns_per_chain(
            model=model, overrides=initvals, jitter_rvs=set(), chains=chains
        )
        points = [place(seed) for place, seed in zip(places, seeds, strict=True)]
        steps = instantiate_steppers(
            model,
            steps=provided,
            selected_steps=selected,
            step_kwargs=dict(kwargs),
            initial_point=points[0],
            compile_kwargs=options,
        )
        if isinstance(steps, list):
            steps = CompoundStep(steps)
    if any(isinstance(each, PopulationArrayStepShared) for each in flatten_steps(steps)):
        raise ValueError(
            "step has chains that depend on each other, which cannot be run apart; use another."
        )
    return steps, get_default_tune_steps(steps, tune), points

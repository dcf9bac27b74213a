"""The plan of a Gibbs sweep, and the variables left to other steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pymc as pm
from pytensor.tensor.random.basic import StudentTRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import describe, has_law
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import children, stated_in
from pymc_nnsteps.graphs.shapes import require_fitting_data, shapes_of
from pymc_nnsteps.laws.recognition import recognise
from pymc_nnsteps.moves.plan import Choice, Explanation, Options, Plan, Scan, plan
from pymc_nnsteps.moves.rays import Ray
from pymc_nnsteps.network.exchangeable import why_told_apart
from pymc_nnsteps.steps.assignment import beside_gibbs
from pymc_nnsteps.steps.imputed_rows import imputed_rows
from pymc_nnsteps.steps.networks import networks_of, relabelled_units
from pymc_nnsteps.steps.standardised_weights import scaled_with


def explain(
    model: pm.Model | None = None,
    *,
    scan: Scan = "sequential",
    collapse: Choice = "auto",
    interweave: Choice = "auto",
    passes: int = 5,
    rays: bool = True,
    trajectories: bool = True,
    details: bool = False,
) -> Explanation:
    """Show which variables :class:`~pymc_nnsteps.Gibbs` draws, how, and which it cannot draw.

    The table is that of the step that ``pm.sample`` creates by default. If it assigns variables to
    :class:`~pymc_nnsteps.HMC`, :class:`~pymc_nnsteps.PCNL` or NUTS, the table names the step of
    each, and the lines below give the reason. If it assigns all variables to these, the table shows
    what Gibbs would draw.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.
    scan, collapse, interweave, passes, rays, trajectories
        As for :class:`~pymc_nnsteps.Gibbs`, which runs the plan shown here.
    details : bool
        Whether to print all moves of each variable, its children, and all reasons. Otherwise only
        the first is printed, in lines that fit the terminal. Notebooks show all.

    Returns
    -------
    Explanation
        Prints as a table: the variable, its step and its conditional; the variables with which it
        is drawn jointly, those that are integrated out and those with which it is moved; or the
        reason why it has no conditional. The lines below list the variables that ``pm.sample``
        assigns to other steps, which its arguments may change (``step``, ``nuts_sampler``,
        ``target_accept``), then the scales that HMC moves with its weights, and the layers whose
        units are relabelled at random.

    Raises
    ------
    ValueError
        If Gibbs raises it for these options, or if data do not fit their distribution.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope")
    ...     bend = pm.Laplace("bend", 0, 1)
    ...     mean = slope * np.arange(3.0) + bend * np.arange(3.0) ** 2
    ...     y = pm.Normal("y", mean, 0.1, observed=[0.1, 0.9, 2.1])
    >>> print(nns.explain(model))
    variable  step  conditional
    -------------------------------------------------------------
    slope     NUTS  Gaussian
    bend      NUTS  -            its prior is Laplace, not Normal
    pm.sample gives slope, bend to NUTS: other steps are for networks with latent
      layers or learnt scales
    """
    model = model_to_read(model)
    options = Options(scan, collapse, interweave, passes, rays, trajectories)
    sweep, beside = planned(model, options)
    named = tuple((describe(rv), step, why) for rv, step, why in beside)
    by_hmc = [rv for rv, step, _ in beside if step == "HMC"]
    said = (*_of_products(sweep, beside), *_of_heavy_tails(model, beside))
    notes = (*said, *_notes(model, by_hmc))
    return replace(sweep.explanation, beside=named, notes=notes, details=details)


def _of_products(sweep: Plan, beside: Sequence[tuple[TensorVariable, str, str]]) -> list[str]:
    """Which factors of matrices that NUTS draws Gibbs would move against each other."""
    by_nuts = {rv for rv, step, _ in beside if step == "NUTS"}
    rays = [ray for ray in sweep.sweep if isinstance(ray, Ray) and ray.against]
    factors = [[rv for rv in ray.draws if rv.ndim > 1 and rv in by_nuts] for ray in rays]
    pairs = dict.fromkeys(" and ".join(map(describe, each)) for each in factors if len(each) > 1)
    return [
        f"the scales of {names} are known by their products only, along which NUTS moves slowly: "
        "step=nns.Gibbs() moves them against each other, but is not chosen without a network"
        for names in pairs
    ][:1]


def _of_heavy_tails(model: pm.Model, beside: Sequence[tuple[Any, str, str]]) -> list[str]:
    """How else to write Student-t noise of layers that NUTS draws beside Gibbs."""
    by_nuts = {rv for rv, step, _ in beside if step == "NUTS"}
    others = set(model.free_RVs) - by_nuts
    layers = [rv for rv in by_nuts if stated_in(rv.owner.inputs, others)]
    return [
        f"NUTS draws what {describe(y)} sees, as it is StudentT: as pm.Normal with sigma / "
        'pm.math.sqrt(lam), lam = pm.Gamma("lam", nu / 2, nu / 2) with an entry for each of its '
        "own, it is the same, and Gibbs draws all of it"
        for y in model.observed_RVs
        if has_law(model, y, StudentTRV) and any(y in children(model, layer) for layer in layers)
    ]


def _notes(model: pm.Model, by_hmc: list[TensorVariable]) -> list[str]:
    """Which scales HMC moves along, and which layers are relabelled or why others are not."""
    along = list(scaled_with(model, by_hmc))
    notes = []
    if along:
        names = ", ".join(map(describe, along))
        notes.append(f"HMC also moves {names}, with weights multiplied by the same factors")
    networks = networks_of(model)
    by_gibbs = [rv for rv in model.free_RVs if rv in networks.of_gibbs]
    for move in [*imputed_rows(model, by_gibbs), *imputed_rows(model, by_hmc)]:
        names = ", ".join(describe(column.entries) for column in move.imputation.columns)
        held = f"; noise of {', '.join(map(describe, move.layers))} held" if move.layers else ""
        notes.append(
            f"{names} also drawn row by row from their distribution given known inputs{held}"
        )
    layers = [
        units for moved in (by_gibbs, [*by_hmc, *along]) for units in relabelled_units(model, moved)
    ]
    for units in layers:
        names = ", ".join(map(describe, units.axes))
        turned = ["; with the signs of " + ", ".join(sorted(map(describe, s))) for s in units.signs]
        notes.append(f"hidden units relabelled at random: {names}{''.join(turned)}")
    relabelled = {rv for units in layers for rv in units.axes}
    for rv in (*by_gibbs, *by_hmc):
        if rv.ndim == 2 and rv not in relabelled and (why := why_told_apart(model, rv)):
            notes.append(f"units behind {describe(rv)} not relabelled: {why}")
    return notes


def planned(
    model: pm.Model, options: Options
) -> tuple[Plan, list[tuple[TensorVariable, str, str]]]:
    """The sweep over what ``pm.sample`` gives to Gibbs, or all it knows; and what others draw."""
    require_fitting_data(model)
    recognised, reasons = recognise(model)
    beside = beside_gibbs(model)
    if len(beside) < len(model.free_RVs):
        for rv, step, _ in beside:
            if (law := recognised.pop(rv, None)) is not None:
                reasons[rv] = f"given to {step}; its full conditional is known: {law.name}"
    return plan(model, recognised, options, shapes_of(model), reasons), beside

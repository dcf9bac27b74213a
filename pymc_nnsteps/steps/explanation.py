"""The plan of a Gibbs sweep, and the variables left to other steps."""

from dataclasses import replace

import pymc as pm

from pymc_nnsteps.graphs.names import describe
from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.graphs.shapes import require_fitting_data, shapes_of
from pymc_nnsteps.laws.recognition import recognise
from pymc_nnsteps.moves.options import Choice, Options
from pymc_nnsteps.moves.plan import Explanation, Plan, plan
from pymc_nnsteps.moves.scan import Scan
from pymc_nnsteps.steps.assignment import beside_gibbs


def explain(
    model: pm.Model | None = None,
    *,
    scan: Scan = "sequential",
    collapse: Choice = "auto",
    interweave: Choice = "auto",
    passes: int = 5,
    rays: bool = True,
    trajectories: bool = True,
) -> Explanation:
    """Show which variables :class:`~pymc_nnsteps.Gibbs` draws, how, and which it cannot draw.

    A line below the table names the variables that ``pm.sample`` gives to
    :class:`~pymc_nnsteps.HMC`, :class:`~pymc_nnsteps.PCNL` or NUTS by default, and why.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.
    scan, collapse, interweave, passes, rays, trajectories
        As for :class:`~pymc_nnsteps.Gibbs`, which runs the plan shown here.

    Returns
    -------
    Explanation
        Prints as a table: variable, conditional, and the variables it is drawn jointly with,
        those that are integrated out and those it is moved with, or the reason why there is none.
        Then the variables that ``pm.sample`` gives to other steps, if there are any; arguments of
        ``pm.sample`` may change that (``step``, ``nuts_sampler``, ``target_accept``).

    Raises
    ------
    ValueError
        If Gibbs would raise it for these options, or if data do not fit their distribution.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope")
    ...     bend = pm.Laplace("bend", 0, 1)
    ...     mean = slope * np.arange(3.0) + bend * np.arange(3.0) ** 2
    ...     y = pm.Normal("y", mean, 0.1, observed=[0.1, 0.9, 2.1])
    >>> print(nns.explain(model))
    variable  conditional
    -------------------------------------------------------
    slope     Gaussian     children: y
    bend      -            its prior is Laplace, not Normal
    pm.sample gives slope, bend to NUTS: others are for networks with latent layers or learnt scales
    """
    model = model_or_context(model)
    options = Options(scan, collapse, interweave, passes, rays, trajectories)
    explanation = planned(model, options).explanation
    beside = ((describe(rv), step, why) for rv, step, why in beside_gibbs(model))
    return replace(explanation, beside=tuple(beside))


def planned(model: pm.Model, options: Options) -> Plan:
    """The sweep over all variables of a model that have a conditional.

    Parameters
    ----------
    model : pm.Model
    options : Options

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        As for :func:`explain`.
    """
    require_fitting_data(model)
    recognised, reasons = recognise(model)
    return plan(model, recognised, options, shapes_of(model), reasons)

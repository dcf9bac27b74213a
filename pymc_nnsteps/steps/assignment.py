"""Which variables Gibbs and HMC take by themselves when :func:`pymc.sample` assigns steps."""

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pymc as pm
from pymc.initial_point import PointType, make_initial_point_fns_per_chain
from pymc.model import modelcontext
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
from pymc.vartypes import continuous_types
from pytensor.compile.mode import get_mode
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.compile.compiling import without_bookkeeping
from pymc_nnsteps.graphs.errors import NotConjugate, known_or_none
from pymc_nnsteps.graphs.initial_values import locals_of
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.graphs.search import depends_on, once_per_model
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.network.network import WIDE
from pymc_nnsteps.steps.imputed_rows import imputed_levels, moved_by_gradients
from pymc_nnsteps.steps.information import is_expected
from pymc_nnsteps.steps.network_curvature import NetworkCurvature, network_curvature
from pymc_nnsteps.steps.networks import has_law, needs_gibbs, networks_of
from pymc_nnsteps.steps.terms import block_to_collapse

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
    """One step for all variables, its tuning draws and the starting points, as ``pm.sample``."""
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
            "the chains of step depend on each other, and cannot run separately; use another step."
        )
    return steps, get_default_tune_steps(steps, tune), points


_log = logging.getLogger("pymc.nnsteps")
_enabled = True

SAMPLER = "pymc.sampling.mcmc"
"""PyMC's module whose calls are inspected for arguments of the user."""

WIDE_REASON = (
    f"hidden weights of a network with {WIDE} readout columns or more, so that their posterior is "
    "near their Gaussian prior, which PCNL preserves"
)
"""Reason shown by :func:`~pymc_nnsteps.explain`."""


def set_auto_assign(enabled: bool) -> None:
    """Set whether :func:`pymc.sample` may assign the steps of this package by itself.

    Once imported, this package assigns :class:`~pymc_nnsteps.Gibbs` to the variables of networks:
    latent layers, which NUTS cannot sample or samples badly, and the scales of their weights and
    noise. Gibbs also draws variables beside these, such as means of effects or another response, if
    it knows the full conditional of each variable linked to them. :class:`~pymc_nnsteps.HMC` moves
    the weights of networks whose hidden layers are deterministic functions, and the variables
    beside them, under any likelihood, if Gibbs draws scales and HMC can read the network.
    :class:`~pymc_nnsteps.PCNL` moves the hidden weights of a :func:`~pymc_nnsteps.wide_mlp` that is
    wide enough. PyMC assigns its own steps in other models, and in calls with a ``nuts_sampler`` of
    another package. It also does so for weights if the call has arguments for NUTS
    (``target_accept=``, ``nuts={...}``) or a backend other than Numba.
    ``pm.sample(hmc={"target_accept": 0.95})`` passes options to HMC.

    Parameters
    ----------
    enabled : bool
        If False, the steps of this package draw only the variables that ``step=`` assigns to them.

    Raises
    ------
    ValueError
        If ``enabled`` is neither True nor False.

    Examples
    --------
    >>> import pymc_nnsteps as nns
    >>> nns.steps.set_auto_assign(False)
    >>> nns.steps.set_auto_assign(True)
    """
    global _enabled
    if not isinstance(enabled, bool):
        raise ValueError(f"enabled must be True or False; got {enabled!r}.")
    _enabled = enabled


def is_taken_by(step: str, rv: TensorVariable) -> bool:
    """Whether a step, by its name, takes a variable that no step has been given for."""
    model, rv = _model_to_sample(rv)
    if model is None or rv not in model.free_RVs:
        return False
    match step:
        case "gibbs":
            return _gibbs_takes(model, rv)
        case "imputed_levels":
            return rv in _levels(model)
        case "pcnl":
            return rv in networks_of(model).wide and not _nuts_is_asked_for()
        case "hmc":
            return _hmc_takes(model, rv)
    return False


def _hmc_takes(model: pm.Model, rv: TensorVariable) -> bool:
    if not networks_of(model).functional or _nuts_is_asked_for():
        return False
    given = locals_of("assign_step_methods", SAMPLER).get("assigned_vars", ())
    names = {value.name for value in given}
    left = [other for other in model.free_RVs if model.rvs_to_values[other].name not in names]
    moved, reason = _beside_gibbs_in(model, tuple(left))
    return reason is None and rv in moved


def _levels(model: pm.Model) -> list[TensorVariable]:
    """Missing levels that are drawn row by row."""
    return [category.entries for _, category in imputed_levels(model)]


@once_per_model
@without_bookkeeping()
def _is_readable(model: pm.Model) -> bool:
    """Whether a model can be read at all; if not, PyMC's steps take it, after a warning.

    An import of this package must not keep ``pm.sample`` from any model, so all errors are caught.
    """
    reading: Any = None
    try:
        if (model := known_or_none(plain_model, model)) is None:
            return False
        for reading in model.free_RVs:
            _gibbs_takes(model, reading)
        if weights := networks_of(model).functional.intersection(model.free_RVs):
            [reading, *_] = weights
            _beside_gibbs_in(model, tuple(model.free_RVs))
    except Exception as error:
        where = "" if reading is None else f" at variable {describe(reading)}"
        warnings.warn(
            f"pymc_nnsteps cannot read this model ({type(error).__name__}{where}: "
            f"{error}) and leaves it to the steps of PyMC; please report this "
            "with the model. nns.steps.set_auto_assign(False) turns the reading off.",
            UserWarning,
            stacklevel=2,
        )
        return False
    return True


def beside_gibbs(model: pm.Model) -> list[tuple[TensorVariable, str, str]]:
    """Variables that ``pm.sample`` gives to other steps than Gibbs, the step and the reason."""
    networks, found = networks_of(model), []
    weights = networks.functional.intersection(model.free_RVs).difference(networks.of_gibbs)
    moved, unmoved = _beside_gibbs_in(model, tuple(model.free_RVs)) if weights else ((), None)
    by_gradients = moved_by_gradients(model, moved)
    curvature = network_curvature(model, by_gradients) if moved and unmoved is None else None
    integrated_out = "" if curvature is None else _integrated_out(model, by_gradients)
    for rv in model.free_RVs:
        if not _enabled:
            step, why = _of_pymc(rv), "nns.steps.set_auto_assign(False) has turned off other steps"
        elif _gibbs_takes(model, rv):
            continue
        elif rv in _levels(model):
            step, why = "ImputedLevels", "missing levels, drawn row by row given all else"
        elif rv in networks.wide:
            step, why = "PCNL", WIDE_REASON
        elif rv in by_gradients and curvature is not None:
            step, why = "HMC", _why_moved(rv, curvature, integrated_out)
        elif rv in moved and curvature is not None:
            step, why = "HMC", "missing inputs, moved row by row after a trajectory of the weights"
        elif needs_gibbs(model, rv):
            step, why = _of_pymc(rv), "no conditional that Gibbs knows"
        elif rv not in weights:
            step, why = _of_pymc(rv), _why_not_read(model, rv)
        else:
            step, why = (
                _of_pymc(rv),
                f"HMC does not take the weights of the network, because {unmoved}",
            )
        found.append((rv, step, why))
    return found


def _why_not_read(model: pm.Model, rv: TensorVariable) -> str:
    """Why a variable belongs to no network with latent layers or learnt scales."""
    stated = [p for p in model.potentials if depends_on(p, {rv})]
    if stated and not any(depends_on(y, {rv}) for y in model.observed_RVs):
        return (
            "other steps read likelihoods of observed variables, in whose place the model has the "
            f"potential {describe(stated[0])}"
        )
    return "other steps are for networks with latent layers or learnt scales"


def _why_moved(rv: TensorVariable, curvature: NetworkCurvature, integrated_out: str) -> str:
    """Why HMC moves a variable, and in which metric."""
    if rv not in curvature.likelihoods:
        return "moved with the weights of the network; metric: learnt in tuning"
    read = ", ".join(
        f"{'expected' if is_expected(factor) else 'observed'} Fisher information of "
        f"{describe(factor)}"
        for factor in curvature.factors
    )
    return f"weights of a network whose scales Gibbs draws{integrated_out}; metric: {read}"


def _integrated_out(model: pm.Model, weights: Collection[TensorVariable]) -> str:
    """Clause that names the weights that HMC integrates out."""
    rvs = [rv for rv in model.free_RVs if rv in weights]
    block = block_to_collapse(model, rvs, "auto", shapes_of(model, model.initial_point()))
    return "" if block is None else f"; {', '.join(map(describe, block.draws))} integrated out"


def _of_pymc(rv: TensorVariable) -> str:
    """Step that PyMC assigns, if the density has gradients in continuous variables."""
    has_grad = rv.dtype in continuous_types
    return str(max(STEP_METHODS, key=lambda step: step._competence(rv, has_grad)).__name__)


@once_per_model
def _beside_gibbs_in(
    model: pm.Model, left: tuple[TensorVariable, ...]
) -> tuple[tuple[TensorVariable, ...], str | None]:
    """Variables without a step that Gibbs does not take; the reason if HMC does not move them."""
    left = tuple(rv for rv in left if rv not in _levels(model))
    moved = tuple(rv for rv in left if not _gibbs_takes(model, rv))
    return moved, _why_not_moved(model, left, moved)


def _why_not_moved(
    model: pm.Model, left: Sequence[TensorVariable], moved: Sequence[TensorVariable]
) -> str | None:
    functional = networks_of(model).functional
    if not networks_of(model).wide.isdisjoint(moved):
        return "it is wide"
    known = set(ancestors(functional.intersection(model.basic_RVs)))
    strange = [rv for rv in moved if rv not in known or rv.dtype not in continuous_types]
    if strange:
        return f"{', '.join(map(describe, strange))} would be left to other steps"
    if functional.isdisjoint(moved):
        return "none of its weights are left"
    if len(moved) == len(left):
        return "Gibbs draws no scales of them"
    try:
        network_curvature(model, moved)
    except NotConjugate as reason:
        return str(reason)
    return None


def _nuts_is_asked_for() -> bool:
    """Whether the call that assigns steps has arguments for NUTS, or a slow backend of HMC."""
    call = locals_of("sample", SAMPLER) or locals_of(assign.__name__, assign.__module__)
    mode = (call.get("compile_kwargs") or {}).get("mode")
    is_other = mode is not None and not isinstance(get_mode(mode).linker, NumbaLinker)
    return is_other or not {"nuts", "target_accept"}.isdisjoint(call.get("kwargs", {}))


def _gibbs_takes(model: pm.Model, rv: TensorVariable) -> bool:
    return needs_gibbs(model, rv) and has_law(model, rv)


def _model_to_sample(rv: TensorVariable) -> tuple[pm.Model | None, TensorVariable]:
    """The model that this package may assign steps for, and its variable, in plain tensors."""
    other = locals_of("sample", SAMPLER).get("nuts_sampler") not in (None, "pymc")
    model = None if other or not _enabled else _sampled_model()
    if model is None or not _is_readable(model):
        return None, rv
    plain = plain_model(model)
    return plain, plain[str(rv.name)] if rv in model.free_RVs else rv


def announce() -> None:
    """Say that Gibbs was assigned, if it was, and how to turn that off."""
    if locals_of("instantiate_steppers", SAMPLER) and not locals_of("sample", SAMPLER).get("quiet"):
        _log.info(
            "pymc_nnsteps draws the variables of a network by Gibbs: nns.explain(model) shows how, "
            "nns.steps.set_auto_assign(False) turns it off."
        )


def _sampled_model() -> pm.Model | None:
    """Model that PyMC assigns steps for: a local variable of its caller, not of a context."""
    caller = locals_of("assign_step_methods", SAMPLER)
    if caller:
        return caller.get("model")
    try:
        return modelcontext(None)
    except TypeError:
        return None

"""Which variables the Gibbs step takes by itself when :func:`pymc.sample` assigns steps."""

import logging

import pymc as pm
from pymc.model import modelcontext
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.conditionals.recognition import match
from pymc_nnsteps.graphs.callers import locals_of
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.steps.networks import needs_gibbs

_log = logging.getLogger("pymc.nnsteps")
_enabled = True

SAMPLER = "pymc.sampling.mcmc"
"""Module of the functions whose calls are looked at."""


def set_auto_assign(enabled: bool) -> None:
    """Say whether :func:`pymc.sample` may assign :class:`~pymc_nnsteps.Gibbs` by itself.

    Once this package is imported it does, to the variables of networks: latent layers, which NUTS
    cannot sample or samples badly, and the scales of their weights and noise. Other models, and
    calls with a ``nuts_sampler`` of another package, are left alone.

    Parameters
    ----------
    enabled : bool
        False: only variables that ``step=`` names are drawn by the steps of this package.

    Raises
    ------
    ValueError
        If ``enabled`` is neither True nor False.

    Examples
    --------
    >>> import pymc_nnsteps as nns
    >>> nns.set_auto_assign(False)
    >>> nns.set_auto_assign(True)
    """
    global _enabled
    if not isinstance(enabled, bool):
        raise ValueError(f"enabled must be True or False; got {enabled!r}.")
    _enabled = enabled


def takes(rv: TensorVariable) -> bool:
    """Whether Gibbs takes a variable that no step has been given for."""
    model = _sampled_model()
    if not _enabled or model is None or rv not in model.free_RVs:
        return False
    if locals_of("sample", SAMPLER).get("nuts_sampler") not in (None, "pymc"):
        return False
    if not needs_gibbs(model, rv):
        return False
    try:
        match(model, rv)
    except NotConjugate:
        return False
    return True


def announce() -> None:
    """Say that Gibbs was assigned, if it was, and how to turn that off."""
    if locals_of("instantiate_steppers", SAMPLER) and not locals_of("sample", SAMPLER).get("quiet"):
        _log.info(
            "pymc_nnsteps draws the variables of a network by Gibbs: nns.explain(model) shows how, "
            "nns.set_auto_assign(False) turns it off."
        )


def _sampled_model() -> pm.Model | None:
    """Model that PyMC assigns steps for.

    PyMC asks for a competence without saying for which model: it is a local variable of the
    caller, and need not be the model of the context (``pm.sample(model=model)``).
    """
    caller = locals_of("assign_step_methods", SAMPLER)
    if caller:
        return caller.get("model")
    try:
        return modelcontext(None)
    except TypeError:
        return None

"""Base class of the step methods: PyMC's, with error messages that say what to do."""

from typing import Any, Self

import pymc as pm
from pymc.step_methods.compound import BlockedStep

from pymc_nnsteps.graphs.search import model_or_context


class Step(BlockedStep):
    """A step method that moves all its variables at once.

    Raises
    ------
    TypeError
        If no model is given and none is open.
    ValueError
        If ``vars`` is empty, or a model.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check arguments before PyMC raises a less helpful error."""
        given = args[0] if args else kwargs.get("vars")
        if isinstance(given, pm.Model):
            raise ValueError(
                "vars must be variables; got a model, which is to be passed as model=."
            )
        kwargs["model"] = model_or_context(kwargs.get("model"))
        if isinstance(given, list | tuple) and not given:
            raise ValueError(
                f"vars is empty; name variables of the model for {cls.__name__}, or leave vars out."
            )
        step: Self = super().__new__(cls, *args, **kwargs)
        return step

"""Calls of builders are remembered with their models, so that a saved model can be built again."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pymc as pm

__all__ = ["BUILDERS", "Call", "call_of", "recorded"]

BUILDERS: dict[str, Callable[..., pm.Model]] = {}
"""Functions that build models, by their names."""


class Call(NamedTuple):
    """A builder's name, and what it was given: arguments, and labels of the model around."""

    builder: str
    arguments: Mapping[str, Any]
    coords: Mapping[str, Sequence[Any]]


_calls: WeakKeyDictionary[pm.Model, Call] = WeakKeyDictionary()
"""Beside the models and not in them: a copy for another process does without the arguments."""


def recorded[**P](builder: Callable[P, pm.Model]) -> Callable[P, pm.Model]:
    """Make a builder whose calls are remembered as long as the models that it made."""

    @wraps(builder)
    def build(*args: P.args, **kwargs: P.kwargs) -> pm.Model:
        around = pm.Model.get_context(error_if_none=False)
        labels = {} if around is None else around.coords
        coords = {dim: list(own) for dim, own in labels.items() if own is not None}
        model = builder(*args, **kwargs)
        arguments = signature(builder).bind(*args, **kwargs).arguments
        _calls[model] = Call(builder.__name__, arguments, coords)
        return model

    BUILDERS[builder.__name__] = build
    return build


def call_of(model: pm.Model) -> Call | None:
    """The last builder's call that added to a model: what else it holds is not known from it."""
    return _calls.get(model)

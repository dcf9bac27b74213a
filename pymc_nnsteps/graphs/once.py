"""What is read off a model, remembered for as long as the model stays as it is."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm
from pytensor import config
from pytensor.compile.sharedvalue import SharedVariable

State = tuple[Any, ...]


def once_per_model[R](read: Callable[..., R]) -> Callable[..., R]:
    """Read a model once for as long as it stays as it is; further arguments are hashable.

    Other variables, potentials, transforms, data containers and lengths of dimensions change a
    model. Other values in a container do not.
    """
    found: WeakKeyDictionary[pm.Model, tuple[State, dict[Any, R]]] = WeakKeyDictionary()

    @wraps(read)
    def remembered(model: pm.Model, *given: Any) -> R:
        state = _state_of(model)
        if model not in found or found[model][0] != state:
            found[model] = state, {}
        of_model = found[model][1]
        if given not in of_model:
            of_model[given] = read(model, *given)
        return of_model[given]

    return remembered


def _state_of(model: pm.Model) -> State:
    lengths = (n for n in model.dim_lengths.values() if isinstance(n, SharedVariable))
    return (
        config.floatX,
        *model.rvs_to_values.items(),
        *model.rvs_to_transforms.values(),
        *model.potentials,
        *(int(n.get_value()) for n in lengths),
    )

"""Optional dependencies, imported when they are needed."""

from importlib import import_module
from typing import Any


def needed(module: str) -> Any:
    """Import an optional dependency.

    Raises
    ------
    ImportError
        If it is not installed, with what to do.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ImportError(
            f'{module} is not installed; install it with pip install "pymc_nnsteps[distributed]".'
        ) from None

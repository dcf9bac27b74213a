"""Optional dependencies, imported when they are needed, and the client that one of them makes."""

from importlib import import_module
from typing import Any


def needed(module: str) -> Any:
    """Import an optional dependency."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ImportError(
            f'{module} is not installed; install it with pip install "pymc_nnsteps[distributed]".'
        ) from None


def require_client(client: object) -> None:
    """Check that a client is one of Dask's, or None."""
    if client is not None and not isinstance(client, needed("distributed").Client):
        raise ValueError(
            "client must be a distributed.Client of a Dask cluster, such as Client(cluster), or "
            f"None to work in this process; got {client!r}."
        )

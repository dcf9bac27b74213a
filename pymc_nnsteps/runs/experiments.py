"""A function at each of many settings: what is done is kept, the rest is done."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pymc_nnsteps.compile.files import replace
from pymc_nnsteps.runs import tasks


def experiments(
    function: Callable[..., Mapping[str, Any]],
    settings: Sequence[Mapping[str, Any]],
    *,
    store: str | Path,
    client: Any = None,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Call a function at each of many settings, and keep the results.

    Each result is written at once. Results in the store are not computed again, so that the same
    call continues after an interrupt, or with more settings.

    Workers with several threads call the function in one thread at a time, because PyTensor
    compiles in only one.

    Parameters
    ----------
    function : callable
        Called as ``function(**setting)``; returns a mapping from names to numbers, strings,
        booleans or None.
    settings : sequence of mapping
        Arguments by name: numbers, strings, booleans, None, and lists of these. A result is
        identified by its setting alone: use another store for another function.
    store : str or Path
        Folder for the results, one JSON file each; created if it does not exist.
    client : distributed.Client, optional
        Client of a Dask cluster that runs settings in parallel. By default they run in this
        process, one after another.
    progressbar : bool

    Returns
    -------
    DataFrame
        One row for each setting, in their order: its arguments, then what the function returned.

    Raises
    ------
    ValueError
        If a setting occurs twice, if a setting or a result of the function has values of other
        types, if a name in a result is that of an argument, or if a file of the store cannot be
        read: before anything is computed, and no file is touched.

    Notes
    -----
    An error of the function at one setting ends the call. Results obtained so far are kept.

    Examples
    --------
    >>> import tempfile, pymc_nnsteps as nns
    >>> def area(width, height):
    ...     return {"area": width * height}
    >>> settings = [{"width": width, "height": 2.5} for width in (1, 2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(nns.lab.experiments(area, settings, store=folder, progressbar=False))
       width  height  area
    0      1     2.5   2.5
    1      2     2.5   5.0
    """
    tasks.require_client(client)
    settings = list(settings) if isinstance(settings, Iterable) else [settings]
    if not all(isinstance(setting, Mapping) for setting in settings):
        raise ValueError("settings must be a sequence of mappings from arguments to values.")
    settings = [dict(setting) for setting in settings]
    texts = [_as_json(f"settings[{i}]", setting) for i, setting in enumerate(settings)]
    for i, text in enumerate(texts):
        if text in texts[:i]:
            raise ValueError(f"settings[{i}] is there twice: {text}; leave out one.")
    folder = Path(store)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{sha256(text.encode()).hexdigest()[:20]}.json" for text in texts]
    found = {i: _read(file) for i, file in enumerate(files) if file.exists()}
    missing = [i for i in range(len(files)) if i not in found]
    calls = [[settings[i]] for i in missing]
    called = function if client is None else partial(tasks.alone, function)
    with tasks.bar("Experiments", len(found), len(files), progressbar) as grow:
        for number, result in tasks.carried_out(client, called, calls):
            i = missing[number]
            name = f"what function returns at {texts[i]}"
            if not isinstance(result, Mapping):
                raise ValueError(f"{name} must be a mapping; got {result!r}.")
            if twice := sorted(settings[i].keys() & result.keys()):
                raise ValueError(f"{name} has {twice}, which are arguments; use other names.")
            text = _as_json(name, {"setting": settings[i], "result": dict(result)})
            replace(files[i], text.encode())
            found[i] = _read(files[i])
            grow(1)
    return pd.DataFrame([found[i] for i in range(len(files))])


def _read(file: Path) -> dict[str, Any]:
    """A row of the table."""
    try:
        kept = json.loads(file.read_text())
        row: dict[str, Any] = kept["setting"] | kept["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} holds no result that can be read ({error!r}); move it away, and the same call "
            "computes it again."
        ) from None
    return row


def _as_json(name: str, values: Mapping[str, Any]) -> str:
    if strange := [key for key in values if not isinstance(key, str)]:
        raise ValueError(f"{name} must have words as names; got {strange[0]!r}.")
    try:
        return json.dumps(values, sort_keys=name.startswith("settings"), default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be of numbers, words, truth values, None and lists of these: {error}."
        ) from None


def _plain(value: object) -> object:
    """Numbers and arrays of NumPy as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"got {value!r}")

"""A model and its draws in one file, which another process reads.

The file is one of NumPy's, a zip of arrays, and needs no other library; where the disk is full, an
error says so, and the process that has the draws goes on (HDF5, below netCDF, may end it). A
builder's model is kept as the call and its data, where this is seen to build the same model again;
any other as a pickle.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import PicklingError
from typing import Any, NamedTuple
from uuid import uuid4
from zipfile import BadZipFile, ZipFile

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pymc.exceptions import ShapeError

from pymc_nnsteps.arguments import require_bool
from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.models.parts.context import BUILDERS, Model, call_of
from pymc_nnsteps.prediction.posterior import posterior_of
from pymc_nnsteps.runs.arguments import Arrays, NotWritableError, restored, written
from pymc_nnsteps.runs.fingerprint import DECISIVE, Fingerprint, location_of
from pymc_nnsteps.runs.sampling import resume, run_of
from pymc_nnsteps.runs.store import Store

CONTENT, PICKLE = "content.json", "pickle"
"""Parts of a file: its text, and a model that is no builder's."""

PACKAGE = str(Path(__file__).parents[1])


class Saved(NamedTuple):
    """What :func:`~pymc_nnsteps.load` returns: a model, and the result of sampling it."""

    model: pm.Model
    idata: xr.DataTree


def save(
    path: str | Path, idata: Any, model: pm.Model | None = None, *, overwrite: bool = False
) -> None:
    """Save a model and its draws in one file, for :func:`~pymc_nnsteps.load` in another process.

    The model is saved with its current data. The file is first written under another name, so that
    an existing file is either replaced completely or left unchanged. ``numpy.load`` reads its
    arrays too, such as ``"posterior/W1"``.

    Parameters
    ----------
    path : str or Path
        Path of the file, such as ``"fit.nns"``.
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior.
    model : pm.Model, optional
        Taken from the context if not given.
    overwrite : bool
        Whether to replace an existing file.

    Raises
    ------
    ValueError
        If the file exists already, or ``idata`` has no draws.
    OSError
        If the file cannot be written, which is checked first.

    Warns
    -----
    UserWarning
        If ``idata`` has attributes or variables other than text and numbers; these are left out.

    Notes
    -----
    A model made by a builder, such as :func:`~pymc_nnsteps.hierarchical_mlp`, is saved as the
    builder's arguments and data: numbers and text, which are safe to load from any source. Any
    other model is pickled by cloudpickle. So is a builder's model to which something was added, or
    with an argument that is not a number, text or prior (such as a function of your own). Loading a
    pickle runs the code in it, and requires the versions of Python, PyMC, PyTensor and this package
    that wrote it.

    Examples
    --------
    >>> import tempfile, numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> options = {"progressbar": False, "quiet": True, "random_seed": 1}
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1) as model:
    ...     idata = pm.sample(
    ...         20, tune=20, chains=1, cores=1, var_names=nns.without_latents(), **options
    ...     )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nns.save(f"{folder}/fit.nns", idata, model)
    ...     saved = nns.load(f"{folder}/fit.nns")
    >>> before = nns.predict(idata, X[:5], model=model)
    >>> bool((nns.predict(saved.idata, X[:5], model=saved.model) == before).all())
    True
    """
    require_bool("overwrite", overwrite)
    model = model_or_context(model)
    posterior = posterior_of(idata)
    if posterior.data_vars.keys().isdisjoint(model.named_vars):
        raise ValueError("idata has no variable of the model; pass the model that was sampled.")
    if not isinstance(idata, xr.DataTree) or "posterior" not in idata.children:
        idata = xr.DataTree.from_dict({"posterior": posterior})
    with _replacing(path, overwrite) as part, ZipFile(part, "w") as file:
        arrays: Arrays = {}
        groups = {
            name: _group(name, node.to_dataset(inherit=False), arrays)
            for name, node in idata.subtree_with_keys
        }
        described, arrays = _described(model, arrays)
        content = {"groups": groups, "model": described}
        for name, values in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
        file.writestr(CONTENT, json.dumps(content))


def load(path: str | Path, *, trust: bool = False) -> Saved:
    """Load a model and its draws, to predict, diagnose, or continue a run.

    Parameters
    ----------
    path : str or Path
        File of :func:`~pymc_nnsteps.save`, or the store of a finished run of
        :func:`~pymc_nnsteps.runs.sample_distributed`.
    trust : bool
        Whether to load pickles, which can run any code. Load only your own, or those of somebody
        you trust. Models of builders are saved without pickles; stores contain them.

    Returns
    -------
    Saved
        With ``.model``, which has the data at the time of saving, and ``.idata``, in memory.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is of another kind or incomplete; if it contains a pickle and ``trust`` is not
        given, or other versions wrote the pickle; or if the builder now makes another model.

    Warns
    -----
    UserWarning
        If the builder makes the same variables with the same data, but their densities are
        expressed differently in versions other than those of the file.

    Examples
    --------
    See :func:`~pymc_nnsteps.save`.
    """
    require_bool("trust", trust)
    if _file(path).is_dir():
        return _of_run(path, trust)
    content, arrays = _read(path)
    groups = {name: _dataset(group, arrays) for name, group in content["groups"].items()}
    model = _model(str(path), content["model"], arrays, trust)
    return Saved(model, xr.DataTree.from_dict(groups))


def _read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Text and arrays of a file. ``ZipFile`` compares each part with its checksum."""
    try:
        with ZipFile(path) as file:
            content = json.loads(file.read(CONTENT))
            arrays = {}
            for name in file.namelist():
                if name != CONTENT:
                    with file.open(name) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                    arrays[name.removesuffix(".npy")] = array
        return content, arrays
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} does not exist; give a file that nns.save wrote."
        ) from None
    except (BadZipFile, EOFError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is not a file of nns.save, or is incomplete; restore it from a copy."
        ) from error


def _of_run(path: str | Path, trust: bool) -> Saved:
    """Model and draws of a run that has ended."""
    stored = Store(location_of(path))
    _require_trust(f"{path} is the store of a run", trust)
    if any(done < stored.draws for done in stored.standing()):
        raise ValueError(
            f"{path} is the store of a run that has not ended; continue it with nns.runs.resume."
        )
    model = cloudpickle.loads(cloudpickle.dumps(run_of(stored).model))
    return Saved(model, resume(path, compute_convergence_checks=False, progressbar=False))


def _require_trust(what: str, trust: bool) -> None:
    if not trust:
        raise ValueError(
            f"{what}, whose model is a pickle, which can run any code: pass trust=True if you made "
            "it yourself or trust whoever did."
        )


def _file(path: str | Path) -> Path:
    """A place on a disk."""
    if not isinstance(path, str | Path) or "://" in str(path):
        raise ValueError(f"path must be the name of a file on a disk; got {path!r}.")
    return Path(path).absolute()


@contextmanager
def _replacing(path: str | Path, overwrite: bool) -> Iterator[Path]:
    """A new file beside another one, which it replaces if all goes well."""
    file = _file(path)
    if file.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it.")
    if file.exists() and not overwrite:
        raise ValueError(
            f"{path} exists already; pass overwrite=True to replace it, or give another name."
        )
    part = file.with_name(f"{file.name}.{uuid4().hex[:8]}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        yield part
        part.replace(file)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path} cannot be written ({error.strerror or error}); the draws are still in "
            "memory: save them elsewhere",
        ) from error
    finally:
        if part.exists():
            part.unlink()


# --- draws ---------------------------------------------------------------------------------


def _group(name: str, data: xr.Dataset, arrays: Arrays) -> dict[str, Any]:
    """A group of draws, without what is more than text and numbers, which a warning names."""
    several = {
        str(dim): list(index.names)
        for dim, index in data.indexes.items()
        if isinstance(index, pd.MultiIndex) and dim in data.dims
    }
    data, lost = data.reset_index(list(several)), list[str]()

    def attributes(of: Any, owner: str) -> dict[str, Any]:
        held = {}
        for each, value in of.attrs.items():
            try:
                held[each] = written(value, arrays)
            except NotWritableError:
                lost.append(f"{owner}.attrs[{each!r}]")
        return held

    variables = {}
    for each, variable in data.variables.items():
        try:
            values = written(variable.values, arrays, f"{name}/{each}")
        except NotWritableError:
            lost.append(f"{name}[{each!r}]")
            continue
        own = attributes(variable, f"{name}[{each!r}]")
        variables[each] = [list(variable.dims), values, own, each in data.coords]
    group = {"variables": variables, "attributes": attributes(data, name), "indexes": several}
    if lost:
        warnings.warn(
            f"{', '.join(lost)} cannot be saved and is left out: it is not text or numbers.",
            skip_file_prefixes=(PACKAGE,),
        )
    return group


def _dataset(group: dict[str, Any], arrays: Arrays) -> xr.Dataset:
    """The group that was saved."""
    variables: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for name, (dims, values, attributes, is_coord) in group["variables"].items():
        held = {each: restored(value, arrays) for each, value in attributes.items()}
        variables[is_coord][name] = dims, restored(values, arrays), held
    own = {each: restored(value, arrays) for each, value in group["attributes"].items()}
    data = xr.Dataset(variables[False], variables[True], own)
    return data.set_index(group["indexes"]) if group["indexes"] else data


# --- a model -------------------------------------------------------------------------------


def _described(model: pm.Model, others: Arrays) -> tuple[dict[str, Any], Arrays]:
    """A model as a call of its builder, or as a pickle; its arrays, and those before."""
    fingerprint, arrays = Fingerprint.of(model), {**others}
    recipe = _recipe(model, fingerprint, arrays)
    if recipe is None:
        try:
            arrays = {**others, PICKLE: np.frombuffer(cloudpickle.dumps(model), dtype="uint8")}
        except (PicklingError, TypeError) as error:
            raise ValueError(
                f"model has a part that cannot be saved ({error}); remove it."
            ) from error
    return {"fingerprint": fingerprint.dumps(), "recipe": recipe}, arrays


def _recipe(model: pm.Model, fingerprint: Fingerprint, arrays: Arrays) -> dict[str, Any] | None:
    """The builder's call and the data since, if they are seen to make the same model."""
    call = call_of(model)
    if call is None:
        return None
    try:
        recipe = {
            "builder": call.builder,
            "arguments": written(dict(call.arguments), arrays),
            "coords": written(call.coords, arrays),
        }
        built = _built(recipe, arrays)
        labels = {
            dim: [*own]
            for dim, own in model.coords.items()
            if own is not None and own != built.coords.get(dim)
        }
        data = {
            each.name: each.get_value()
            for each in model.data_vars
            if not labels.keys().isdisjoint(model.named_vars_to_dims.get(each.name, ()))
            or not np.array_equal(each.get_value(), built[each.name].get_value(), equal_nan=True)
        }
        recipe |= {"data": written(data, arrays), "labels": written(labels, arrays)}
        same = not fingerprint.differences(Fingerprint.of(_built(recipe, arrays)))
    except (NotWritableError, KeyError, TypeError, ValueError, ShapeError):
        return None
    return recipe if same else None


def _built(recipe: dict[str, Any], arrays: Arrays) -> pm.Model:
    """Model of a recipe."""
    coords = restored(recipe["coords"], arrays)
    with Model(model=None, coords=coords) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the model was built
        BUILDERS[recipe["builder"]](**restored(recipe["arguments"], arrays))
        if recipe.get("data"):
            data, labels = (restored(recipe[part], arrays) for part in ("data", "labels"))
            pm.set_data(data, coords=labels)
    return model


def _model(path: str, described: dict[str, Any], arrays: Arrays, trust: bool) -> pm.Model:
    """The model that was described."""
    then, recipe = Fingerprint.loads(described["fingerprint"]), described["recipe"]
    other = then.other_versions()
    wrote = f"{path} was written with {', '.join(other.values())}"
    if "floatX" in other:
        raise ValueError(f"{wrote}; set pytensor.config.floatX before you load it.")
    if recipe is None:
        _require_trust(f"{path} is a file of nns.save", trust)
        if not other.keys().isdisjoint(DECISIVE):
            raise ValueError(f"{wrote}, and only these are sure to read its pickle; install them.")
        return cloudpickle.loads(arrays[PICKLE].tobytes())
    if recipe["builder"] not in BUILDERS:
        raise ValueError(f"{wrote}: there is no {recipe['builder']} here; install that version.")
    model = _built(recipe, arrays)
    now = Fingerprint.of(model)
    if found := then.differences(now):
        differs = f"{recipe['builder']} makes a model that differs in {', '.join(found)}"
        if then.words != now.words or not other:
            raise ValueError(f"{wrote if other else path}; here {differs}.")
        warnings.warn(f"{wrote}; here {differs}, as PyTensor states it.", stacklevel=3)
    return model

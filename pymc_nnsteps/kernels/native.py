"""Machine code of C++ that this package writes: built once per machine, kept, shared by processes.

A unit of code is kept under a digest of its text, of the compiler and of the processor, so that an
update of the package builds what it has changed and nothing else. Units are built together: to
start a compiler takes longer than to translate most of them.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from pytensor import config
from pytensor.compile.compilelock import lock_ctx

FLAGS: tuple[str, ...] = ("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-w")
FLAGS += ("-fexceptions", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
"""Of the compiler, beside those for the processor."""

PATIENCE = 2.0
"""Seconds of waiting for the compiler that nobody is told of."""

_LOGGER = logging.getLogger("pymc.nnsteps")


@functools.cache
def directory() -> Path:
    """Where machine code is kept: beside that of PyTensor."""
    kept = Path(config.compiledir) / "pymc_nnsteps"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=kept):
            pass
    except OSError:
        warnings.warn(
            f"{kept} cannot be written to: pymc_nnsteps compiles again in each session. Let "
            "PyTensor's base_compiledir be a directory that can.",
            stacklevel=2,
        )
        kept = Path(_temporary().name)
    return kept


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory:
    """A directory that goes with this process."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


@functools.cache
def _machine() -> str:
    """What machine code depends on beside its source."""
    features = np.show_config(mode="dicts")["SIMD Extensions"]
    return repr((config.cxx, FLAGS, np.__version__, sys.version, features))


def digest(source: str) -> str:
    """Name of a unit of source code on this machine."""
    return hashlib.sha256((_machine() + source).encode()).hexdigest()[:24]


def _path(name: str) -> Path:
    return directory() / f"{name}.so"


def build(units: Mapping[str, Callable[[], str]], header: str | Path = "") -> None:
    """Build those of several units, under their names, whose machine code is not there yet.

    They become one file, which begins with the header and has the name of each.

    Parameters
    ----------
    units : mapping from name to function without arguments
        That gives the source.
    header : str or Path
        Text, or a file of it.
    """
    if all(_path(name).exists() for name in units):
        return
    with lock_ctx(directory()):
        missing = {name: unit for name, unit in units.items() if not _path(name).exists()}
        if missing:
            text = header.read_text() if isinstance(header, Path) else header
            sources = [text, *(unit() for unit in missing.values())]
            _compile("\n".join(sources), [_path(name) for name in missing])


@dataclass
class Waiting:
    """How long this process has waited for the compiler, and whether it has said so."""

    seconds: float = 0.0
    is_told: bool = False


WAITING = Waiting()


def _run(command: Sequence[str]) -> str:
    """Run the compiler, and give what it says of errors; a long wait is announced once."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = process.communicate(
            timeout=None if WAITING.is_told else max(PATIENCE - WAITING.seconds, 0.0)
        )
    except subprocess.TimeoutExpired:
        WAITING.is_told = True
        _LOGGER.info("compiling the sampler; about 15 s the first time on this machine")
        _, errors = process.communicate()
    WAITING.seconds += time.monotonic() - began
    return errors


def _compile(source: str, paths: Iterable[Path]) -> None:
    """Translate a source, and put what results at each of several paths."""
    from pytensor.link.c.cmodule import GCC_compiler

    with tempfile.TemporaryDirectory(dir=directory()) as scratch:
        code, result = Path(scratch) / "code.cpp", Path(scratch) / "code.so"
        code.write_text(source)
        shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        includes = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
        command = [
            *(config.cxx, *GCC_compiler.compile_args(), *FLAGS, *includes),
            *(shared or ["-shared"]),
            *(str(code), "-o", str(result)),
            str(Path(np.get_include()).parents[1] / "random" / "lib" / "libnpyrandom.a"),
        ]
        errors = _run(command)
        if not result.exists():
            raise RuntimeError(f"{config.cxx} does not translate this:\n{source}\n{errors}")
        for path in paths:
            own = path.with_suffix(f".{os.getpid()}")
            os.link(result, own)
            own.replace(path)


@functools.cache
def function(name: str) -> int:
    """Address of the function of a unit that has been built, whose name is the unit's."""
    library = ctypes.CDLL(str(_path(name)))
    with contextlib.suppress(ValueError):
        table = (ctypes.c_void_p * len(BLAS)).in_dll(library, "blas")
        for place, product in enumerate(blas()):
            table[place] = product
    address = ctypes.cast(getattr(library, f"unit_{name}"), ctypes.c_void_p).value
    assert address is not None
    return address


BLAS = ("dgemm", "sgemm", "dgemv", "sgemv")


@functools.cache
def blas() -> list[int]:
    """Addresses of products of matrices in the library that SciPy brings."""
    from scipy.linalg import cython_blas

    name_of, pointer_to = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_to.restype, pointer_to.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsules = [cython_blas.__pyx_capi__[name] for name in BLAS]
    return [pointer_to(capsule, name_of(capsule)) for capsule in capsules]


@functools.cache
def module(file: Path) -> ModuleType:
    """An extension module that a file of this package is the source of."""
    source = file.read_text()
    name = digest(source)
    build({name: lambda: source})
    loader = importlib.machinery.ExtensionFileLoader(file.stem, str(_path(name)))
    spec = importlib.util.spec_from_file_location(file.stem, loader=loader)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    return found

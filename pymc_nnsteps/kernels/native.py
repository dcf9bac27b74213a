"""Machine code of C++ that this package writes: built once per machine, kept, shared by processes.

A unit of code is kept under a digest of its text, of the compiler and of the processor, so that an
update of the package builds what it has changed and nothing else. Units are built together: to start
a compiler takes longer than to translate most of them.
"""

import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
from pytensor import config
from pytensor.compile.compilelock import lock_ctx

FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-w")
"""Of the compiler, beside those for the processor."""


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
    features = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[call-overload]
    return repr((config.cxx, FLAGS, np.__version__, sys.version, features))


def digest(source: str) -> str:
    """Name of a unit of source code on this machine."""
    return hashlib.sha256((_machine() + source).encode()).hexdigest()[:24]


def _path(name: str) -> Path:
    return directory() / f"{name}.so"


def build(units: Mapping[str, str], preamble: str = "") -> None:
    """Build those of several units, each a source under its name, that are not there yet.

    They become one file, which begins with the preamble and has the name of each.
    """
    if all(_path(name).exists() for name in units):
        return
    with lock_ctx(directory()):
        missing = {name: source for name, source in units.items() if not _path(name).exists()}
        if missing:
            _compile("\n".join([preamble, *missing.values()]), [_path(name) for name in missing])


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
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{config.cxx} does not translate this:\n{source}\n{done.stderr}")
        for path in paths:
            own = path.with_suffix(f".{os.getpid()}")
            os.link(result, own)
            own.replace(path)


@functools.cache
def function(name: str) -> int:
    """Address of the function of a unit that has been built, whose name is the unit's."""
    library = ctypes.CDLL(str(_path(name)))
    address = ctypes.cast(getattr(library, f"unit_{name}"), ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def module(file: Path) -> ModuleType:
    """An extension module that a file of this package is the source of."""
    source = file.read_text()
    name = digest(source)
    build({name: source})
    loader = importlib.machinery.ExtensionFileLoader(file.stem, str(_path(name)))
    spec = importlib.util.spec_from_file_location(file.stem, loader=loader)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    return found

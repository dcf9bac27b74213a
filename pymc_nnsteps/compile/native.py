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
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from pytensor import config
from pytensor.compile.compilelock import lock_ctx

FLAGS: tuple[str, ...] = ("-O2", "-ftree-vectorize", "-std=c++17", "-fPIC", "-w")
FLAGS += ("-fvisibility=hidden", "-fexceptions", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-ffp-contract=off",)
"""Compiler flags beside the processor's own; -O3 takes twice as long for as fast a sweep."""

GCC_FLAGS: tuple[str, ...] = ("-fvect-cost-model=dynamic", "-fno-gcse", "-fno-thread-jumps")
GCC_FLAGS += ("-fno-schedule-insns2", "-fno-ipa-cp", "-fno-inline-functions-called-once")
"""Flags of GCC: at -O2 it makes few loops work on several numbers at a time.

The passes that it leaves out take a fifth of its time, and sweeps are as fast without them.
"""

FUSED = ("-O3", "-ffp-contract=fast", "-funroll-loops")
"""Flags of functions of numbers that the processor does several of at a time."""

VISIBLE = 'extern "C" __attribute__((visibility("default")))'
"""What the function of a unit is declared as."""

PATIENCE = 2.0
"""Seconds of waiting for the compiler that nobody is told of."""

SECONDS = 10
"""What a first sampler takes the compiler, with some room for a busy machine."""

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


def _flags() -> tuple[str, ...]:
    is_gcc = "clang" not in config.cxx and sys.platform != "darwin"
    return (*FLAGS, *GCC_FLAGS) if is_gcc else FLAGS


@functools.cache
def _machine() -> str:
    """What machine code depends on beside its source."""
    features = np.show_config(mode="dicts")["SIMD Extensions"]
    return repr((config.cxx, _flags(), np.__version__, sys.version, features))


def digest(source: str) -> str:
    """Name of a unit of source code on this machine."""
    return hashlib.sha256((_machine() + source).encode()).hexdigest()[:24]


def _path(name: str) -> Path:
    return directory() / f"{name}.so"


class TranslationUnit(NamedTuple):
    """A unit of code."""

    headers: tuple[str | Path, ...]  # texts that precede it, or files of them
    source: Callable[[], str]  # gives the unit's own text
    flags: tuple[str, ...] = ()  # of the compiler, beside :data:`FLAGS`


def build(units: Mapping[str, TranslationUnit]) -> None:
    """Build units whose machine code is missing, those of the same flags together."""
    if all(_path(name).exists() for name in units):
        return
    with lock_ctx(directory()):
        for flags in {unit.flags for unit in units.values()}:
            same = {name: unit for name, unit in units.items() if unit.flags == flags}
            missing = {name: unit for name, unit in same.items() if not _path(name).exists()}
            if not missing:
                continue
            headers = dict.fromkeys(h for unit in missing.values() for h in unit.headers)
            texts = [h.read_text() if isinstance(h, Path) else h for h in headers]
            texts += [unit.source() for unit in missing.values()]
            _compile("\n".join(texts), [_path(name) for name in missing], flags)


@dataclass
class CompilerWait:
    """How long this process has waited for the compiler, and what has been announced."""

    seconds: float = 0.0
    told: set[str] = field(default_factory=set)

    def announce(self, what: str, seconds: int) -> None:
        """Announce once what is compiled, and how long that takes."""
        if what not in self.told:
            self.told.add(what)
            _LOGGER.info(f"compiling {what}; about {seconds} s the first time on this machine")


WAITING = CompilerWait()


@contextmanager
def announced(what: str, seconds: int, waited: float = 0.0) -> Iterator[None]:
    """Announce what is compiled, if that takes longer than what is left of :data:`PATIENCE`."""
    timer = threading.Timer(max(PATIENCE - waited, 0.0), WAITING.announce, (what, seconds))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _run(command: Sequence[str]) -> str:
    """Run the compiler, and give what it says of errors; a long wait is announced once."""
    began = time.monotonic()
    with announced("the sampler", SECONDS, WAITING.seconds):
        process = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
    WAITING.seconds += time.monotonic() - began
    return process.stderr


class CompilerError(RuntimeError):
    """What the compiler does not translate."""


def log_compilation(message: str) -> None:
    """Log what is compiled in another way, in one line."""
    _LOGGER.info(message.partition("\n")[0])


def _compile(source: str, paths: Iterable[Path], flags: Sequence[str]) -> None:
    """Translate a source, and put what results at each of several paths."""
    from pytensor.link.c.cmodule import GCC_compiler
    from pytensor.scalar.math import C_CODE_PATH

    with tempfile.TemporaryDirectory(dir=directory()) as scratch:
        code, result = Path(scratch) / "code.cpp", Path(scratch) / "code.so"
        code.write_text(source)
        shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        folders = (sysconfig.get_path("include"), np.get_include(), C_CODE_PATH)
        includes = [f"-I{folder}" for folder in folders]
        command = [
            *(config.cxx, *GCC_compiler.compile_args(), *_flags(), *flags, *includes),
            *(shared or ["-shared"]),
            *(str(code), "-o", str(result)),
            str(Path(np.get_include()).parents[1] / "random" / "lib" / "libnpyrandom.a"),
        ]
        errors = _run(command)
        if not result.exists():
            _LOGGER.debug(f"{source}\n{errors}")
            raise CompilerError(
                f"{config.cxx}: {errors.partition('error: ')[2].partition('\n')[0]}"
            )
        for path in paths:
            own = path.with_suffix(f".{os.getpid()}")
            os.link(result, own)
            own.replace(path)


@functools.cache
def function(name: str) -> int:
    """Address of the function of a unit that has been built, whose name is the unit's."""
    library = ctypes.CDLL(str(_path(name)))
    for table, names, addresses in (("blas", LINEAR, blas), ("special", SPECIAL, special)):
        with contextlib.suppress(ValueError):
            places = (ctypes.c_void_p * len(names)).in_dll(library, table)
            for k, outside in enumerate(addresses()):
                places[k] = outside
    address = ctypes.cast(getattr(library, f"unit_{name}"), ctypes.c_void_p).value
    assert address is not None
    return address


LINEAR = ("dgemm", "sgemm", "dgemv", "sgemv", "dpotrf", "dtrtrs")
"""Functions of BLAS and LAPACK that units of code may call."""

SPECIAL: tuple[str, ...] = ("betainc", "betaincinv", "erfcinv", "erfcx", "erfinv", "gammainc")
SPECIAL += ("gammaincc", "gammainccinv", "gammaincinv", "hyp2f1", "i0", "i0e", "i1", "i1e", "ive")
SPECIAL += ("j0", "j1", "jv", "kve", "ndtri_exp", "owens_t", "psi")
"""SciPy's functions of numbers that units of code may call."""


def _address(capsule: object) -> tuple[int, bytes]:
    """Address of a function in C, and its type."""
    name_of, pointer_to = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_to.restype, pointer_to.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    return pointer_to(capsule, name), name


@functools.cache
def blas() -> list[int]:
    """Addresses of functions of matrices in the libraries that SciPy brings."""
    from scipy.linalg import cython_blas, cython_lapack

    known = cython_blas.__pyx_capi__ | cython_lapack.__pyx_capi__
    return [_address(known[name])[0] for name in LINEAR]


@functools.cache
def special() -> list[int]:
    """Addresses of :data:`SPECIAL`, those of doubles: SciPy has some for other types too."""
    from scipy.special import cython_special

    found = {}
    for key, capsule in cython_special.__pyx_capi__.items():
        address, kind = _address(capsule)
        if re.fullmatch(rb"double \((double, )+int __pyx_skip_dispatch\)", kind):
            found[re.sub(r"^__pyx_fuse_\d+|\[.*", "", key)] = address
    return [found[name] for name in SPECIAL]


MODULE_HEADERS = """\
#include <initializer_list>
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
"""
"""What sources of extension modules include, ahead of their namespaces."""

SHARED = Path(__file__).with_name("shared.hpp")
"""Structures and loops of these sources and of all units."""


@functools.cache
def module(file: Path) -> ModuleType:
    """An extension module of a source file; all of the same folder are built together."""
    sources = {
        each: f"namespace {each.stem} {{\n{each.read_text()}}}"
        for each in sorted(file.parent.glob("*.cpp"))
    }
    names = {each: digest(SHARED.read_text() + source) for each, source in sources.items()}
    headers = MODULE_HEADERS, SHARED
    build({names[f]: TranslationUnit(headers, text.__str__) for f, text in sources.items()})
    loader = importlib.machinery.ExtensionFileLoader(file.stem, str(_path(names[file])))
    spec = importlib.util.spec_from_file_location(file.stem, loader=loader)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    return found

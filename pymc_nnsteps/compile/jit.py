"""How the loops of this package are compiled, and when a compiled one is out of date.

A kernel is written in Python. A sweep in C calls what a C++ compiler makes of its translation
(:mod:`.translation`); Numba compiles it where a graph is compiled to Numba, and where there is no
compiler. Both do the same arithmetic in the same order.

PyTensor is told of kernels for Numba with the first graph that is compiled to Numba: to import
Numba takes a second, and a sweep in C does not need it.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, override

import numpy as np
import pytensor
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import TensorType

from pymc_nnsteps.compile import native, translation
from pymc_nnsteps.compile.expressions import TYPES, fields_of

HERE = Path(__file__).parent
HEADERS = native.SHARED, HERE / "arrays.hpp"

LETTERS = {"float64": "d", "float32": "f", "int64": "q", "bool": "?", "uint64": "Q"}
"""Dtypes of the arrays that kernels take."""

KINDS = {"d": "double", "f": "float", "?": "bool", "q": "Int", "Q": "uint64_t"}
"""Their types in C++."""


class Address(int):
    """A unit of C++ that a kernel is to call, as a function of arrays to one vector."""


class Kernel:
    """A function of arrays and numbers that is compiled for the types it is called with.

    In a fused one a product and a sum may be one operation: faster, with other digits than Numba's.
    """

    def __init__(
        self, function: Callable[..., Any], *, is_inline: bool = False, is_fused: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self._function = function
        self.is_inline = is_inline
        self._flags = native.FUSED if is_fused else ()
        returned = function.__annotations__.get("return")
        self._returned = returned if fields_of(returned) else None
        self._ready: dict[str, int] = {}
        self.types, self.address = "", 0

    def __reduce__(self) -> str:
        """Pickle its name in its module."""
        return self.__name__

    @functools.cached_property
    def numba(self) -> Any:
        """What Numba compiles."""
        from pymc_nnsteps.compile import in_numba

        if self.is_inline:
            return in_numba.inline(self._function)
        return in_numba.jit(self._function, self.digest)

    @functools.cached_property
    def digest(self) -> str:
        """A name that changes with the code, and with what it names: constants, tuples, kernels."""
        function, code = self._function, self._function.__code__
        constants = [each for each in code.co_consts if each != function.__doc__]
        of_code = code.co_code, code.co_varnames, code.co_names, constants
        named = [*function.__annotations__.values(), *map(function.__globals__.get, code.co_names)]
        kind = self.__name__, self.is_inline, self._flags
        return native.digest(repr((translator(), kind, of_code, [text_of(each) for each in named])))

    @functools.cached_property
    def numba_of_arrays(self) -> Any:
        """The same, called with the entries of named tuples in place of these."""
        from pymc_nnsteps.compile import in_numba

        return in_numba.of_arrays(self)

    def __call__(self, *arguments: Any) -> Any:
        """Call what has been compiled, with named tuples or their entries in place of these."""
        if not pytensor.config.cxx:
            return self.numba_of_arrays(*map(_writeable, entries(arguments)))
        found = calls().call(self.address, self.types, arguments) if self.address else None
        if found is None:
            arguments = entries(arguments)
            self._prepare("".join(map(_type, arguments)))
            found = calls().call(self.address, self.types, arguments)
        if len(found) > 1:
            return self._returned(*found) if self._returned else found
        return found[0] if found else None

    def bound(self, types: str | None, *, draws: bool = False) -> Callable[..., Any]:
        """The same for these types, without Python; one that ``draws`` fills an array."""
        if types is None or not pytensor.config.cxx:
            return self
        self._prepare(types)
        bind = calls().bind_draw if draws else calls().bind
        bound: Callable[..., Any] = bind(self._ready[types], types, self)
        return bound

    def _prepare(self, types: str) -> None:
        """Look up what is to be called for these types, or build it."""
        if types not in self._ready:
            unit = self.unit(types)
            native.build(unit)
            [name] = unit
            self._ready[types] = native.function(name)
        self.types, self.address = types, self._ready[types]

    def unit(self, types: str) -> dict[str, native.TranslationUnit]:
        """What is built for arguments of these types, by its name."""
        name = native.digest(f"{self.digest} {types}")
        source = functools.partial(self._source, name, types)
        return {name: native.TranslationUnit(HEADERS, source, self._flags)}

    def _source(self, name: str, types: str) -> str:
        names = [name for names in parameters(self._function) for name in names]
        texts = []
        for k, (letter, n_axes) in enumerate(zip(types[::2], types[1::2], strict=True)):
            if letter == "g":
                texts.append(f"Generator{{(Bits *)given[{k}].p}}")
            elif letter == "u":
                texts.append(f"Function{{(void (*)(const Given *, Results *))given[{k}].p}}")
            elif letter == "n":
                annotation = inspect.formatannotation(
                    self._function.__annotations__.get(names[k], float)
                )
                kind = TYPES[annotation.replace("numpy", "np")]
                texts.append(f"{kind}(given[{k}].number)")
            else:
                texts.append(f"array_of<{KINDS[letter]}, {n_axes}>(given[{k}])")
        arguments = (
            f"std::make_tuple({', '.join(given)})" if isinstance(given, tuple) else given
            for given in grouped(self._function, texts)
        )
        call = f"kernel_{self.__name__}({', '.join(arguments)})"
        give = f"give(*results, {call})"
        if self._function.__annotations__.get("return", 0) is None:
            give = call
        return unit_of(name, translation.source(self._function), give)


def unit_of(name: str, source: str, call: str) -> str:
    """A unit of C++: a source, and the function that Python calls, whose errors are results."""
    return (
        f"namespace own_{name} {{\n{source}\n}}\n"
        f"{native.VISIBLE} void unit_{name}(const Given *given, Results *results) {{\n"
        f"using namespace own_{name};\n"
        f"try {{ {call}; }} catch (const Error &e) {{ results->error = e; }} }}\n"
    )


def text_of(value: Any) -> str:
    """Text that changes with what a kernel names."""
    if isinstance(value, Kernel):
        return value.digest
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tobytes()!r}"
    if fields_of(value):
        return repr({name: text_of(kind) for name, kind in value.__annotations__.items()})
    if isinstance(value, ModuleType):
        return value.__name__  # not where it lies
    return repr(value).partition(" at 0x")[0]  # of a function, which has the name of a method


@functools.cache
def translator() -> str:
    """The text of what translates kernels, and of what they call in C++."""
    files = [*HEADERS, *(HERE / f"{name}.py" for name in ("jit", "translation", "expressions"))]
    return native.digest("".join(file.read_text() for file in files))


def parameters(function: Callable[..., Any]) -> list[tuple[str, ...]]:
    """For each argument of a function the names of its entries, or its own if it is no tuple."""
    return [fields_of(kind) or (name,) for name, kind in _kinds(function)]


def grouped(function: Callable[..., Any], given: Iterable[Any]) -> list[Any]:
    """Arguments of a function: named tuples, and what is none, of entries one after another."""
    rest = iter(given)
    return [
        kind(*itertools.islice(rest, len(fields_of(kind)))) if fields_of(kind) else next(rest)
        for _, kind in _kinds(function)
    ]


def _kinds(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Names of arguments, and what they are said to be."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return [(name, function.__annotations__.get(name)) for name in names]


def entries(arguments: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments, with the entries of tuples in place of these."""
    return tuple(each for a in arguments for each in (a if isinstance(a, tuple) else (a,)))


Call = tuple[Kernel, str | None]
"""A kernel and the types of its arguments."""


def _type(argument: Any) -> str:
    if isinstance(argument, np.ndarray):
        return f"{LETTERS[argument.dtype.name]}{argument.ndim}"
    if isinstance(argument, Address):
        return "u0"
    return "g0" if isinstance(argument, np.random.Generator) else "n0"


def types_of(variables: Iterable[Variable]) -> str | None:
    """Types of the arrays and generators that variables stand for; None if one is of no kernel."""
    types = ""
    for variable in variables:
        if isinstance(variable.type, RandomGeneratorType):
            types += "g0"
        elif isinstance(variable.type, TensorType) and variable.type.dtype in LETTERS:
            types += f"{LETTERS[variable.type.dtype]}{variable.type.ndim}"
        else:
            return None
    return types


def called(op: Op, node: Apply) -> Call | None:
    """The kernel that an Op calls for a node, which its method ``calls`` tells."""
    found: Call | None = getattr(op, "calls", lambda node: None)(node)
    return found


def units_of(node: Apply) -> dict[str, native.TranslationUnit]:
    """What is built for the kernel that a node calls, if it is one and the types are known."""
    call = called(node.op, node)
    return {} if call is None or call[1] is None else call[0].unit(call[1])


def _writeable(argument: Any) -> Any:
    """For read-only arrays Numba would compile a kernel again."""
    is_array = isinstance(argument, np.ndarray)
    return np.require(argument, requirements=["C", "W"]) if is_array else argument


@functools.cache
def calls() -> Any:
    """The extension module of ``calls.cpp``."""
    return native.module(HERE / "calls.cpp")


@functools.cache
def digest() -> str:
    """A name that changes with the text of any kernel, and of what translates them."""
    files = [*HERE.glob("*.py"), *HERE.glob("*.hpp"), *HERE.parent.glob("random/*.py")]
    files.append(HERE.parent / "distributions/generalized_inverse_gaussian.py")
    return native.digest("".join(file.read_text() for file in sorted(files)))


class Plain(Kernel):
    """A kernel that is Python where Python calls it, with functions of Python."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self._function(*arguments)


jit, plain = Kernel, Plain
fused, inline = functools.partial(Kernel, is_fused=True), functools.partial(Kernel, is_inline=True)
"""Decorators of the four kinds of kernels."""


_WAITING: list[Callable[[], None]] = []
"""Calls that state what graphs of Numba call, until there is one."""


class _StateFunctions(GraphRewriter):
    """Makes the calls that wait; PyTensor's linker requires it ahead of each graph of Numba."""

    @override
    def apply(self, fgraph: FunctionGraph) -> None:
        while _WAITING:
            _WAITING.pop()()


optdb.register("pymc_nnsteps_numba", _StateFunctions(), "numba", position=0)


def in_numba(kind: type[Op], function_of: Callable[[Any, Apply], Any]) -> None:
    """State what graphs of Numba call for Ops of a kind, by their text and results' types."""

    def named(op: Op, node: Apply, **options: Any) -> tuple[Any, str]:
        types = [v.type.dtype for v in node.outputs]
        return function_of(op, node), native.digest(f"{digest()} {kind.__name__} {op} {types}")

    def register() -> None:
        from pytensor.link.numba.dispatch import basic, random

        if issubclass(kind, RandomVariable):
            random.numba_core_rv_funcify.register(kind)(
                lambda op, node: (function_of(op, node), int(digest(), 16))
            )
        else:
            basic.register_funcify_and_cache_key(kind)(named)

    _WAITING.append(register)

"""Kernels in Python, translated to C++: a compiler takes a second where Numba takes ten.

A kernel is a function of numbers and arrays, in the Python that Numba compiles too. Here its types
are left to C++: a function becomes a template, a named tuple a tuple, a name a variable of the type
of what it is first set to, and operators and functions of NumPy those of ``arrays.hpp``, whose
types are Numba's. So a name is to keep its type, and one that a loop sets from what only the loop
knows is to be set before it if it is used after it. No number that is used as an index may be
negative, as that is not looked at; slices may. What else cannot be translated, or C++ would do
otherwise, is refused: here, or by the compiler.
"""

import ast
import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_nnsteps.compile.expressions import (
    TYPES,
    Expressions,
    UntranslatableError,
    fields_of,
    number,
)

JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
"""Statements that nothing follows."""


def source(function: Callable[..., Any]) -> str:
    """A Python function and those that it calls, as templates of C++."""
    functions: dict[Callable[..., Any], str] = {}
    constants: dict[str, str] = {}
    _translate(function, functions, constants)
    names = [f.__name__ for f in functions]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UntranslatableError(f"several functions are called {', '.join(twice)}")
    return "\n".join([*constants.values(), *functions.values()])


def _translate(
    function: Callable[..., Any],
    functions: dict[Callable[..., Any], str],
    constants: dict[str, str],
    *,
    is_inline: bool = False,
) -> None:
    """Add a function and what it needs, those that it calls before it."""
    translation = Translation(function, is_inline=is_inline)
    text = translation.text()
    for name, needed in translation.needed.items():
        if callable(needed):
            if (own := inspect.unwrap(needed)) not in functions:
                _translate(own, functions, constants, is_inline=needed.is_inline)
        elif constants.setdefault(name, declared := _constant(name, needed)) != declared:
            raise UntranslatableError(f"several constants are called {name}")
    functions[function] = text


def _constant(name: str, value: Any) -> str:
    if isinstance(value, np.ndarray):
        entries = ", ".join(number(x.item()) for x in value)
        kind = {"i": "Int", "u": "uint64_t"}.get(value.dtype.kind, "double")
        return f"static const {kind} constant_{name}[] = {{{entries}}};"
    return f"static const auto constant_{name} = std::make_tuple({', '.join(map(number, value))});"


def always_set(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that have a value after these statements whichever branches are taken."""
    names: set[str] = set()
    for statement in statements:
        match statement:
            case ast.Assign(targets):
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.If(_, body, orelse):
                ways = [way for way in (body, orelse) if not (way and isinstance(way[-1], JUMPS))]
                names |= set.intersection(*map(always_set, ways)) if ways else set()
    return names


def read_first(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that these statements may read the value of before they set it."""
    names: set[str] = set()
    known: set[str] = set()
    for statement in statements:
        match statement:
            case ast.If(test, body, orelse):
                read = _read(test) | read_first(body) | read_first(orelse)
            case ast.While(test, body):
                read = _read(test) | read_first(body)
            case ast.For(target, over, body):
                own = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
                read = _read(over) | (read_first(body) - own)
            case ast.AugAssign(ast.Name(name)):
                read = _read(statement) | {name}
            case _:
                read = _read(statement)
        names |= read - known
        known |= always_set([statement])
    return names


def _assigned(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that these statements may set, but for ``_``."""
    names = (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)} - {"_"}


def _read(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


class Translation(Expressions):
    """One function; an inline one becomes a part of each function that calls it."""

    def __init__(self, function: Callable[..., Any], *, is_inline: bool = False) -> None:
        super().__init__(function)
        self._is_inline = is_inline
        returns = self._tree.returns
        self._returned = TYPES.get(ast.unparse(returns) if returns else "")
        self._n_loops = 0

    def text(self) -> str:
        """The function in C++."""
        parameters, templates, first = [], [], ""
        for k, argument in enumerate(self._tree.args.args):
            annotation = ast.unparse(argument.annotation) if argument.annotation else ""
            kind = TYPES.get(annotation)
            record = self._globals.get(annotation)
            name = self._declare(argument.arg, record)
            if kind == "Generator":
                parameters.append(f"{kind} {name}")
                continue
            templates.append(f"class T{k}")
            is_tuple = fields_of(record) or annotation == "Any"
            if is_tuple and argument.arg not in _assigned(self._tree.body):
                # A copy would count the uses of each array in it.
                parameters.append(f"const T{k} &{name}")
                continue
            parameters.append(f"T{k} {name if kind is None else f'given{k}'}")
            if kind is not None:
                first += f"{kind} {name} = as<{kind}>(given{k});\n"
        returned = self._returned or "auto"
        template = f"template <{', '.join(templates)}> " if templates else ""
        body = self._block(self._tree.body, first)
        name = f"kernel_{self._tree.name}"
        kind = "inline __attribute__((always_inline))" if self._is_inline else "static"
        return f"{template}{kind} {returned} {name}({', '.join(parameters)}) {body}"

    def _block(self, statements: Sequence[ast.stmt], first: str = "") -> str:
        with self._scope():
            texts = [
                self._set_within(statement, statements[k + 1 :]) + self._statement(statement)
                for k, statement in enumerate(statements)
            ]
            return "{\n" + first + "".join(texts) + "}\n"

    def _body(self, statements: Sequence[ast.stmt], first: str = "") -> str:
        """Translate the body of a loop."""
        self._n_loops += 1
        text = self._block(statements, first)
        self._n_loops -= 1
        return text

    def _set_within(self, node: ast.stmt, later: Sequence[ast.stmt]) -> str:
        """Declare what a branch or loop sets first and statements after it use."""
        if not isinstance(node, ast.If | ast.While | ast.For):
            return ""
        used = read_first(later)
        declared, declared_names = "", set[str]()
        for part in ast.walk(node):
            match part:
                case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                    pairs = [(t, v, "{}") for t, v in zip(targets, values, strict=True)]
                case ast.Assign([ast.Tuple(targets)], value):
                    pairs = [(t, value, f"item<{k}>({{}})") for k, t in enumerate(targets)]
                case ast.Assign(targets, value):
                    pairs = [(t, value, "{}") for t in targets]
                case _:
                    continue
            for target, value, form in pairs:
                if isinstance(target, ast.Name) and target.id in used - self._names():
                    with contextlib.suppress(UntranslatableError):
                        kind = f"std::decay_t<decltype({form.format(self._value(value))})>"
                        declared += f"{kind} {self._declare(target.id, self._kind(value))}{{}};\n"
                        declared_names.add(target.id)
        if self._n_loops and (unsure := sorted(declared_names - always_set([node]))):
            raise UntranslatableError(
                f"set {', '.join(unsure)} before the loop of the kernel {self._tree.name}"
            )
        return declared

    def _statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                return ""
            case ast.Expr(value):
                return f"{self._value(value)};\n"
            case ast.Return(None):
                return "return;\n"
            case ast.Return(value) if value is not None:
                found = self._value(value)
                return f"return {f'as<{self._returned}>({found})' if self._returned else found};\n"
            case ast.Continue():
                return "continue;\n"
            case ast.Break():
                return "break;\n"
            case ast.Raise(ast.Call(error, [message])):
                kind, text = ast.unparse(error).split(".")[-1], self._evaluated(message)
                return f'throw Error{{"{kind}", "{text}"}};\n'
            case ast.If(test, body, orelse):
                otherwise = f"else {self._block(orelse)}" if orelse else ""
                return f"if ({self._value(test)}) {self._block(body)}{otherwise}"
            case ast.While(test, body, []):
                return f"while ({self._value(test)}) {self._body(body)}"
            case ast.For(orelse=[]):
                return self._loop(node)
            case ast.AugAssign(target, operator, value):
                return self._augment(target, operator, value)
            case ast.Assign(targets, value):
                *others, last = reversed(targets)
                if others and all(isinstance(t, ast.Name) for t in targets):
                    first = self._assign(last, self._value(value))
                    return first + "".join(self._assign(t, self._value(last)) for t in others)
                if not others:
                    return self._assign_from(last, value)
        raise self._refuse(node)

    def _loop(self, node: ast.For) -> str:
        match node.target, node.iter:
            case ast.Name(name), ast.Call(ast.Name("range"), bounds):
                if self._is_known(name) or name in _assigned(node.body):
                    raise self._refuse(node)
                values = [f"as<Int>({self._value(bound)})" for bound in bounds]
                begin, stop = values[:2] if len(values) > 1 else ("0", values[0])
                step = values[2] if len(values) > 2 else "1"
                with self._scope():
                    i, end, by = self._declare(name), self._own(), self._own()
                    head = f"for (Int {i} = {begin}, {end} = {stop}, {by} = {step}; "
                    test = f"{by} > 0 ? {i} < {end} : {i} > {end}"
                    return f"{head} {test}; {i} += {by}) {self._body(node.body)}"
            case ast.Name(entry), ast.Name(table) if self._is_of_module(table, tuple):
                return "".join(self._round(node, entry, value) for value in self._globals[table])
            case ast.Tuple([index, entry]), ast.Call(ast.Name("enumerate"), [array], []):
                pass
            case entry, array:
                index = None  # type: ignore[assignment]
        if any(self._is_known(name) for name in _assigned([ast.Expr(node.target)])):
            raise self._refuse(node)
        i, over = self._own(), self._own()
        with self._scope():
            first = self._assign(index, i) if index else ""
            first += self._assign(entry, f"at({over}, {i})")
            head = f"for (Int {i} = 0; {i} < len({over}); {i}++)"
            body = self._body(node.body, first)
            return f"{{ auto {over} = {self._value(array)};\n{head} {body}}}\n"

    def _round(self, node: ast.For, entry: str, value: Any) -> str:
        """One round of a loop over a tuple of the module, which is written out."""
        leaves = any(isinstance(n, ast.Continue | ast.Break) for n in ast.walk(node))
        if leaves or self._is_known(entry) or entry in _assigned(node.body):
            raise self._refuse(node)
        with self._scope():
            first = f"const auto {self._declare(entry)} = {number(value)};\n"
            return self._body(node.body, first)

    def _augment(self, target: ast.expr, operator: ast.operator, value: ast.expr) -> str:
        kind = "to" if isinstance(target, ast.Name) else "into"
        return f"{self._operator(operator)}_{kind}({self._value(target)}, {self._value(value)});\n"

    def _assign_from(self, target: ast.expr, value: ast.expr) -> str:
        """Where the names of the targets may be among those of the values."""
        match target, value:
            case ast.Tuple(targets), ast.Tuple(values):
                used = {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)}
                set_ = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                if used.isdisjoint(set_) or all(isinstance(v, ast.Constant) for v in values):
                    return "".join(map(self._assign_from, targets, values))
                kept = [self._own() for _ in values]
                first = [
                    f"auto {name} = {self._value(v)};\n"
                    for name, v in zip(kept, values, strict=True)
                ]
                return "".join([*first, *map(self._assign, targets, kept)])
        kind, text = self._kind(value), self._assign(target, self._value(value))
        if isinstance(target, ast.Name):
            self._kinds[target.id] = kind
        return text

    def _assign(self, target: ast.expr, value: str) -> str:
        match target:
            case ast.Name("_"):
                return ""
            case ast.Name(name) if self._is_known(name):
                return f"assign({name}_, {value});\n"
            case ast.Name(name):
                return f"auto {self._declare(name)} = {value};\n"
            case ast.Tuple(targets):
                whole = self._own()
                parts = [self._assign(t, f"item<{k}>({whole})") for k, t in enumerate(targets)]
                return f"auto {whole} = {value};\n" + "".join(parts)
            case ast.Subscript():
                return f"set({self._value(target)}, {value});\n"
        raise self._refuse(target)

"""Kernels in Python, translated to C++: a compiler takes a second where Numba takes ten.

A kernel is a function of numbers and arrays, in the Python that Numba compiles too. Here its types
are left to C++: a function becomes a template, a name a variable of the type of what it is first
set to, and operators and functions of NumPy those of ``arrays.hpp``, whose types are Numba's. So a
name is to keep its type, and one that a loop sets from what only the loop knows is to be set before
it if it is used after it. No number that is used as an index may be negative, as that is not looked
at; slices may. What else cannot be translated, or C++ would do otherwise, is refused: here, or by
the compiler.
"""

import ast
import contextlib
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

TYPES = {"float": "double", "int": "Int", "bool": "bool", "None": "void", "Generator": "Generator"}
TYPES |= {"np.int64": "Int", "np.uint64": "uint64_t"}
"""C++ types of what annotations say; others are left to it."""

DTYPES = {"np.int64": "Int", "np.uint64": "uint64_t", "np.float64": "double", "np.bool_": "bool"}
CASTS = {"float": "double", "int": "Int", "bool": "bool"} | DTYPES

FUNCTIONS = {
    "abs": "abs_of",
    "len": "len",
    "max": "larger",
    "math.copysign": "std::copysign",
    "math.hypot": "hypot_of",
    "math.isfinite": "isfinite_of",
    "math.isnan": "isnan_of",
    "min": "smaller",
    "np.abs": "abs_of",
    "np.arange": "arange",
    "np.argmax": "argmax",
    "np.ascontiguousarray": "contiguous",
    "np.dot": "dot",
    "np.isfinite": "isfinite_of",
    "np.isinf": "isinf_of",
    "np.isnan": "isnan_of",
    "np.nextafter": "std::nextafter",
    "np.searchsorted": "searchsorted",
    "np.sqrt": "sqrt_of",
} | {f"math.{name}": f"{name}_of" for name in ("sqrt", "exp", "log", "log1p", "expm1", "erfc")}

OPERATORS = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "modulo",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
    ast.BitOr: "bit_or",
    ast.BitAnd: "bit_and",
    ast.BitXor: "bit_xor",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.USub: "negative",
    ast.Not: "!",
    ast.And: "&&",
    ast.Or: "||",
}

KEYWORDS = {"np.argsort kind='mergesort'"}
"""Arguments that say what C++ does in any case."""

LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
"""Statements that nothing follows."""


class UntranslatableError(NotImplementedError):
    """What a kernel does that this module does not know."""


def number(value: Any) -> str:
    """A constant in C++, to the last digit."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer) and abs(int(value)) < 2**63:
        return f"Int({value})"
    if isinstance(value, float):
        if np.isfinite(value):
            return float(value).hex()
        return "double(NAN)" if np.isnan(value) else f"double({'-' if value < 0 else ''}INFINITY)"
    raise UntranslatableError(f"the constant {value!r}")


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
                ways = [way for way in (body, orelse) if not (way and isinstance(way[-1], LEAVES))]
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


def _draws(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "rng" for n in ast.walk(node))


def _read(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


class Translation:
    """One function.

    Parameters
    ----------
    function : callable
    is_inline : bool
        Whether it becomes a part of each function that calls it.

    Attributes
    ----------
    needed : dict
        Functions, arrays and tuples of its module that it uses, by name.
    """

    def __init__(self, function: Callable[..., Any], *, is_inline: bool = False) -> None:
        self._is_inline = is_inline
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self._tree = tree
        self._globals = function.__globals__
        self._returned = TYPES.get(ast.unparse(tree.returns) if tree.returns else "")
        self._known: list[set[str]] = [set()]
        self._n_own = self._n_loops = 0
        self.needed: dict[str, Any] = {}

    def text(self) -> str:
        """In C++."""
        parameters, templates, first = [], [], ""
        for k, argument in enumerate(self._tree.args.args):
            annotation = argument.annotation
            kind = TYPES.get(ast.unparse(annotation) if annotation else "")
            name = self._declare(argument.arg)
            if kind == "Generator":
                parameters.append(f"{kind} {name}")
                continue
            templates.append(f"class T{k}")
            parameters.append(f"T{k} {name if kind is None else f'given{k}'}")
            if kind is not None:
                first += f"{kind} {name} = as<{kind}>(given{k});\n"
        returned = self._returned or "auto"
        template = f"template <{', '.join(templates)}> " if templates else ""
        body = self._block(self._tree.body, first)
        name = f"kernel_{self._tree.name}"
        kind = "inline __attribute__((always_inline))" if self._is_inline else "static"
        return f"{template}{kind} {returned} {name}({', '.join(parameters)}) {body}"

    # -- Names

    def _declare(self, name: str) -> str:
        self._known[-1].add(name)
        return f"{name}_"

    def _names(self) -> set[str]:
        return set().union(*self._known)

    def _is_known(self, name: str) -> bool:
        return name in self._names()

    def _is_table(self, name: str) -> bool:
        """Whether it is an array of the module."""
        return isinstance(self._globals.get(name), np.ndarray) and not self._is_known(name)

    def _is_tuple(self, name: str) -> bool:
        """Whether it is a tuple of the module."""
        return isinstance(self._globals.get(name), tuple) and not self._is_known(name)

    def _own(self) -> str:
        """A name of no variable."""
        self._n_own += 1
        return f"own{self._n_own}"

    def _refuse(self, node: ast.AST) -> UntranslatableError:
        return UntranslatableError(f"{ast.unparse(node)!r} in the kernel {self._tree.name}")

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._known.append(set())
        yield
        self._known.pop()

    # -- Statements

    def _block(self, statements: Sequence[ast.stmt], first: str = "") -> str:
        with self._scope():
            texts = [
                self._set_within(statement, statements[k + 1 :]) + self._statement(statement)
                for k, statement in enumerate(statements)
            ]
            return "{\n" + first + "".join(texts) + "}\n"

    def _body(self, statements: Sequence[ast.stmt], first: str = "") -> str:
        """Of a loop."""
        self._n_loops += 1
        text = self._block(statements, first)
        self._n_loops -= 1
        return text

    def _set_within(self, node: ast.stmt, later: Sequence[ast.stmt]) -> str:
        """Declare what a branch or loop sets first and statements after it use.

        Raises
        ------
        UntranslatableError
            If a branch within a loop need not set it: in Python it would be that of the last round.
        """
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
                        declared += f"{kind} {self._declare(target.id)}{{}};\n"
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
            case ast.Name(entry), ast.Name(table) if self._is_tuple(table):
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
        return self._assign(target, self._value(value))

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

    # -- Expressions

    def _evaluated(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "", "eval"), self._globals)

    def _is_constant(self, node: ast.expr) -> bool:
        """Whether it is computed from numbers of the module."""
        for part in ast.walk(node):
            if isinstance(part, ast.Call | ast.Subscript | ast.Tuple | ast.IfExp):
                return False
            if isinstance(part, ast.Name) and (
                self._is_known(part.id)
                or not (
                    isinstance(self._globals.get(part.id), int | float) or part.id in ("math", "np")
                )
            ):
                return False
        return not isinstance(node, ast.Name | ast.Attribute) or isinstance(
            self._evaluated(node), int | float
        )

    def _operator(self, node: ast.AST) -> str:
        if type(node) not in OPERATORS:
            raise self._refuse(node)
        return OPERATORS[type(node)]

    def _value(self, node: ast.expr) -> str:
        if self._is_constant(node):
            return number(self._evaluated(node))
        if isinstance(node, ast.BinOp | ast.Compare | ast.Tuple | ast.Call):
            self._require_order(node)
        match node:
            case ast.Name(name) if self._is_known(name):
                return f"{name}_"
            case ast.Name(name) if name in self._globals:
                return self._global(name)
            case ast.Tuple(parts):
                return f"std::make_tuple({', '.join(map(self._value, parts))})"
            case ast.UnaryOp(operator, operand):
                return f"{self._operator(operator)}({self._value(operand)})"
            case ast.BinOp(left, ast.Pow(), ast.Constant(2)):
                return f"square({self._value(left)})"
            case ast.BinOp(left, operator, right):
                return f"{self._operator(operator)}({self._value(left)}, {self._value(right)})"
            case ast.BoolOp(operator, values):
                tests = [f"truth({self._value(value)})" for value in values]
                return f"({f' {self._operator(operator)} '.join(tests)})"
            case ast.Compare(left, operators, others):
                if any(isinstance(part, ast.Call) for o in others[:-1] for part in ast.walk(o)):
                    raise self._refuse(node)
                sides = [self._value(side) for side in (left, *others)]
                pairs = [
                    f"{self._operator(operator)}({a}, {b})"
                    for a, operator, b in zip(sides, operators, sides[1:], strict=False)
                ]
                return pairs[0] if len(pairs) == 1 else f"({' && '.join(pairs)})"
            case ast.IfExp(test, body, orelse):
                a, b = self._value(body), self._value(orelse)
                ways = f"beside<decltype({b})>({a}) : beside<decltype({a})>({b})"
                return f"({self._value(test)} ? {ways})"
            case ast.Attribute(value, "T"):
                of = self._value(value)
                return f"Transposed<std::decay_t<decltype(*{of}.p)>>{{{of}}}"
            case ast.Attribute(value, "size"):
                return f"{self._value(value)}.size()"
            case ast.Attribute(value, "shape"):
                return f"shape_of({self._value(value)})"
            case ast.Attribute(ast.Call(ast.Attribute(_, "finfo"), [kind]), "eps"):
                return f"eps({self._dtype(kind)})"
            case ast.Subscript(ast.Attribute(value, "shape"), ast.Constant(axis)):
                return f"{self._value(value)}.n[{axis!r}]"
            case ast.Subscript(ast.Name(name), index) if self._is_table(name):
                return f"{self._value(node.value)}[{self._place(index)}]"
            case ast.Subscript(value, ast.Constant(k)):
                return f"item<{k!r}>({self._value(value)})"
            case ast.Subscript(value, index):
                places = index.elts if isinstance(index, ast.Tuple) else [index]
                return f"at({', '.join([self._value(value), *map(self._place, places)])})"
            case ast.Call(function, arguments):
                return self._call(node, function, arguments)
        raise self._refuse(node)

    def _require_order(self, node: ast.expr) -> None:
        """Refuse several parts that draw: C++ evaluates them in any order."""
        if sum(map(_draws, ast.iter_child_nodes(node))) > 1:
            raise self._refuse(node)

    def _global(self, name: str) -> str:
        value = self._globals[name]
        if callable(value):
            self.needed[name] = value
            return f"kernel_{name}"
        if isinstance(value, tuple | np.ndarray):
            self.needed[name] = value
            return f"constant_{name}"
        raise UntranslatableError(f"{name!r} in the kernel {self._tree.name}")

    def _place(self, node: ast.expr) -> str:
        if isinstance(node, ast.Slice):
            if node.step is not None:
                raise self._refuse(node)
            begin = self._value(node.lower) if node.lower else "0"
            end = self._value(node.upper) if node.upper else "END"
            return f"Slice{{{begin}, {end}}}"
        if self._is_constant(node) and self._evaluated(node) < 0:
            raise self._refuse(node)
        return self._value(node)

    def _dtype(self, node: ast.expr) -> str:
        match node:
            case ast.Attribute(value, "dtype"):
                return f"dtype({self._value(value)})"
        return f"Type<{DTYPES[ast.unparse(node)]}>{{}}"

    def _shape(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return f"shape({', '.join(map(self._value, node.elts))})"
        return f"as_shape({self._value(node)})"

    def _call(self, node: ast.Call, function: ast.expr, arguments: Sequence[ast.expr]) -> str:
        name = ast.unparse(function)
        keywords = {f"{name} {k.arg}={ast.unparse(k.value)}" for k in node.keywords}
        match name, arguments, node.keywords:
            case "np.empty" | "np.zeros" | "np.ones", [shape, *given], named:
                if len(given) + len(named) > 1 or any(k.arg != "dtype" for k in named):
                    raise self._refuse(node)
                dtypes = [*given, *(k.value for k in named)]
                dtype = self._dtype(dtypes[0]) if dtypes else "Type<double>{}"
                if name == "np.empty":
                    return f"empty({self._shape(shape)}, {dtype})"
                return f"full({self._shape(shape)}, cast({dtype}, {int(name == 'np.ones')}))"
            case "np.eye", [n], [ast.keyword("dtype", kind)]:
                return f"eye({self._value(n)}, {self._dtype(kind)})"
            case _ if not keywords <= KEYWORDS:
                raise self._refuse(node)
            case "np.argsort", [x], [_]:
                return f"argsort({self._value(x)})"
            case "np.empty_like", [x], []:
                return f"empty(shape_of({self._value(x)}), dtype({self._value(x)}))"
            case "np.zeros_like", [x], []:
                return f"full(shape_of({self._value(x)}), cast(dtype({self._value(x)}), 0))"
            case "np.full", [shape, entry], []:
                return f"full({self._shape(shape)}, {self._value(entry)})"
            case _, [x], [] if name in CASTS:
                return f"{CASTS[name]}({self._value(x)})"
        match function, arguments:
            case ast.Attribute(value, "view"), [kind]:
                return f"with_bits_of<{DTYPES[ast.unparse(kind)]}>({self._value(value)})"
            case ast.Attribute(value, "astype"), [kind]:
                return f"astype({self._value(value)}, {self._dtype(kind)})"
        values = [self._value(argument) for argument in arguments]
        if name in ("max", "min") and len(values) > 2:
            *first, last = values
            return functools.reduce(lambda a, b: f"{FUNCTIONS[name]}({a}, {b})", [*first, last])
        if name in FUNCTIONS:
            return f"{FUNCTIONS[name]}({', '.join(values)})"
        match function, arguments:
            case ast.Name(called), _ if not self._is_known(called):
                return f"{self._global(called)}({', '.join(values)})"
            case ast.Attribute(value, "copy"), []:
                return f"copy_of({self._value(value)})"
            case ast.Attribute(value, "any" | "all" as which), []:
                return f"{which}({self._value(value)})"
            case ast.Attribute(value, "max"), []:
                return f"largest({self._value(value)})"
            case ast.Attribute(value, "reshape"), [length] if ast.unparse(length) == "-1":
                return f"flat({self._value(value)})"
            case ast.Attribute(ast.Attribute(value, "dtype"), "type"), [number]:
                return f"cast(dtype({self._value(value)}), {self._value(number)})"
            case ast.Attribute(ast.Name("rng"), method), _:
                return f"rng_.{method}({', '.join(values)})"
        raise self._refuse(node)

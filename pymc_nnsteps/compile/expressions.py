"""Expressions of kernels, translated to C++ (:mod:`.translation` has statements and functions)."""

import ast
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
    "math.hypot": "std::hypot",
    "math.isfinite": "isfinite_of",
    "math.isnan": "isnan_of",
    "math.pow": "std::pow",
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

METHODS = {"all": "all", "any": "any", "copy": "copy_of", "max": "largest"}

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


def _draws(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "rng" for n in ast.walk(node))


def fields_of(kind: object) -> tuple[str, ...]:
    """Names of a named tuple's entries, by its type; none of another type."""
    return getattr(kind, "_fields", ())


class Expressions:
    """Expressions of a function, and the names in them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self._tree = tree
        self._globals = function.__globals__
        self._known: list[set[str]] = [set()]
        self._kinds: dict[str, Any] = {}
        self._n_own = 0
        self.needed: dict[str, Any] = {}

    def _declare(self, name: str, kind: Any = None) -> str:
        """Begin to use a name, that of a named tuple if this is its kind."""
        self._known[-1].add(name)
        self._kinds[name] = kind
        return f"{name}_"

    def _names(self) -> set[str]:
        return set().union(*self._known)

    def _is_known(self, name: str) -> bool:
        return name in self._names()

    def _is_of_module(self, name: str, *kinds: type) -> bool:
        """Whether it is a value of the module, of some types."""
        return isinstance(self._globals.get(name), kinds) and not self._is_known(name)

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

    def _evaluated(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "", "eval"), self._globals)

    def _is_constant(self, node: ast.expr) -> bool:
        """Whether it is computed from numbers of the module."""
        for part in ast.walk(node):
            match part:
                case ast.Call() | ast.Subscript() | ast.Tuple() | ast.IfExp():
                    return False
                case ast.Name("math" | "np"):
                    pass
                case ast.Name(name) if not self._is_of_module(name, int, float):
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
            case ast.Attribute(value, field) if field in (fields := fields_of(self._kind(value))):
                return f"item<{fields.index(field)}>({self._value(value)})"
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
            case ast.Subscript(ast.Name(name), index) if self._is_of_module(name, np.ndarray):
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
            return f"[](const auto &...x) {{ return {self._kernel(name)}(x...); }}"
        if isinstance(value, tuple | np.ndarray):
            self.needed[name] = value
            return f"constant_{name}"
        raise UntranslatableError(f"{name!r} in the kernel {self._tree.name}")

    def _kernel(self, name: str) -> str:
        self.needed[name] = self._globals[name]
        return f"kernel_{name}"

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

    def _kind(self, value: ast.expr) -> Any:
        """Kind of a named tuple that an expression gives; anything of other values."""
        match value:
            case ast.Name(name) if self._is_known(name):
                return self._kinds[name]
            case ast.Attribute(value, field):
                return getattr(self._kind(value), "__annotations__", {}).get(field)
            case ast.Call(ast.Name(called)):
                made = self._globals.get(called)
                return getattr(made, "__annotations__", {}).get("return", made)
        return None

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
                return f"eye({self._value(n)}, {self._value(n)}, {self._dtype(kind)})"
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
        if name in ("max", "min"):
            return functools.reduce(lambda a, b: f"{FUNCTIONS[name]}({a}, {b})", values)
        if name in FUNCTIONS:
            return f"{FUNCTIONS[name]}({', '.join(values)})"
        match function, arguments:
            case ast.Name(called), _ if fields_of(self._globals.get(called)):
                return f"std::make_tuple({', '.join(values)})"
            case ast.Name(called), _ if self._is_known(called):
                return f"{called}_({', '.join(values)})"
            case ast.Name(called), _:
                return f"{self._kernel(called)}({', '.join(values)})"
            case ast.Attribute(value, method), [] if method in METHODS:
                return f"{METHODS[method]}({self._value(value)})"
            case ast.Attribute(value, "reshape"), [length] if ast.unparse(length) == "-1":
                return f"flat({self._value(value)})"
            case ast.Attribute(value, "reshape"), [ast.Tuple() as shape]:
                return f"folded({self._value(value)}, {self._shape(shape)})"
            case ast.Attribute(ast.Attribute(value, "dtype"), "type"), [number]:
                return f"cast(dtype({self._value(value)}), {self._value(number)})"
            case ast.Attribute(ast.Name("rng"), method), _:
                return f"rng_.{method}({', '.join(values)})"
        raise self._refuse(node)

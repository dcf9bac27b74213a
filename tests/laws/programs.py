"""Programs for the fuzzer: expressions that are grown from tables of what a user may write.

The tables hold the operations that the readers know and, apart, neighbours that they do not:
nonlinear ones, casts, sorts, and ways of indexing and joining that look like known ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_nnsteps as nns
from tests.laws.graphs import evaluate

NAMESPACE = {"np": np, "nns": nns, "pm": pm, "pt": pt}
MISFITS = (AssertionError, IndexError, TypeError, ValueError)
"""What PyTensor and PyMC raise where arrays do not fit or an operation is not defined."""
LARGEST = 24
"""Entries of an expression; more take time and show no more."""


@dataclass(frozen=True, eq=False)
class Expression:
    """Program text: a template and the expressions in its places."""

    template: str
    operands: tuple["Expression", ...] = ()

    def write(self, lines: list[str], prefix: str) -> str:
        """Append a line for each operation, and return the name of the result."""
        if not self.operands:
            return self.template
        text = self.template.format(*(operand.write(lines, prefix) for operand in self.operands))
        name = f"{prefix}{sum(line.startswith(prefix) for line in lines)}"
        lines.append(f"{name} = {text}")
        return name

    def smaller(self) -> Iterator["Expression"]:
        """The same with one operation left out."""
        yield from (operand for operand in self.operands if operand.operands)
        yield from (operand for operand in self.operands if operand.template.isidentifier())
        for i, operand in enumerate(self.operands):
            for other in operand.smaller():
                yield replace(self, operands=(*self.operands[:i], other, *self.operands[i + 1 :]))


def built(lines: Sequence[str]) -> dict:
    """What a program defines."""
    names = dict(NAMESPACE)
    exec("\n    ".join(lines), names)
    return names


def shape_of(expression) -> tuple[int, ...]:
    static = expression.type.shape
    if None not in static:
        return static
    [shape] = evaluate([expression.shape])
    return tuple(int(n) for n in shape)


class Grower:
    """Grows expressions of the variables that some lines declare, and knows their shapes."""

    def __init__(self, rng: np.random.Generator, declarations: Sequence[str], *, positive=False):
        self.rng, self.positive = rng, positive
        self.names = built(["with pm.Model() as model:", *declarations])
        self.rendered: dict[Expression, str] = {}

    def shape(self, expression: Expression) -> tuple[int, ...] | None:
        """Shape of an expression whose operands were evaluated before; None if they do not fit."""
        if expression not in self.rendered:
            names = [self.rendered.get(e, e.template) for e in expression.operands]
            name = f"e{len(self.rendered)}"
            try:
                with self.names["model"]:
                    self.names[name] = eval(expression.template.format(*names), self.names)
                shape_of(self.names[name])
            except MISFITS:
                return None
            self.rendered[expression] = name
        return shape_of(self.names[self.rendered[expression]])

    def grow(self, start: Expression, operations: Sequence, n: int) -> Expression:
        """Apply ``n`` operations of a table of ``(weight, operation)``."""
        expression, shape = start, self.shape(start)
        weights = np.array([weight for weight, _ in operations], dtype=float)
        for _ in range(n):
            position = self.rng.choice(len(operations), p=weights / weights.sum())
            new = operations[position][1](self, expression, shape)
            new_shape = None if new is None else self.shape(new)
            if (
                new_shape is not None
                and np.prod(new_shape, dtype=int) <= LARGEST
                and len(new_shape) <= 4
            ):
                expression, shape = new, new_shape
        return expression

    def one(self, *choices):
        """One of several things."""
        return choices[self.rng.integers(len(choices))]

    def name(self) -> str:
        """A name that no other variable has."""
        return f"d{self.rng.integers(10**9)}"

    def numbers(self, shape: tuple[int, ...]) -> str:
        """Text of an array, or of a number."""
        return literal(self.rng, shape, positive=self.positive)

    def constant(self, shape: tuple[int, ...]) -> str:
        """Text of something known that broadcasts to a shape, or of one number."""
        kept = tuple(n if self.rng.random() < 0.7 else 1 for n in shape)
        drop = self.rng.integers(len(kept) + 1) if kept and self.rng.random() < 0.4 else 0
        numbers = self.numbers(kept[drop:])
        kind = self.rng.random()
        if kind < 0.15:
            return self.numbers(())
        if kind < 0.25 and "u" in self.names:
            return f"(u * {numbers})"
        if kind < 0.35:
            return f'pm.Data("{self.name()}", {numbers})'
        if kind < 0.4:
            return f"np.float32({numbers})"
        if kind < 0.45 and len(kept) > drop:
            return f"np.array({(1 + self.rng.integers(3, size=kept[drop:])).tolist()})"
        return numbers

    def axis(self, shape: tuple[int, ...]) -> int:
        """An axis, counted from the front or from the end."""
        return int(self.rng.integers(-len(shape), len(shape)))

    def index(self, shape: tuple[int, ...], text: str, axis: int) -> str:
        """Text that indexes one axis."""
        return ", ".join([*[":"] * (axis % len(shape)), text])

    def vector(self, length: int) -> str:
        """Text of a vector of indices, some of them repeated or negative."""
        entries = self.rng.integers(-length, length, size=self.rng.integers(1, 5))
        if self.rng.random() < 0.6:
            entries %= length
        text = f"np.array({entries.tolist()})"
        return f'pm.Data("{self.name()}", {text})' if self.rng.random() < 0.15 else text

    def mask(self, shape: tuple[int, ...]) -> str:
        """Text of an array of truth values."""
        return f"np.array({np.asarray(self.rng.random(shape) < 0.6).tolist()})"


def literal(rng: np.random.Generator, shape: tuple[int, ...], *, positive: bool = False) -> str:
    """Text of random numbers."""
    numbers = np.exp(rng.normal(size=shape) / 2) if positive else rng.normal(size=shape)
    numbers = np.round(numbers, 2) + (0.01 if positive else 0.0)
    if np.size(numbers) == 0:
        return f"np.zeros({np.shape(numbers)})"
    if np.shape(numbers) == ():
        return f"{float(numbers):.2f}"
    return f"np.array({np.round(numbers, 2).tolist()})"


def bits(rng: np.random.Generator, shape: tuple[int, ...]) -> str:
    return f"np.array({rng.integers(2, size=shape).tolist()}, dtype=int).reshape({shape})"


def template(text: str):
    """An operation that is always possible."""
    return lambda grower, e, shape: Expression(text, (e,))


def _on_array(text: str):
    """An operation on an axis; ``{k}`` is its place."""

    def operation(grower, e, shape):
        if not shape:
            return None
        return Expression(text.replace("{k}", str(grower.axis(shape))), (e,))

    return operation


def _with_constant(*texts: str):
    """An operation with something known, in place ``{1}``."""

    def operation(grower, e, shape):
        return Expression(grower.one(*texts), (e, Expression(grower.constant(shape))))

    return operation


def _index_number(grower, e, shape):
    if not shape:
        return None
    axis = grower.axis(shape) % len(shape)
    entry = grower.rng.integers(-shape[axis], shape[axis])
    return Expression(f"{{0}}[{grower.index(shape, str(entry), axis)}]", (e,))


def _index_range(grower, e, shape):
    if not shape:
        return None
    axis = grower.axis(shape) % len(shape)
    text = grower.one("::-1", ":-1", "1:", "::2", "0:1", "-1:", "1::-1", ":", "-2:")
    return Expression(f"{{0}}[{grower.index(shape, text, axis)}]", (e,))


def _index_number_and_range(grower, e, shape):
    if len(shape) < 2:
        return None
    return Expression(grower.one("{0}[0, 1:]", "{0}[1:, 0]", "{0}[-1, ::-1]", "{0}[:1, -1]"), (e,))


def _index_vector(grower, e, shape):
    if not shape or 0 in shape:
        return None
    axis = grower.axis(shape) % len(shape)
    text = grower.vector(shape[axis])
    if grower.rng.random() < 0.2:
        text = grower.mask((shape[axis],))
    return Expression(f"{{0}}[{grower.index(shape, text, axis)}]", (e,))


def _index_arrays(grower, e, shape):
    """Two vectors, a matrix, a mask of all axes, or a vector beside other indices."""
    if not shape or 0 in shape:
        return None
    kind = grower.rng.integers(4)
    if kind == 0:
        entries = grower.rng.integers(shape[0], size=(2, 2)).tolist()
        return Expression(f"{{0}}[np.array({entries})]", (e,))
    if kind == 1:
        return Expression(f"{{0}}[{grower.mask(shape)}]", (e,))
    if len(shape) < 2:
        return None
    rows = grower.rng.integers(shape[0], size=3).tolist()
    columns = grower.rng.integers(shape[1], size=3).tolist()
    second = f"np.array({columns})" if kind == 2 else grower.one("1:", "0", "None", "::-1")
    return Expression(f"{{0}}[np.array({rows}), {second}]", (e,))


def _transpose(grower, e, shape):
    order = grower.rng.permutation(len(shape)).tolist()
    texts = ["{0}.T", f"{{0}}.transpose({', '.join(map(str, order))})" if order else "{0}.T"]
    if len(shape) > 1:
        first, second = grower.axis(shape), grower.axis(shape)
        texts += [f"pt.moveaxis({{0}}, {first}, {second})", "{0}.mT"]
        texts += [f"pt.swapaxes({{0}}, {first}, {second})"]
    return Expression(grower.one(*texts), (e,))


def _new_axis(grower, e, shape):
    axis = grower.rng.integers(len(shape) + 1)
    index = ", ".join([*[":"] * axis, "None"])
    return Expression(grower.one(f"{{0}}[{index}]", f"pt.expand_dims({{0}}, {axis})"), (e,))


def _squeeze(grower, e, shape):
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    if not ones:
        return None
    axis = grower.one(*ones)
    index = ", ".join([*[":"] * axis, "0"])
    texts = [f"pt.squeeze({{0}}, {axis})", f"{{0}}[{index}]", f"{{0}}.sum({axis})"]
    return Expression(grower.one(*texts), (e,))


def _reshape(grower, e, shape):
    size = int(np.prod(shape))
    ways = [(size,), (-1,), (size, 1), (1, size), (1, *shape), (*shape, 1)]
    ways += [(n, size // n) for n in (2, 3, 4) if size % n == 0]
    ways += [(2, -1)] if size % 2 == 0 else []
    if len(shape) > 1:
        ways += [(shape[0] * shape[1], *shape[2:]), shape[::-1]]
        ways += [(shape[0], shape[1], 1, *shape[2:])]
    texts = [f"{{0}}.reshape({grower.one(*ways)})", "{0}.ravel()", "pt.atleast_2d({0})"]
    return Expression(grower.one(texts[0], *texts), (e,))


def _broadcast(grower, e, shape):
    wide = tuple(grower.one(2, 3) if n == 1 and grower.rng.random() < 0.7 else n for n in shape)
    if grower.rng.random() < 0.6:
        wide = (grower.one(1, 2, 3), *wide)
    text = grower.one(
        f"pt.broadcast_to({{0}}, {wide})",
        f"pt.ones({wide}) * {{0}}",
        f"{{0}} + pt.zeros({wide})" if not grower.positive else f"{{0}} * np.ones({wide})",
        f"pt.alloc({{0}}, {', '.join(map(str, wide))})" if wide else "{0}",
        f"pt.full({wide}, {{0}})" if wide else "{0}",
    )
    return Expression(text, (e,))


def _join(grower, e, shape):
    """Beside something known, itself, a part or a multiple of itself."""
    if not shape:
        return None
    axis = grower.axis(shape)
    other = list(shape)
    other[axis] = grower.one(1, 1, 2, 3)
    index = ", ".join([*[":"] * (axis % len(shape)), grower.one("::-1", ":1", "1:")])
    factor = grower.constant(shape)
    texts = [
        grower.numbers(tuple(other)),
        "{0}",
        f"{{0}}[{index}]",
        f"({{0}} * {factor})",
    ]
    texts += [f"(u * {grower.numbers(tuple(other))})"] if "u" in grower.names else []
    parts = ["{0}", grower.one(texts[0], *texts)]
    grower.rng.shuffle(parts)
    return Expression(f"pt.concatenate([{', '.join(parts)}], axis={axis})", (e,))


def _stack(grower, e, shape):
    axis = int(grower.rng.integers(len(shape) + 1))
    parts = ["{0}", grower.one(grower.numbers(shape), "{0}", f"({{0}} * {grower.numbers(())})")]
    grower.rng.shuffle(parts)
    if not shape and grower.rng.random() < 0.5:
        return Expression(f"pt.as_tensor([{', '.join(parts)}])", (e,))
    return Expression(f"pt.stack([{', '.join(parts)}], axis={axis})", (e,))


def _set_part(grower, e, shape):
    if not shape or shape[0] < 1:
        return None
    rest = grower.numbers(shape[1:])
    texts = [f"pt.set_subtensor({{0}}[0], {rest})", f"{{0}}[-1].set({rest})"]
    if not grower.positive:
        texts += [f"pt.inc_subtensor({{0}}[0], {rest})", f"pt.zeros({(2, *shape)})[1].set({{0}})"]
        texts += [f"pt.zeros({shape})[0].inc({{0}}[-1])"]
    return Expression(grower.one(*texts), (e,))


def _name(grower, e, shape):
    return Expression(f'pm.Deterministic("{grower.name()}", {{0}} * 1.0)', (e,))


def _choose(grower, e, shape):
    condition = grower.mask(shape)
    if "u" in grower.names and grower.rng.random() < 0.3:
        condition = "u > 0.1"
    texts = [f"pt.where({condition}, {{0}}, {{1}})", f"pt.switch({condition}, {{1}}, {{0}})"]
    return Expression(grower.one(*texts), (e, Expression(grower.constant(shape))))


def _matrix_product(grower, e, shape):
    if not shape:
        return None
    n = grower.one(1, 2, 3)
    right, left = grower.numbers((shape[-1], n)), grower.numbers((n, shape[max(-2, -len(shape))]))
    texts = [f"{{0}} @ {right}", f"pt.dot({{0}}, {right})", f"{{0}} @ {grower.numbers(shape[-1:])}"]
    if len(shape) <= 2:
        texts += [f"{left} @ {{0}}", f"pt.dot({left}, {{0}})"]
        texts += [f"pt.tensordot({left}, {{0}}, [[1], [0]])"]
        texts += [f'pm.Data("{grower.name()}", {left}) @ {{0}}']
    else:
        batched = grower.numbers((*shape[:-2], n, shape[-2]))
        texts += [f"pt.matmul({batched}, {{0}})", f"{left} @ {{0}}"]
    if len(shape) == 2:
        texts += [f"pt.matmul({grower.numbers((2, n, shape[0]))}, {{0}})"]
        texts += [f"pt.einsum('ij,jk->ki', {{0}}, {right})"]
        texts += [f"pt.vecdot({{0}}, {grower.numbers(shape[-1:])})"]
    return Expression(grower.one(*texts), (e,))


def _with_itself(grower, e, shape):
    """Together with another expression of the same variable, of the same shape."""
    if not shape:
        return Expression(grower.one("({0} + {0} * 0.3)", "({0} - 2.0 * {0})"), (e,))
    k = grower.axis(shape)
    backwards = ", ".join([*[":"] * (k % len(shape)), "::-1"])
    texts = [f"({{0}} + {{0}}[{backwards}])", f"({{0}} - {{0}}.sum({k}, keepdims=True))"]
    texts += ["({0} + {0}[0])", "({0} - 0.5 * {0}.mean())"]
    if len(shape) > 1 and shape[-1] == shape[-2]:
        texts += ["({0} + {0}.mT)"] * 3
    return Expression(grower.one(*texts), (e,))


def _beside_another(grower, e, shape):
    if "w" not in grower.names:
        return None
    texts = ["({0} + w)", "({0} - 2.0 * w)", "(w * 0.5 + {0})", "({0} + w.sum())", "({0} * w)"]
    texts += ["({0} + w[0])", "({0} + w[..., None])"] if grower.names["w"].ndim else []
    return Expression(grower.one(*texts), (e,))


STRUCTURE = [
    (2, _index_number),
    (1, _index_range),
    (0.3, _index_number_and_range),
    (2, _index_vector),
    (0.4, _index_arrays),
    (2, _transpose),
    (1, _new_axis),
    (1, _squeeze),
    (1, _reshape),
    (1.5, _broadcast),
    (2, _join),
    (1, _stack),
    (0.5, _name),
]
"""What moves entries about."""

LINEAR = [
    *STRUCTURE,
    (3, _with_constant("({0} + {1})", "({1} + {0})", "({0} - {1})", "({1} - {0})")),
    (3, _with_constant("({0} * {1})", "({1} * {0})")),
    (1, template("(-{0})")),
    (1, template("({0} / 0.7)")),
    (3, _matrix_product),
    (1.5, _on_array("{0}.sum({k})")),
    (0.5, _on_array("{0}.sum({k}, keepdims=True)")),
    (0.5, template("{0}.sum()")),
    (0.5, _on_array("{0}.mean({k})")),
    (1.5, _with_itself),
    (1, _beside_another),
    (0.2, _choose),
    (0.2, _set_part),
    (0.3, template('{0}.astype("float64")')),
]

LINEAR_NEIGHBOURS = [
    (1, _set_part),
    (1, _choose),
    (1, _on_array("pt.cumsum({0}, axis={k})")),
    (1, _on_array("pt.diff({0}, axis={k})")),
    (1, _on_array("pt.repeat({0}, 2, axis={k})")),
    (1, _on_array("pt.roll({0}, 1, axis={k})")),
    (1, _on_array("pt.flip({0}, axis={k})")),
    (1, _on_array("pt.tile({0}, 2)")),
    (0.5, _on_array("pm.math.softmax({0}, axis={k})")),
    (0.5, _on_array("pt.max({0}, axis={k})")),
    (0.5, _on_array("pt.sort({0}, axis={k})")),
    (0.5, _on_array("pt.prod({0}, axis={k})")),
    (0.5, _on_array("{0}.var({k})")),
    (0.5, template("pt.sqr({0})")),
    (0.5, template("abs({0})")),
    (0.5, template("({0} * {0})")),
    (0.5, template("({0} ** 2)")),
    (0.5, template("({0} ** 1)")),
    (0.5, template("pt.exp({0})")),
    (0.5, template("pt.tanh({0})")),
    (0.5, template('{0}.astype("int64")')),
    (0.5, template('{0}.astype("float32")')),
    (0.5, template('({0} > 0).astype("float64")')),
    (0.5, template("({0} // 0.5)")),
    (0.5, template("({0} % 0.5)")),
    (0.5, template("pt.floor({0})")),
    (0.5, template("pt.round({0})")),
    (0.5, template("pt.clip({0}, -0.5, 0.5)")),
    (0.5, template("(1.0 / {0})")),
    (0.5, template("pt.outer({0}, {0}).sum(0)")),
    (0.5, template("({0} + pt.random.normal(size=(2,))[0])")),
    (0.5, template("pt.zeros_like({0})")),
    (0.5, template("({0} * ({0} > 0))")),
    (0.5, template("({0} * {0}.size)")),
]

POWERS = [
    *[(weight / 2, operation) for weight, operation in STRUCTURE],
    (1, _join),
    (3, _with_constant("({0} * {1})", "({1} * {0})")),
    (1, _with_constant("({0} / {1})")),
    (0.7, _with_constant("({1} / {0})")),
    (0.7, template("(1 / {0})")),
    (0.7, template("pt.reciprocal({0})")),
    (0.7, template("pt.sqrt({0})")),
    (0.7, template("pt.sqr({0})")),
    (0.7, template("({0} ** 2)")),
    (0.7, template("({0} ** -0.5)")),
    (0.3, template("({0} ** 0.5)")),
    (0.2, template("abs({0})")),
    (0.2, template('{0}.astype("float64")')),
]

POWER_NEIGHBOURS = [
    (1, _set_part),
    (1, _choose),
    (1, template('pt.cast({0}, "int64")')),
    (0.7, template('pt.cast({0}, "int8")')),
    (1, template('{0}.astype("float32")')),
    (1, template("({0} * {0})")),
    (0.5, template("({0} + 1.0)")),
    (0.5, template("pt.ceil({0})")),
    (0.5, template("pt.maximum({0}, 0.2)")),
    (0.5, template("pt.clip({0}, 0.2, 3.0)")),
    (0.5, template("pt.exp({0})")),
    (0.5, template("pt.exp(pt.log({0}))")),
    (0.5, template("(1 + {0} // 1)")),
    (0.5, _on_array("pt.cumsum({0}, axis={k})")),
    (0.5, _on_array("pt.repeat({0}, 2, axis={k})")),
    (0.5, _on_array("{0}.sum({k})")),
    (0.5, _on_array("pt.max({0}, axis={k})")),
    (0.5, _on_array("pt.prod({0}, axis={k})")),
    (0.5, _on_array("pt.sort({0}, axis={k})")),
    (0.5, _on_array("pm.math.softmax({0}, axis={k})")),
    (0.5, _on_array("({0} / {0}.sum({k}, keepdims=True))")),
    (0.5, _on_array("({0} * {0}[0])")),
    (0.5, template("pt.sign({0})")),
    (0.5, template("(-(-{0}))")),
    (0.5, _matrix_product),
    (0.5, template("({0} * pt.exp(pt.random.normal(size=(2,))[0]))")),
]


def _with_numbers(*texts: str):
    """An operation with up to two random numbers, written ``{a}`` and ``{b}``."""

    def operation(grower, e, shape):
        text = grower.one(*texts)
        for place in ("{a}", "{b}"):
            number = grower.rng.normal()
            text = text.replace(place, grower.one(f"{number:.2f}", f"{number:.0f}"))
        return Expression(text, (e,))

    return operation


KINKS = [
    (2, _with_numbers("pt.maximum({0}, {a})", "pt.minimum({a}, {0})", "pm.math.maximum({a}, {0})")),
    (1, _with_numbers("pt.maximum(0, {0})", "({0} * ({0} > 0))", "(({0} >= {a}) * {0})")),
    (1, _with_numbers("abs({0})", "pt.sign({0})", "pt.sign({0} - {a})")),
    (2, _with_numbers("pt.clip({0}, {a}, {b})", "{0}.clip({a}, {b})", "pt.clip({0}, -1, 1)")),
    (1, _with_numbers("pt.switch({0} > {a}, {0}, {b} * {0})", "pt.where({0} < {a}, {b}, {0})")),
    (1, _with_numbers("pt.switch(pt.le({0}, {a}), 0.3 * {0}, {0} + {b})")),
    (1, _with_numbers("({0} > {a})", "pt.lt({0}, {a})", "1.0 * ({0} <= {a})")),
    (1, _with_numbers('({0} > {a}).astype("float64")', "({0} > {a}) * {b} + {0}")),
    (1, _with_numbers("(pt.maximum({0}, {a}) - pt.minimum({0}, {b}))", "({0} + abs({0} - {a}))")),
    (2, _with_numbers("({a} * {0})", "({0} + {a})", "({a} - {0})", "({0} / {a})", "(-{0})")),
    (0.5, _with_constant("({0} + {1})", "({1} - {0})")),
    (0.5, _new_axis),
    (0.5, _squeeze),
    (0.5, _name),
]

KINK_NEIGHBOURS = [
    (0.5, _with_constant("({0} * {1})", "({0} > {1})", "pt.maximum({0}, {1})")),
    (0.5, _with_constant("pt.clip({0}, {1}, 1.0)", "pt.switch({1} > 0, {0}, 0.0)")),
    (0.5, _with_numbers("pt.switch({0}, {a}, {b})", "pt.switch({0} > {a}, u, {0})")),
    (
        0.5,
        _with_numbers("pt.invert({0} > {a})", "pt.eq({0} > {a}, True)", "pt.neq({0} > 0, {0} > 1)"),
    ),
    (
        0.5,
        _with_numbers("({0} > {a}) & ({0} > {b})", "({0} > {a}) | ({0} < {b})", "pt.eq({0}, {a})"),
    ),
    (0.5, _with_numbers("pt.sqr({0})", "({0} * {0})", "pt.exp({0})", "pt.tanh({0})")),
    (0.5, _with_numbers("pt.floor({0})", "({0} // {a})", "({0} % 1)", "pt.round({0})")),
    (0.5, _with_numbers('{0}.astype("int64")', '{0}.astype("bool")', '{0}.astype("float32")')),
    (
        0.5,
        _with_numbers('({0} > {a}).astype("int8") * 3', '(5 * ({0} > {b})).astype("uint8")'),
    ),
    (0.5, _with_numbers("({0} ** 2)", "({0} ** 1)", "pt.sqrt(abs({0}))", "(1 / {0})")),
    (0.5, _on_array("pt.maximum({0}, {0}.mean({k}, keepdims=True))")),
    (0.5, _on_array("pt.cumsum({0}, axis={k})")),
    (0.5, _on_array("pt.flip({0}, axis={k})")),
    (0.5, _on_array("pm.math.softmax({0}, axis={k})")),
    (0.5, _on_array("{0}.max({k})")),
    (0.5, _index_range),
    (0.5, _index_number),
    (0.5, _index_vector),
    (0.5, _transpose),
    (0.5, _reshape),
    (0.5, _broadcast),
    (0.5, _join),
    (0.5, _set_part),
]

DECISIONS = [
    (4, _with_numbers("({0} > {a})", "pt.lt({0}, {a})", "pt.ge({a}, {0})", "({0} > 0) * 1.0")),
    (2, _with_numbers("pt.switch({0} > {a}, 1.0, 0.0)", "pt.where({0} < {a}, 1, 0)")),
    (
        1,
        _with_numbers("(pt.sign({0}) + 1) / 2", "1 - ({0} > {a})", "({0} > {a}).astype('float32')"),
    ),
    (1, _with_constant("({0} > {1})", "pt.switch({0} < {1}, 1.0, 0.0)")),
    (1, _with_numbers("(0.2 + 0.5 * ({0} > {a}))", "pt.clip({0}, 0, 1)", "pt.sigmoid({0})")),
    (1, _with_numbers("({0} > -1) * ({0} < 1)", "pt.invert({0} > {a})", "pt.eq({0} > {a}, True)")),
]

"""Random models for the readers: programs of a few lines, checked and made small where they fail.

A case is the text of a model: a variable, an expression of it that is grown operation by operation
from tables of what a user may write, and a child that sees the expression. The tables hold what
the readers know and its neighbours that they do not, so that some cases are declined; each one
that is accepted is checked against the model's own log density, as ``verify`` does.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.transforms import LogTransform
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.random.op import RandomVariable

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.search import children
from pymc_nnsteps.laws.piecewise import LargestUtility, UtilityBehindThreshold
from pymc_nnsteps.laws.recognition import find_conditionals, match
from pymc_nnsteps.laws.verification import compare
from pymc_nnsteps.steps.networks import needs_gibbs
from tests.laws.graphs import logp_of, point_of, shapes_of
from tests.laws.programs import (
    DECISIONS,
    KINK_NEIGHBOURS,
    KINKS,
    LINEAR,
    LINEAR_NEIGHBOURS,
    MISFITS,
    POWER_NEIGHBOURS,
    POWERS,
    STRUCTURE,
    Expression,
    Grower,
    bits,
    built,
    literal,
    shape_of,
    template,
)


@dataclass(frozen=True)
class Child:
    """A child of an expression; ``text(expression, shape, rng)`` writes its line."""

    expression: Expression
    text: Callable[[str, tuple[int, ...], np.random.Generator], str]
    seed: int


@dataclass(frozen=True)
class Case:
    """A model: lines that declare variables, and children of expressions of them.

    Log densities are compared to ``rtol``.
    """

    declarations: tuple[str, ...]
    children: tuple[Child, ...]
    rtol: float = 1e-7

    @cached_property
    def source(self) -> str:
        """The program."""
        lines = ["with pm.Model() as model:", *self.declarations]
        for prefix, child in zip("abc", self.children, strict=False):
            name = child.expression.write(lines, prefix)
            shape = shape_of(built(lines)[name])
            lines.append(child.text(name, shape, np.random.default_rng(child.seed)))
        return "\n    ".join(line for line in lines if self._is_used(line, lines))

    def _is_used(self, line: str, lines: list[str]) -> bool:
        name = line.split(" = ")[0]
        others = " ".join(other for other in lines if other is not line)
        return line not in self.declarations or re.search(rf"\b{name}\b", others) is not None

    def smaller(self) -> Iterator["Case"]:
        """The same with one child or operation left out."""
        for i, child in enumerate(self.children):
            before, after = self.children[:i], self.children[i + 1 :]
            if before or after:
                yield replace(self, children=(*before, *after))
            for other in child.expression.smaller():
                yield replace(self, children=(*before, replace(child, expression=other), *after))


def _random_shape(rng: np.random.Generator, most: int = 3) -> tuple[int, ...]:
    return tuple(
        int(n)
        for n in rng.choice([1, 2, 3, 4], p=[0.15, 0.3, 0.35, 0.2], size=rng.integers(most + 1))
    )


def _spread(rng: np.random.Generator, shape: tuple[int, ...]) -> str:
    """Text of a positive number or array that broadcasts to a shape."""
    kept = tuple(n if rng.random() < 0.5 else 1 for n in shape)
    return literal(rng, kept[rng.integers(len(kept) + 1) :], positive=True)


def _declared(rng: np.random.Generator, name: str, prior: str, shape: tuple[int, ...]) -> str:
    """A variable whose lengths are in its type, in one of its data, or nowhere in particular."""
    if shape and rng.random() < 0.25:
        lengths = f'pm.Data("like_{name}", np.zeros({shape})).shape'
        return f"{name} = pm.{prior[:-1]}, shape={lengths})".replace("NAME", name)
    return f"{name} = pm.{prior[:-1]}, shape={shape})".replace("NAME", name)


def _deviation(rng: np.random.Generator, shape: tuple[int, ...]) -> str:
    """Text of a standard deviation, or of a precision, some of them variables."""
    spread = _spread(rng, shape)
    texts = [spread, spread, spread, f"tau={spread}", f"tau=s * {spread}"]
    texts += [f"{spread} / pt.sqrt(s)", f"s * {spread}"]
    return texts[rng.integers(len(texts))]


def _normal_child(name: str, *, logistic: float = 0.15):
    def text(expression, shape, rng):
        stated = _deviation(rng, shape)
        kind = rng.random()
        if kind < 0.15 and 0 not in shape:
            bounds = "lambda *args: (args[-2] - 9.0, None)"
            transform = f", transform=pm.distributions.transforms.Interval(bounds_fn={bounds})"
            ending = transform if rng.random() < 0.2 else ""
            return f'{name} = pm.Normal("{name}", {expression}, {stated}{ending})'
        if kind > 1 - logistic:
            seen = bits(rng, shape)
            return f'{name} = pm.Bernoulli("{name}", logit_p={expression}, observed={seen})'
        observed = literal(rng, _observed_shape(rng, shape))
        return f'{name} = pm.Normal("{name}", {expression}, {stated}, observed={observed})'

    return text


def _observed_shape(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an expression, or one that it broadcasts to or does not fit."""
    if rng.random() < 0.9:
        return shape
    others = [(2, *shape), (1, *shape), (*shape, 1), shape[:-1], shape[1:]]
    others.append(tuple(3 if n == 1 else n for n in shape))
    return others[rng.integers(len(others))]


def affine_case(rng: np.random.Generator) -> Case:
    """A Normal variable in the means and logits of one or two children."""
    shape = _random_shape(rng)
    declarations = _latent(rng, shape)
    if rng.random() < 0.3:
        other = shape[rng.integers(len(shape) + 1) :]
        declarations.append(_declared(rng, "w", 'Normal("NAME", 0.2, 1.1)', other))
    return Case(
        tuple(declarations), _children(rng, declarations, LINEAR, LINEAR_NEIGHBOURS, _normal_child)
    )


def _children(rng, declarations, known, neighbours, child, **options):
    grower = Grower(rng, declarations, **options)
    children = []
    for name in ("y", "t")[: 1 + (rng.random() < 0.2)]:
        operations = [*known, *neighbours] if rng.random() < 0.25 else known
        expression = grower.grow(Expression("v"), operations, rng.integers(1, 7))
        children.append(Child(expression, child(name), int(rng.integers(10**9))))
    return tuple(children)


def _scaled_child(name: str):
    def text(expression, shape, rng):
        mean = literal(rng, ())
        kinds = [
            (f'Normal("{name}", {mean}, {{0}}', False),
            (f'Normal("{name}", {mean}, tau={{0}}', False),
            (f'Normal("{name}", {mean}, 1 / pt.sqrt({{0}})', False),
            (f'Normal("{name}", {mean}, pt.sqrt({{0}})', False),
            (f'HalfNormal("{name}", pt.sqrt({{0}})', True),
            (f'Laplace("{name}", {mean}, {{0}}', False),
            (f'StudentT("{name}", nu=4, mu={mean}, lam={{0}}', False),
            (f'Gamma("{name}", 1.5, {{0}}', True),
            (f'Gamma("{name}", 1.5, 1 / ({{0}})', True),
            (f'Exponential("{name}", {{0}}', True),
            (f'InverseGamma("{name}", 2.5, {{0}}', True),
            (f'Gumbel("{name}", {mean}, {{0}}', False),
        ]
        weights = np.array([1, 4, 4, 4, 1, 1, 1, 1, 1, 1, 1, 0.3])
        kind, positive = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
        seen = literal(rng, _observed_shape(rng, shape), positive=positive)
        end = ")" if rng.random() < 0.2 and 0 not in shape else f", observed={seen})"
        return f"{name} = pm.{kind.format(expression)}{end}"

    return text


def scale_case(rng: np.random.Generator) -> Case:
    """A positive variable in the scales of one or two children."""
    shape = _random_shape(rng)
    prior = [
        'Gamma("NAME", 2, 1.5)',
        'InverseGamma("NAME", 2.5, 1.5)',
        'Exponential("NAME", 0.7)',
        'Gamma("NAME", mu=2, sigma=0.7)',
    ][rng.integers(4)]
    declarations = ['u = pm.Gamma("u", 3, 2)', _declared(rng, "v", prior, shape)]
    children = _children(rng, declarations, POWERS, POWER_NEIGHBOURS, _scaled_child, positive=True)
    return Case(tuple(declarations), children)


def gates_case(rng: np.random.Generator) -> Case:
    """A Bernoulli variable in the means and logits of one or two children."""
    shape = _random_shape(rng, 2)
    prior = ['Bernoulli("NAME", 0.3)', 'Bernoulli("NAME", logit_p=0.4)'][rng.integers(2)]
    declarations = [*OTHERS, _declared(rng, "v", prior, shape)]
    children = _children(rng, declarations, LINEAR, LINEAR_NEIGHBOURS, _normal_child)
    return Case(tuple(declarations), children)


OTHERS = ('u = pm.Normal("u", 0.4, 1.3)', 's = pm.Gamma("s", 3, 2)')
"""What else a case may use."""


def _latent(rng: np.random.Generator, shape: tuple[int, ...]) -> list[str]:
    mean = literal(rng, shape[rng.integers(len(shape) + 1) :])
    if rng.random() < 0.2:
        mean = f"u * {mean}"
    prior = f'Normal("NAME", {mean}, {_deviation(rng, shape)})'
    return [*OTHERS, _declared(rng, "v", prior, shape)]


def piecewise_case(rng: np.random.Generator) -> Case:
    """A pre-activation under a function with kinks and jumps."""
    declarations = _latent(rng, _random_shape(rng, 2))

    def child(name):
        return _normal_child(name, logistic=0.02)

    children = _children(rng, declarations, KINKS, KINK_NEIGHBOURS, child)
    return Case(tuple(declarations), children)


def threshold_case(rng: np.random.Generator) -> Case:
    """Utilities whose side of a threshold is seen."""
    declarations = _latent(rng, _random_shape(rng, 2))
    grower = Grower(rng, declarations)
    operations = KINKS + KINK_NEIGHBOURS if rng.random() < 0.25 else KINKS
    expression = grower.grow(Expression("v"), operations, rng.integers(3))
    expression = grower.grow(expression, DECISIONS, 1)
    child = Child(expression, _decided("Bernoulli"), int(rng.integers(10**9)))
    return Case(tuple(declarations), (child,))


def _decided(kind: str):
    def text(expression, shape, rng):
        seen = shape if kind == "Bernoulli" else shape[:-1]
        seen = _observed_shape(rng, seen)
        classes = 2 if kind == "Bernoulli" else max(shape[-1:], default=1)
        labels = f"np.array({rng.integers(max(classes, 1), size=seen).tolist()}, dtype=int)"
        observed = "" if rng.random() < 0.1 else f", observed={labels}.reshape({seen})"
        return f'y = pm.{kind}("y", p={expression}{observed})'

    return text


def largest_case(rng: np.random.Generator) -> Case:
    """Utilities of which the largest is seen."""
    shape = [(3,), (4, 3), (1, 3), (2, 4, 3), (2, 2), (3, 1), (1,)][rng.integers(7)]
    declarations = _latent(rng, shape)
    grower = Grower(rng, declarations)
    operations = KINKS + KINK_NEIGHBOURS + STRUCTURE
    changed = grower.grow(Expression("v"), operations, int(rng.random() < 0.2))
    axis, n = grower.one(-1, -1, -1, -1, 0), grower.one(*[shape[-1]] * 5, 2)
    classes = grower.one("pt.arange({n})", "pt.arange({0}.shape[-1])", "np.arange({n})")
    one_hot = grower.one(
        f"pt.eq(pt.argmax({{0}}, axis={axis}, keepdims=True), {classes})",
        f"pt.eq(pt.argmax({{0}}, axis={axis})[..., None], {classes})",
        f"pt.switch(pt.eq(pt.argmax({{0}}, axis={axis}, keepdims=True), {classes}), 1.0, 0.0)",
        f"pt.eq({{0}}, pt.max({{0}}, axis={axis}, keepdims=True))",
        f"pt.eq({{0}}, pt.max({{0}}, axis={axis}, keepdims=True)) * 1.0",
    )
    expression = grower.grow(changed, [(1, template(one_hot.replace("{n}", str(n))))], 1)
    if rng.random() < 0.1:
        expression = grower.grow(expression, STRUCTURE, 1)
    child = Child(expression, _decided("Categorical"), int(rng.integers(10**9)))
    return Case(tuple(declarations), (child,))


def extreme_case(rng: np.random.Generator) -> Case:
    """Regressions with collinear columns, little noise and wide priors."""
    sd, noise = [(1.0, 1e-8), (1e5, 1.0), (1e3, 1e-5), (1.0, 1e-3), (1e-4, 1e4)][rng.integers(5)]
    n = rng.integers(2, 7)
    columns = rng.normal(size=(n, rng.integers(1, 4)))
    kind = rng.integers(4)
    if kind == 0:
        columns = np.hstack([columns, columns[:, :1]])
    elif kind == 1:
        columns = np.hstack([np.ones((n, 1)), np.eye(3)[np.arange(n) % 3]])
    elif kind == 2:
        columns = np.hstack([columns, columns.sum(1, keepdims=True)])
    design = f"np.array({columns.round(2).tolist()})"
    width = columns.shape[1]
    many = rng.random() < 0.4
    shape = (2, width) if many else (width,)
    declarations = [f'v = pm.Normal("v", 0.0, {sd}, shape={shape})']
    expression = Expression("pt.dot({1}, {0}.T)", (Expression("v"), Expression(design)))
    if rng.random() < 0.3:
        declarations.append(f'w = pm.Normal("w", 0.0, {sd}, shape={shape[:-1]})')
        expression = Expression("({0} + w)", (expression,))
    truth = literal(rng, shape[::-1])

    def child(text, shape, rng):
        observed = f"np.dot({design}, {truth}) + {noise} * {literal(rng, shape)}"
        spread = f"{noise} * {_spread(rng, shape)}" if rng.random() < 0.4 else f"{noise}"
        return f'y = pm.Normal("y", {text}, {spread}, observed={observed})'

    children = (Child(expression, child, int(rng.integers(10**9))),)
    return Case(tuple(declarations), children, rtol=1e-3)


FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    "affine": affine_case,
    "scale": scale_case,
    "gates": gates_case,
    "piecewise": piecewise_case,
    "threshold": threshold_case,
    "largest": largest_case,
    "extreme": extreme_case,
}


def random_case(family: str, seed: int) -> Case:
    """A case of a family whose program runs."""
    rng = np.random.default_rng([seed, *family.encode()])
    while True:
        case = FAMILIES[family](rng)
        try:
            built([case.source])
        except MISFITS:
            continue
        return case


# --- checking ------------------------------------------------------------------------------------


def check(source: str, *, rtol: float = 1e-7, seed: int = 0) -> set[str]:
    """Check each conditional that is found in a program's model; the names of what they draw.

    Programs of no model (arrays that do not fit, no finite density) pass.

    Raises
    ------
    Exception
        Whatever a reader raises that is not NotConjugate, and AssertionError for a wrong law.
    """
    try:
        model = built([source])["model"]
    except MISFITS:
        return set()
    found = []
    for rv in model.free_RVs:
        needs_gibbs(model, rv)
        try:
            match(model, rv)
        except nns.laws.NotConjugate:
            continue
        found.append(rv)
    rng = np.random.default_rng(seed)
    try:
        point = _start(model, rng)
    except MISFITS:
        return set()
    if not _is_sound(model, point):
        return set()
    nns.explain(model)
    conditionals = find_conditionals(model, found)
    if not conditionals:
        return set()
    _assert_given_the_model_alone(model)
    rtol = max(rtol, 1e-4 if "float32" in source else 0.0)
    decisions = [c for c in conditionals if isinstance(c, UtilityBehindThreshold | LargestUtility)]
    for conditional in decisions:
        [z] = conditional.draws
        for child in children(model, z):
            assert child in model.observed_RVs, f"{z.name} and its free child {child} stick"
        _, point = compare(model, conditional, point, rng=rng, rtol=rtol)
    if np.isfinite(logp_of(model)(point)):
        for conditional in conditionals:
            if conditional not in decisions:
                compare(model, conditional, point, rng=rng, rtol=rtol)
    return {rv.name for conditional in conditionals for rv in conditional.draws}


def _assert_given_the_model_alone(model: pm.Model) -> None:
    known = set(model.basic_RVs)
    for rv in model.basic_RVs:
        for variable in ancestors(rv.owner.inputs, known):
            op = None if variable in known or variable.owner is None else variable.owner.op
            assert not isinstance(op, RandomVariable | SymbolicRandomVariable), (
                f"{rv.name} depends on random numbers that are no variable of the model"
            )


def _is_sound(model: pm.Model, point: dict[str, np.ndarray]) -> bool:
    """Whether a model has a log density, decisions aside: arrays may not fit, scales be zero."""
    smooth = [
        rv for rv in model.basic_RVs if not isinstance(rv.owner.op, BernoulliRV | CategoricalRV)
    ]
    try:
        with np.errstate(all="ignore"):
            logp = logp_of(model)(point)
            if logp == -np.inf and smooth != model.basic_RVs:
                logp = model.compile_logp(vars=smooth, mode=ONCE)(point)
    except MISFITS:
        return False
    return bool(np.isfinite(logp))


def _start(model: pm.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A random point, with positive variables of the order of five."""
    shapes = shapes_of(model)
    given = {
        rv.name: rng.integers(2, size=shapes[rv]) for rv in model.free_RVs if rv.dtype == "int64"
    }
    for rv in model.free_RVs:
        if isinstance(model.rvs_to_transforms[rv], LogTransform):
            name = model.rvs_to_values[rv].name
            given[name] = rng.normal(1.5, 0.7, size=shapes[rv])
    return point_of(model, rng, **given)


@dataclass(frozen=True)
class Failure:
    """A program that a reader gets wrong, and what is wrong."""

    source: str
    error: BaseException

    @property
    def kind(self) -> str:
        """The beginning of the message: the numbers come later."""
        return f"{type(self.error).__name__}: {str(self.error)[:16]}"

    def __str__(self) -> str:
        return f"{self.source}\n-> {type(self.error).__name__}: {str(self.error)[:400]}"


def failure_of(case: Case) -> Failure | None:
    """What is wrong with a case, if anything."""
    source = case.source
    try:
        check(source, rtol=case.rtol)
    except Exception as error:  # anything but NotConjugate is a finding
        return Failure(source, error)
    return None


def minimal(case: Case, failure: Failure) -> Failure:
    """The smallest program with the same kind of error that is found by leaving things out."""
    smaller = case.smaller()
    while (candidate := next(smaller, None)) is not None:
        try:
            found = failure_of(candidate)
        except MISFITS:
            continue
        if found is not None and found.kind == failure.kind:
            failure, smaller = found, candidate.smaller()
    return failure

"""The law of a variable is what PyMC computes for it, not what its class is called."""

import ast
import importlib
from functools import wraps
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.transforms import Interval, Ordered, circular, log, log_exp_m1, logodds
from pymc.logprob.abstract import _logprob
from pymc.logprob.transforms import LogTransform
from pytensor.tensor.random.basic import BernoulliRV, NormalRV, UniformRV
from pytensor.tensor.random.op import RandomVariable

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.known import (
    LINE,
    POSITIVE,
    UNIT,
    Unknown,
    distribution,
    has_law,
    has_prior,
    is_onto,
    kind_of,
)
from tests.graphs.foreign import Inheriting, NoisyBernoulli, Tempered

PACKAGE = Path(nns.__file__).parent


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: pm.Normal.dist(), "NormalRV"),
        (lambda: pm.Bernoulli.dist(0.3), "BernoulliRV"),
        (lambda: pm.GaussianRandomWalk.dist(init_dist=pm.Normal.dist(), steps=3), "RandomWalkRV"),
        (
            lambda: nns.distributions.GeneralizedInverseGaussian.dist(1, 1, 1),
            "GeneralizedInverseGaussianRV",
        ),
        (lambda: Tempered.dist(), "Unknown"),
        (lambda: NoisyBernoulli.dist(0.3), "Unknown"),
        (lambda: Inheriting.dist(), "Unknown"),
        (lambda: pt.exp(pm.Normal.dist()), "Unknown"),
        (lambda: pm.Censored.dist(pm.Normal.dist(), 0, 1), "Unknown"),
    ],
)
def test_kinds(made, name):
    assert kind_of(made()).__name__ == name


def odd(op, values, *parameters, **kwargs):
    return -abs(values[0])


@wraps(pm.Normal.logp)
def wrapping(value, mu, sigma):
    return -abs(value)


LOGPS = {
    "of a class": lambda value, mu, sigma: -abs(value),
    "another distribution's": pm.Laplace.logp,
    "wrapping": wrapping,
}


@pytest.mark.parametrize("how", ["registered", *LOGPS])
def test_a_density_that_is_registered_anew(how):
    """A density is replaced by its function or in a subclass, whatever its method calls itself."""
    rv, density = pm.Normal.dist(), _logprob.registry[NormalRV]
    try:
        if how == "registered":
            _logprob.register(NormalRV)(odd)
        else:
            type("Odd", (pm.Continuous,), {"rv_op": pm.Normal.rv_op, "logp": LOGPS[how]})
        assert kind_of(rv) is Unknown
        with pm.Model() as model:
            mu = pm.Normal("mu")
            pm.Normal("y", mu, observed=[1.0])
        with pytest.raises(
            nns.laws.NotConjugate, match="with a density that is not PyMC's, not Normal"
        ):
            nns.Gibbs([mu], model=model)
    finally:
        _logprob.register(NormalRV)(density)
    assert kind_of(rv) is NormalRV


class Stretched(LogTransform):
    """No log transform any more."""

    def backward(self, value, *inputs):
        return 1 + pt.exp(value)


def uniform(**options):
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        pm.Uniform("s", 0, options.pop("upper", lambda a: 5.0)(a), **options)
    return model, model["s"], tuple(model["s"].owner.inputs[2:])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"upper": lambda a: a}, True),
        ({"upper": lambda a: a, "default_transform": Interval(0, 5)}, False),
        ({"default_transform": Interval(0, 5)}, True),
        ({"default_transform": Interval(0, 1)}, False),
        ({"default_transform": Interval(0, None)}, False),
        ({"default_transform": None}, True),
        ({"default_transform": log}, False),
        ({"transform": logodds}, False),
    ],
)
def test_supports_of_uniform_variables(options, expected):
    """``transform`` comes after the default one, ``default_transform`` takes its place."""
    model, s, support = uniform(**options)
    assert is_onto(model, s, support) == expected
    assert has_prior(model, s, UniformRV, support=support) == expected


@pytest.mark.parametrize(
    ("transform", "support", "expected"),
    [
        (log, POSITIVE, True),
        (log_exp_m1, POSITIVE, True),
        (Interval(0, None), POSITIVE, True),
        (Interval(0, np.inf), POSITIVE, True),
        (Interval(1, None), POSITIVE, False),
        (Interval(bounds_fn=lambda rng, size, mu, sigma: (mu, None)), POSITIVE, True),
        (Interval(bounds_fn=lambda rng, size, mu, sigma: (sigma, None)), POSITIVE, False),
        (Stretched(), POSITIVE, False),
        (logodds, UNIT, True),
        (log, LINE, False),
        (circular, LINE, False),
        (Ordered(), LINE, False),
    ],
)
def test_images_of_transforms(transform, support, expected):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2, default_transform=transform)
    assert is_onto(model, x, support) == expected


def test_what_bears_on_a_law():
    with pm.Model() as model:
        free = pm.Normal("free")
        weighed = pm.Normal("weighed")
        child = pm.Normal("child", weighed)
        pm.Potential("weight", -(child**2) - weighed**4)
        seen = pm.Normal("seen", free, transform=log, observed=[1.0])
    assert has_law(model, free, NormalRV)
    assert has_prior(model, weighed, NormalRV)
    assert not has_law(model, weighed, NormalRV)
    assert not has_law(model, free, BernoulliRV)
    assert not has_prior(model, seen, NormalRV)


OF_GRAPHS = ("random", "compile", "graphs/known.py", "laws/densities.py")
OF_DRAWS = ("laws/verification.py", "graphs", *OF_GRAPHS)
"""What looks at the operations of draws and graphs, not at the laws of a model."""


def test_no_reader_asks_an_operation_for_its_class():
    """Only ``known`` does. Few ask for a kind without what bears on it.

    In laws and networks the density of a child given its parents is all that matters, and the
    information of a response is a metric, which changes no law.
    """
    found = []
    for file in PACKAGE.rglob("*.py"):
        part = file.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if _matches_a_law(node, part) or _asks_for_less(node, part):
                found.append(f"{part}:{node.lineno}")
    assert found == []


def _asks_for_less(node, part):
    """Whether it imports what a reader of children alone may use."""
    names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
    own = part.startswith(("laws", "graphs", "network", "steps/information.py"))
    return not own and not names.isdisjoint({"is_a", "kind_of", "_logprob"})


def _matches_a_law(node, part):
    if part.startswith(OF_GRAPHS):
        return False
    match node:
        case ast.Call(func=ast.Name("type"), args=[ast.Attribute(attr="op")]):
            return not part.startswith(OF_DRAWS)
        case ast.Call(func=ast.Name("isinstance"), args=[_, classes]):
            return not part.startswith(OF_DRAWS) and _has_laws(classes, part)
        case ast.MatchClass(cls=classes):
            return _has_laws(classes, part)
    return False


def _has_laws(expression, part):
    """Whether an expression for classes has one of a distribution among them."""
    module = importlib.import_module(
        ".".join(["pymc_nnsteps", *Path(part).with_suffix("").parts]).removesuffix(".__init__")
    )
    names = [each.id for each in ast.walk(expression) if isinstance(each, ast.Name)]
    values = [getattr(module, name, None) for name in names]
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return any(
        isinstance(each, type)
        and issubclass(each, RandomVariable | SymbolicRandomVariable)
        and each not in (RandomVariable, SymbolicRandomVariable)
        for each in flat
    )


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: pm.ZeroInflatedPoisson.dist(0.7, np.ones(3)), "ZeroInflatedPoisson"),
        (lambda: pm.ZeroInflatedNegativeBinomial.dist(0.5, 1, 2), "ZeroInflatedNegativeBinomial"),
        (lambda: pm.HurdlePoisson.dist(0.7, 2), "HurdlePoisson"),
        (lambda: pm.HurdleGamma.dist(0.7, 2, 3.0), "HurdleGamma"),
        (lambda: pm.NormalMixture.dist([0.3, 0.7], [1.0, 2.0], 1), "NormalMixture"),
        (
            lambda: pm.Mixture.dist([0.3, 0.7], [pm.DiracDelta.dist(1), pm.Poisson.dist(3)]),
            "Mixture of DiracDelta and Poisson",
        ),
    ],
)
def test_mixtures_are_called_as_they_were_written(made, name):
    assert distribution(made()) == name

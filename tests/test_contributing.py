"""CONTRIBUTING.md is true: its recipes run, and what it names is there."""

import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.laws import conditional, densities
from pymc_nnsteps.models.parts import likelihoods
from pymc_nnsteps.moves import plan
from pymc_nnsteps.steps.compiled import Compiled
from tests.pages import run, sections
from tests.zoo import regression

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text(encoding="utf-8")
LAWS = tuple(conditional._TABLE)
MOVES = dict(plan._TABLE)


def test_the_recipes_run_one_after_another(capsys, monkeypatch):
    monkeypatch.setattr(conditional, "_TABLE", [*LAWS])
    monkeypatch.setattr(plan, "_TABLE", {**MOVES})
    monkeypatch.setattr(densities, "DENSITIES", dict(densities.DENSITIES))
    monkeypatch.setattr(likelihoods, "LIKELIHOODS", dict(likelihoods.LIKELIHOODS))
    found = sections(PAGE)
    recipes = ["a law", "a joint move", "a step", "a builder", "a likelihood"]
    assert list(found) == [f"Recipe: {recipe}" for recipe in recipes]
    names = {}
    for blocks in found.values():
        run(PAGE, blocks, capsys, names)


def test_the_recipe_of_a_law_sees_a_planted_error(monkeypatch):
    """A factor of two, a prior that is left out, and a sign, by the recipe's own check."""
    monkeypatch.setattr(densities, "DENSITIES", dict(densities.DENSITIES))
    code = "\n".join(block.code for block in sections(PAGE)["Recipe: a law"][:3])
    for right, wrong in [
        ("C = sum(k * pt.cos(z)", "C = sum(2 * k * pt.cos(z)"),
        ("seen = [parameters(rv)]", "seen = []"),
        ("k * pt.sin(z)", "-k * pt.sin(z)"),
    ]:
        assert right in code
        monkeypatch.setattr(conditional, "_TABLE", [*LAWS])
        with pytest.raises(AssertionError, match="mu"):
            exec(code.replace(right, wrong), {"__name__": "recipe"})


def test_the_recipe_of_a_move_sees_a_planted_error(monkeypatch):
    """A factor, by the recipe's own check."""
    monkeypatch.setattr(densities, "DENSITIES", dict(densities.DENSITIES))
    law, move = (sections(PAGE)[f"Recipe: {recipe}"] for recipe in ("a law", "a joint move"))
    code = "\n".join(block.code for block in (law[0], *move)).replace("print(", "str(")
    for right, wrong in [("1 / s_0**2 + ", ""), ("z / pt.sqrt(p)", "2 * z / pt.sqrt(p)")]:
        assert right in code
        monkeypatch.setattr(conditional, "_TABLE", [*LAWS])
        monkeypatch.setattr(plan, "_TABLE", {**MOVES})
        with pytest.raises(AssertionError, match="mu"):
            exec(code.replace(right, wrong), {"__name__": "recipe", "nns": nns})


def test_what_it_names_is_there():
    """A function that was renamed, or a file that has moved."""
    dotted = set(re.findall(r"`(pymc_nnsteps\.[\w.]+)`", TEXT))
    assert len(dotted) > 10
    for name in dotted:
        pkgutil.resolve_name(name)
    for path in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "pymc_nnsteps")), path


def test_a_draw_passes_through_three_hands(monkeypatch):
    """As the page says: the step, the sweep, the compiled function."""
    seen = []
    call = Compiled.__call__

    def watched(self, *values):
        modules = [frame.frame.f_globals["__name__"] for frame in inspect.stack()[1:]]
        seen.append([name for name in modules if name.startswith("pymc_nnsteps.")])
        return call(self, *values)

    monkeypatch.setattr(Compiled, "__call__", watched)
    model = regression()
    step = nns.Gibbs(["slopes"], model=model, compile_kwargs={"mode": "FAST_COMPILE"})
    step.setup_chain(np.random.default_rng(0), 0, 1)
    step.step(model.initial_point())
    assert seen[-1] == ["pymc_nnsteps.steps.sweep", "pymc_nnsteps.steps.gibbs"]

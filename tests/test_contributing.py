"""CONTRIBUTING.md is true: its recipes run, and what it names is there."""

import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np

import pymc_nnsteps as nns
from pymc_nnsteps.steps.compiled import Compiled
from tests.pages import run, sections
from tests.zoo import regression

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_recipes_run_one_after_another(capsys):
    found = sections(PAGE)
    assert list(found) == ["Recipe: a law", "Recipe: a step", "Recipe: a builder"]
    names = {}
    for blocks in found.values():
        run(PAGE, blocks, capsys, names)


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

"""The code of the README runs, each section by itself, and prints what the README says."""

from pathlib import Path

import pymc as pm
import pytest

from tests.pages import run, sections

README = Path(__file__).parents[1] / "README.md"
SHORT = {"draws": 20, "tune": 20, "chains": 2, "cores": 1, "progressbar": False}


SECTIONS = sections(README)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # of short chains
@pytest.mark.parametrize("section", SECTIONS)
def test_section_runs_by_itself(section, monkeypatch, capsys):
    """A name of another section, an option that is no more, a table that is not up to date."""
    sample = pm.sample
    monkeypatch.setattr(pm, "sample", lambda **options: sample(**options | SHORT))
    run(README, SECTIONS[section], capsys)


def test_all_code_is_found():
    """A block that the test of sections would pass over."""
    found = sum(map(len, SECTIONS.values()))
    assert found == README.read_text().count("```python") >= len(SECTIONS) > 5
    assert any(block.output for blocks in SECTIONS.values() for block in blocks)

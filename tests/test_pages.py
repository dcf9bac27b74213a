"""The code of the README and of the documentation runs, and prints what these show.

Each section runs by itself, and those of models and how-tos, which take a compiler long, with the
slow tests. That pages can be built, and that their links lead somewhere, is for ``make docs``.
"""

from pathlib import Path

import pymc as pm
import pytest

from tests.cases import slow
from tests.pages import run, sections

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
SHORT = {"draws": 25, "tune": 20, "chains": 2, "cores": 1, "progressbar": False}

LONG = ("docs/models", "docs/howto")
SECTIONS = {
    f"{page.relative_to(ROOT)}: {heading}": (page, blocks)
    for page in PAGES
    for heading, blocks in sections(page).items()
}


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # of short chains
@pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    "section", [slow(section) if section.startswith(LONG) else section for section in SECTIONS]
)
def test_section_runs_by_itself(section, monkeypatch, capsys, tmp_path):
    """A name of another section, an option that is no more, a table that is not up to date."""
    sample = pm.sample
    (tmp_path / "data").symlink_to(ROOT / "examples" / "notebooks" / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pm, "sample", lambda **options: sample(**options | SHORT))
    run(*SECTIONS[section], capsys)


def test_all_code_is_found():
    """A block that the test of sections would pass over."""
    found = sum(len(blocks) for _, blocks in SECTIONS.values())
    assert found == sum(page.read_text().count("```python") for page in PAGES)
    assert len(SECTIONS) > 12
    assert any(block.output for _, blocks in SECTIONS.values() for block in blocks)

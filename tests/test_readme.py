"""The code of the README runs, each section by itself, and prints what the README says."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymc as pm
import pytest

README = Path(__file__).parents[1] / "README.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
SHORT = {"draws": 20, "tune": 20, "chains": 2, "cores": 1, "progressbar": False}


@dataclass(frozen=True)
class Block:
    """Code, the number of lines before it, and what it prints if the README shows that."""

    code: str
    line: int
    output: str | None


def blocks(text: str) -> Iterator[tuple[str, Block]]:
    """Blocks of Python code, each with the heading of its section."""
    fences = [fence for fence in FENCED.finditer(text) if fence[1] in ("", "python")]
    for fence in fences:
        if fence[1] != "python":
            continue
        heading = re.findall(r"^## (.*)$", text[: fence.start()], re.MULTILINE)[-1]
        shown = FENCED.match(text, re.compile(r"\n*").match(text, fence.end()).end())
        output = shown[2] if shown and not shown[1] else None
        yield heading, Block(fence[2], text[: fence.start(2)].count("\n"), output)


SECTIONS: dict[str, list[Block]] = {}
for heading, block in blocks(README.read_text()):
    SECTIONS.setdefault(heading, []).append(block)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_runs_by_itself(section, monkeypatch, capsys):
    """A name of another section, an option that is no more, a table that is not up to date."""
    sample = pm.sample
    monkeypatch.setattr(pm, "sample", lambda **options: sample(**options | SHORT))
    names: dict[str, object] = {}
    for block in SECTIONS[section]:
        capsys.readouterr()
        exec(compile("\n" * block.line + block.code, str(README), "exec"), names)
        if block.output is not None:
            assert capsys.readouterr().out.rstrip() == block.output.rstrip()


def test_all_code_is_found():
    """A block that the test of sections would pass over."""
    found = sum(map(len, SECTIONS.values()))
    assert found == README.read_text().count("```python") >= len(SECTIONS) > 5
    assert any(block.output for blocks in SECTIONS.values() for block in blocks)

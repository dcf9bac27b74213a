"""Code in pages of Markdown: found by sections, run, and compared with the output they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCED = re.compile(r"^```([^\n`]*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Code, the number of lines before it, and what it prints if the page shows that."""

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


def sections(page: Path) -> dict[str, list[Block]]:
    """Blocks of Python code of a page by the heading above them."""
    found: dict[str, list[Block]] = {}
    for heading, block in blocks(page.read_text(encoding="utf-8")):
        found.setdefault(heading, []).append(block)
    return found


def run(page, blocks_of_section, capsys, names=None):
    """Run blocks one after another, in ``names``, and compare what they print."""
    names = {"__name__": "__main__"} if names is None else names
    for block in blocks_of_section:
        capsys.readouterr()
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
        if block.output is not None:
            assert capsys.readouterr().out.rstrip() == block.output.rstrip()

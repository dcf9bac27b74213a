"""The notebooks run from scratch, their solutions too, and what they show is stored as it was run.

Each has cells that check what its text claims, and fails with them.
"""

import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import v4

from tests.notebooks import FOLDER, normalised, notebooks, read, run, with_solutions

MAX_BYTES = 400_000
QUICK = ("gibbs_in_your_model", "has_it_arrived")

every_notebook = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
# Packages of kernels and their clients.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if path.stem in QUICK else pytest.mark.release)
        for path in notebooks()
    ],
    ids=lambda path: path.stem,
)
def test_notebook_runs(path):
    """A claim that is true no more, a name that has changed, outputs of another version."""
    stored = read(path)
    again = run(with_solutions(stored))
    shown = {cell.source: kinds(cell) for cell in again.cells if cell.cell_type == "code"}
    assert all(shown[c.source] == kinds(c) for c in stored.cells if c.cell_type == "code")


def kinds(cell):
    """What kinds of output a cell shows."""
    return [(output.output_type, sorted(output.get("data", ()))) for output in cell.outputs]


@every_notebook
def test_notebook_is_stored_as_it_was_run(path):
    """Warnings, places and times of one machine, figures that swell the repository."""
    notebook = read(path)
    assert normalised(notebook) == notebook, "run `make notebooks`"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert all(output.get("name") != "stderr" for output in outputs)
    assert "error" not in {output.output_type for output in outputs}
    assert str(FOLDER.parents[1]) not in path.read_text()
    assert path.stat().st_size < MAX_BYTES


@every_notebook
def test_notebook_is_complete(path):
    """A picture for the gallery, two exercises with solutions, checks."""
    notebook = read(path)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    tags = [tag for cell in notebook.cells for tag in cell.metadata.get("tags", ())]
    assert tags.count("thumbnail") == 1
    assert text.count("<details>") == text.count("</details>") >= 2
    assert sum("assert " in cell for cell in code) >= 2
    assert max(cell.count("\n") for cell in code) < 45, "a cell is longer than a screen"


@pytest.mark.parametrize("cell", [v4.new_code_cell, v4.new_markdown_cell])
def test_failed_checks_are_seen(cell):
    """A runner that goes on after an error, or does not look into solutions."""
    code = "assert 1 + 1 == 3"
    text = code if cell is v4.new_code_cell else f"<details>\n\n```python\n{code}\n```\n</details>"
    with pytest.raises(CellExecutionError, match="1 \\+ 1 == 3"):
        run(with_solutions(v4.new_notebook(cells=[cell(text)])))

"""Notebooks in ``examples/notebooks``: run from scratch, and stored in a form that does not change.

``python -m tests.notebooks NAME ...`` (``make notebooks`` for all) runs notebooks and stores what
they show. What depends on the machine or on the time is not stored.
"""

import re
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SOLUTION = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUIET = """\
%matplotlib inline
import logging, os, warnings
os.environ["COLUMNS"] = "80"
logging.getLogger("pymc.nnsteps").setLevel("WARNING")
warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS installation")
"""
"""Run before each notebook: its figures belong to its output whatever ``MPLBACKEND`` says, and what
PyTensor says of the machine, or this package of the time it compiles, does not."""


def notebooks() -> list[Path]:
    """All notebooks, in the order of their names."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Read a notebook in the present version of the format."""
    return nbformat.read(path, as_version=4)


def run(notebook: NotebookNode) -> NotebookNode:
    """A copy with the outputs of a fresh kernel; an error in a cell is raised."""
    quiet = v4.new_code_cell(QUIET)
    copy = v4.new_notebook(cells=[quiet, *deepcopy(notebook.cells)], metadata=METADATA)
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(copy, timeout=600, coalesce_streams=True, resources=where).execute()
    copy.cells.remove(quiet)
    return normalised(copy)


def normalised(notebook: NotebookNode) -> NotebookNode:
    """A copy without the marks of a machine or a day: times, identities, a kernel's versions."""
    copy = v4.new_notebook(cells=deepcopy(notebook.cells), metadata=METADATA)
    executed = 0
    for number, cell in enumerate(copy.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key == "tags"}
        if cell.cell_type == "code":
            executed += 1
            cell.execution_count = executed
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = executed
    return nbformat.from_dict(copy)


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """A copy in which the Python code of text, such as solutions of exercises, is run as well."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cells += [v4.new_code_cell(code) for code in SOLUTION.findall(cell.source)]
    return v4.new_notebook(cells=cells)


def store(path: Path) -> None:
    """Run a notebook and write it with its outputs."""
    nbformat.write(run(read(path)), path)


if __name__ == "__main__":
    for path in [FOLDER / f"{name}.ipynb" for name in sys.argv[1:]] or notebooks():
        print(path.name, flush=True)
        store(path)

"""How Sphinx builds these pages: ``make docs``."""

import os
import re
from base64 import b64decode
from pathlib import Path
from shutil import copy2, rmtree

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

import pymc_nnsteps
from pymc_nnsteps.laws.conditional import as_markdown

project = "pymc_nnsteps"
author = "The pymc_nnsteps contributors"
copyright = author
version = release = pymc_nnsteps.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",  # formulas without a network
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["paper/paper.bib"]
exclude_patterns = ["_build", "_laws.md", "paper"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"  # such as the time that a first compilation takes
nb_execution_excludepatterns = ["notebooks/*"]  # their outputs are stored with them

autosummary_generate = True
autodoc_typehints = "none"
# Made by scikit-learn for its estimators, with references to its own pages.
autodoc_default_options = {
    "exclude-members": "set_fit_request, set_predict_request, set_score_request"
}
add_module_names = False
napoleon_google_docstring = False
napoleon_use_rtype = False

# Links to other packages need their lists of names, which only Read the Docs fetches: pages are
# also built where there is no network.
if os.environ.get("READTHEDOCS"):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pymc": ("https://www.pymc.io/projects/docs/en/stable", None),
        "pytensor": ("https://pytensor.readthedocs.io/en/latest", None),
        "arviz": ("https://python.arviz.org/en/stable", None),
    }

# A role whose target is not on these pages is an error, but for names of other packages, whose
# lists may not be there, and for the words that tell types.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(?!pymc_nnsteps\.).*"),
    ("py:.*", r"(pymc\.|ParameterValueError$).*"),
    ("py:class", r".*RV$"),
]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_nnsteps"
html_static_path = ["_static"]
html_css_files = ["gallery.css"]
html_show_sourcelink = False
SINGLE_PAGES = (
    "index",
    "getting_started",
    "gallery",
    "notebooks/*",  # code needs the width
    "which_sampler",
    "tabular",
    "tabular_notes",
    "design",
    "exactness",
    "experiments",
    "laws",
    "benchmarks",
    "reproduced",
    "references",
    "changelog",
)
html_sidebars: dict[str, list[str]] = {page: [] for page in SINGLE_PAGES}
html_theme_options = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
}


def bring_notebooks() -> None:
    """Copy the notebooks beside the pages, and cut the gallery's pictures from them.

    Of each notebook it is the figure of the cell that is tagged so.
    """
    here = Path(__file__).parent
    copies, thumbnails = here / "notebooks", here / "_static" / "thumbnails"
    for folder in (copies, thumbnails):
        rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for path in (here.parent / "examples" / "notebooks").glob("*.ipynb"):
        copy2(path, copies)
        cells = nbformat.read(path, as_version=4).cells
        [shown] = [cell for cell in cells if "thumbnail" in cell.metadata.get("tags", ())]
        [figure] = [output.data["image/png"] for output in shown.outputs if "data" in output]
        (thumbnails / f"{path.stem}.png").write_bytes(b64decode(figure))


bring_notebooks()
(Path(__file__).parent / "_laws.md").write_text(as_markdown(), encoding="utf-8")

# Pages run in kernels, which show figures by this backend alone.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
os.environ["COLUMNS"] = "80"  # in which `explain` prints


def require_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of cells that show a figure, and have none among their outputs."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            shows = "plt.show()" in cell.astext()
            if shows and not any(cell.findall(nodes.image)):
                logging.getLogger(__name__).warning("plt.show() shows no figure", location=cell)


def require_pictures(app: Sphinx, exception: Exception | None) -> None:
    """Fail if a page refers to a picture, or to a script, that is not there."""
    if exception is not None:
        return
    out = Path(app.outdir)
    pages = [page for page in out.rglob("*.html") if not page.is_relative_to(out / "_static")]
    missing = [
        f"{page.relative_to(out)} refers to {source}"
        for page in pages
        for source in re.findall(r'<(?:img|script)\b[^>]*\bsrc="([^"?]+)', page.read_text("utf-8"))
        if ":" not in source and not (page.parent / source).exists()
    ]
    if missing:
        raise ExtensionError("Pictures are missing: " + "; ".join(missing))


def setup(app: Sphinx) -> None:
    """Look after pictures."""
    app.connect("doctree-read", require_figures)
    app.connect("build-finished", require_pictures, priority=900)

"""How Sphinx builds these pages: ``make docs``."""

import pymc_nnsteps

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
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

autosummary_generate = True
autodoc_typehints = "none"
add_module_names = False
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = "pymc_nnsteps"
html_static_path = ["_static"]
html_show_sourcelink = False
html_sidebars: dict[str, list[str]] = {
    page: []
    for page in ("index", "getting_started", "which_sampler", "design", "benchmarks", "changelog")
}
html_theme_options = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
}

"""The package as a whole: its names, and what importing it does."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from pymc.step_methods import STEP_METHODS

import pymc_nnsteps as nns
from tests.modules import TESTED_IN

NAMES = {
    "HMC",
    "MALA",
    "PCN",
    "PCNL",
    "Gibbs",
    "Model",
    "Prior",
    "blocks",
    "bow_tie",
    "diagnose",
    "explain",
    "fit",
    "hierarchical_mlp",
    "intermediate_noise_cnn",
    "intermediate_noise_mlp",
    "lab",
    "load",
    "log_likelihood",
    "partial_dependence",
    "plot_calibration",
    "plot_functions",
    "plot_network",
    "plot_partial_dependence",
    "plot_predictions",
    "predict",
    "relevance",
    "save",
    "stacking_weights",
    "verify",
    "trained_starts",
    "wide_mlp",
    "without_latents",
}


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )


def test_public_names():
    assert set(nns.__all__) == NAMES
    assert len(NAMES) <= 32
    assert all(getattr(nns, name).__doc__ for name in NAMES)


def test_public_names_are_documented_where_they_stand():
    for name in NAMES:
        public = getattr(nns, name)
        where = public.__name__ if isinstance(public, ModuleType) else public.__module__
        assert where.startswith("pymc_nnsteps.")


def test_names_that_moved():
    """A script of the last release; a name that never was."""
    assert set(nns.MOVED).isdisjoint(NAMES)
    for name, home in nns.MOVED.items():
        now = f"nns.{home.__name__.removeprefix('pymc_nnsteps.')}.{name}"
        with pytest.warns(FutureWarning, match=rf"^nns\.{name} is now {now}, "):
            assert getattr(nns, name) is eval(now)
        assert name in home.__all__
    with pytest.raises(AttributeError, match="has no attribute 'rejections'"):
        _ = nns.rejections


def test_version_and_requirements_are_stated_alike():
    """In the citation and in the recipe for conda."""
    root = Path(__file__).parents[1]
    assert f"version: {nns.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (root / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{nns.__version__}"\n' in recipe
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {line.strip("- ").replace(" ", "") for line in recipe.splitlines()}
    assert {*project["dependencies"], f"python{project['requires-python']}"} <= stated


def test_import_of_a_source_tree(tmp_path):
    """A version that is read from the metadata of an installation."""
    shutil.copytree(
        Path(nns.__file__).parent, tmp_path / "pymc_nnsteps", ignore=shutil.ignore_patterns("*.nb*")
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import pymc; import importlib.metadata; importlib.metadata.version = None; "
        "import pymc_nnsteps; "
        "print(pymc_nnsteps.__file__, pymc_nnsteps.__version__)"
    )
    assert python(code).stdout.split() == [
        str(tmp_path / "pymc_nnsteps" / "__init__.py"),
        nns.__version__,
    ]


def test_not_conjugate_is_a_value_error():
    assert issubclass(nns.laws.NotConjugate, ValueError)


def test_steps_are_registered():
    assert STEP_METHODS.count(nns.Gibbs) == 1


def test_import_is_silent():
    done = python("import pymc_nnsteps")
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "BLAS" not in line] == []


LATE = (
    "arviz_base",
    "arviz_plots",
    "dask",
    "distributed",
    "h5netcdf",
    "jax",
    "matplotlib",
    "scipy.stats",
    "sklearn",
    "zarr",
)


def test_import_of_plotting_and_examples():
    """Beyond what PyMC itself brings along."""
    code = (
        "import sys, pymc; before = set(sys.modules); import pymc_nnsteps; "
        f"print([name for name in set(sys.modules) - before if name.startswith({LATE})])"
    )
    assert python(code).stdout.strip() == "[]"


def test_import_is_quick():
    """Kernels come from Numba's cache and nothing is compiled for PyTensor.

    That would take seconds; what is imported takes less than what it rests on.
    """
    code = (
        "from time import process_time; times = [process_time()]; "
        "import pymc, pytensor.link.numba.dispatch; times.append(process_time()); "
        "import pymc_nnsteps; times.append(process_time()); "
        "print((times[2] - times[1]) / (times[1] - times[0]))"
    )
    assert float(python(code).stdout) < 1


ROOMS = (
    ("arguments", "activations", "tables", "graphs", "compile"),
    ("random",),
    ("distributions", "network"),
    ("gaussian",),
    ("laws",),
    ("moves", "models", "prediction", "variational"),
    ("steps",),
    ("runs",),
    ("diagnostics", "sharded"),
    ("lab", "estimator"),
    ("sklearn",),
)
"""Rooms and modules of the package; each may use those before its own group."""


def test_the_rooms_use_each_other_one_way():
    """An arrow back up, by an import or a name in quotes, and a room that has no place."""
    package = Path(nns.__file__).parent
    level = {room: number for number, group in enumerate(ROOMS) for room in group}
    wrong = []
    for file in package.rglob("*.py"):
        [own, *_] = file.relative_to(package).with_suffix("").parts
        text, named = file.read_text(), r"(?:^ *(?:from|import) |[\"'])pymc_nnsteps\.(\w+)"
        for used in re.findall(named, text, re.M):
            if own not in ("__init__", used) and not level[used] < level[own]:
                wrong.append(f"{file.relative_to(package)} uses {used}")
    assert wrong == []


ROOT = Path(__file__).parents[1]

LONGEST_FILE, LONGEST_FUNCTION = 500, 60
"""Lines of a module, and of a function beside its docstring."""


def lines_of(function):
    """Lines of a function beside its docstring."""
    first = function.body[0]
    docstring = first if ast.get_docstring(function) is not None else None
    of_docstring = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
    return function.end_lineno - function.lineno + 1 - of_docstring


def test_no_file_and_no_function_is_too_long():
    """A module that has become two, and a function that has."""
    too_long = []
    for file in Path(nns.__file__).parent.rglob("*.py"):
        text = file.read_text()
        if len(text.splitlines()) > LONGEST_FILE:
            too_long.append(str(file.relative_to(ROOT)))
        functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
        too_long += [
            f"{file.relative_to(ROOT)}: {function.name}"
            for function in functions
            if lines_of(function) > LONGEST_FUNCTION
        ]
    assert too_long == []


def test_no_test_module_imports_another():
    imports = re.compile(r"^ *(?:from|import) tests\b.*\btest_\w+", re.M)
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in (ROOT / "tests").rglob("*.py")
        for line in imports.findall(file.read_text())
    ]
    assert wrong == []


def test_the_quick_tests_visit_every_room():
    """A module that was renamed, or a room that nobody has added to ``make test-quick``."""
    [listed] = re.findall(r"^QUICK := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)
    paths = [ROOT / path for path in listed.replace("\\\n", " ").split()]
    assert [path for path in paths if not path.exists()] == []
    visited = {path.relative_to(ROOT / "tests").parts[0] for path in paths}
    rooms = {file.parent.name for file in Path(nns.__file__).parent.glob("*/__init__.py")}
    assert rooms - visited == set()


def test_every_module_is_tested():
    """A module that nothing tests, and an entry of ``tests/modules.py`` that is out of date."""
    package = Path(nns.__file__).parent
    modules = {
        file.relative_to(package).with_suffix("")
        for file in package.rglob("*.py")
        if file.name != "__init__.py"
    }
    tests = {
        file.relative_to(ROOT / "tests").with_suffix("")
        for file in (ROOT / "tests").rglob("test_*.py")
    }
    elsewhere = [Path(module) for listed in TESTED_IN.values() for module in listed]
    own = {module for module in modules if module.with_name(f"test_{module.name}") in tests}
    assert sorted(modules - own - set(elsewhere)) == []
    assert [module for module in elsewhere if module not in modules - own] == []
    assert len(set(elsewhere)) == len(elsewhere)
    assert [file for file in TESTED_IN if Path(file) not in tests] == []

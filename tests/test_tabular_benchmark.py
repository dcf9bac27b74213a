"""``examples/tabular_benchmark.py``: its scores, and a whole run at a tiny size."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.cases import slow

EXAMPLES = Path(__file__).parents[1] / "examples"
NETWORK = '{"builder": "hierarchical", "draws": 20, "tune": 20, "options": {"hidden": [2]}}'


@pytest.fixture
def benchmark(monkeypatch):
    """The module of the script, which is not a part of the package."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import tabular_benchmark

    return tabular_benchmark


def test_scores_of_normals_and_of_their_mixtures(benchmark):
    from tabular.predictions import normal, normals, scores

    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=20_000), rng.uniform(0.5, 2, size=20_000)
    y = mean + sd * rng.normal(size=20_000)
    one = scores(normal(mean, sd, y), y, unit=3.0)
    assert one["rmse"] == pytest.approx(3 * np.sqrt(np.mean((y - mean) ** 2)))
    assert one["nld"] == one["nld_normal"]
    assert one["nld"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean())
    assert one["width_90"] == pytest.approx(2 * stats.norm.ppf(0.95) * sd.mean())
    assert np.allclose(one["coverage"], np.arange(1, 10) / 10, atol=0.02)

    # Equal parts about -1 and 1: the mean is 0, and the density that of two normals.
    means, y = np.repeat([[-1.0], [1.0]], 2000, axis=0), np.array([1.2])
    mixture = normals(means, np.full_like(means, 0.1), y, seed=0)
    assert mixture.mean == pytest.approx(0)
    assert mixture.sd == pytest.approx(np.sqrt(1.01))
    assert mixture.log_density == pytest.approx(np.log(stats.norm.pdf(1.2, 1, 0.1) / 2))
    assert abs(mixture.quantile(0.75) - 1) < 0.02


def test_names_of_networks(benchmark):
    assert benchmark.label("linear") == "linear"
    assert benchmark.label(NETWORK) == "hierarchical 2 draws=20 tune=20"


def test_scores_of_classes(benchmark):
    from tabular.predictions import class_scores

    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    found = class_scores(probabilities, np.array([0, 1, 1, 1]))
    assert found["error"] == 0.25
    assert found["nld"] == pytest.approx(-np.log([0.9, 0.1, 0.6, 0.6]).mean())
    assert found["calibration_error"] == pytest.approx((0.8 + 0.8) / 4)
    assert sum(count for count, _, _ in found["reliability"]) == 4


def test_periodic_inputs_meet_at_their_ends(benchmark, tmp_path):
    """An hour is as far from midnight before it as behind it; the file's own inputs stay."""
    from tabular.data import split, table

    hours = np.arange(24)
    columns = np.column_stack([hours, hours % 12 + 1, hours**2])
    np.savetxt(
        tmp_path / "bikesharing.csv", columns, delimiter=",", header="hr,mnth,y", comments=""
    )
    X, y = table("bikesharing_periodic", tmp_path)
    np.testing.assert_array_equal(np.c_[X[:, :2], y], columns)
    waves = X[:, 2:8]
    np.testing.assert_allclose(
        np.linalg.norm(waves[23] - waves[0]), np.linalg.norm(waves[1] - waves[0])
    )
    assert X.shape == (24, 10)
    assert len(split("bikesharing_periodic", 0, tmp_path).y_test) == 5


@pytest.mark.parametrize("methods", [["linear"], slow(["linear", NETWORK])])
def test_a_run_goes_on_and_writes_its_table(benchmark, monkeypatch, tmp_path, capsys, methods):
    """Real targets and classes, a table that is not there, and the same again."""
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[:, 2] = np.abs(table[:, 0])
    np.savetxt(tmp_path / "yacht.csv", table, delimiter=",", header="a,b,y", comments="")
    output = tmp_path / "output"
    command = ["", "yacht", "concrete", "wine", "--data", str(tmp_path), "--output", str(output)]
    command += ["--splits", "0", "--methods", *methods]
    monkeypatch.setattr(sys, "argv", command)
    benchmark.main()
    assert "left out: concrete" in capsys.readouterr().out
    names = {path.name for path in output.iterdir() if path.suffix != ".json"}
    tables, pictures = {"real.csv", "classes.csv"}, {"calibration.png", "reliability.png"}
    assert names == tables | pictures | {"cost_real.png", "cost_classes.png"}
    real = pd.read_csv(output / "real.csv")
    assert np.isfinite(real[["rmse", "nld", "coverage_90", "cpu_seconds"]]).all(axis=None)

    monkeypatch.setattr(benchmark, "fit", lambda **setting: pytest.fail("it is there"))
    benchmark.main()
    assert pd.read_csv(output / "real.csv").equals(real)

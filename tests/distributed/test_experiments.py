"""A function at each of many settings: what is done is not done again."""

import numpy as np
import pytest

import pymc_nnsteps as nns

SETTINGS = [{"base": base, "power": power} for base in (2, 3.5) for power in (1, 2, 3)]


def raised(base, power):
    return {"value": base**power, "even": base**power % 2 == 0, "none": None, "nan": np.nan}


def run(function, settings, store, **options):
    return nns.experiments(function, settings, store=store, progressbar=False, **options)


def test_goes_on_where_it_stopped(tmp_path):
    asked = []

    def fails_at_the_fourth(base, power):
        asked.append((base, power))
        if len(asked) == 4:
            raise RuntimeError("broken off")
        return raised(np.float64(base), np.int64(power))

    with pytest.raises(RuntimeError, match="broken off"):
        run(fails_at_the_fourth, SETTINGS, tmp_path)
    table = run(fails_at_the_fourth, SETTINGS[::-1], tmp_path)
    assert len(asked) == 7
    assert len(set(asked)) == 6
    assert list(table.columns) == ["base", "power", "value", "even", "none", "nan"]
    assert table["value"].tolist() == [base**power for base in (3.5, 2) for power in (3, 2, 1)]
    assert table["nan"].isna().all()


def test_same_on_a_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    here = run(raised, SETTINGS, tmp_path / "here")
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        there = run(raised, SETTINGS, tmp_path / "there", client=client)
    assert there.equals(here)


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="settings must be a sequence of mappings"):
        run(raised, SETTINGS[0], tmp_path)
    with pytest.raises(ValueError, match=r"settings\[1\] is there twice"):
        run(raised, [SETTINGS[0]] * 2, tmp_path)
    with pytest.raises(ValueError, match=r"settings\[0\] must be of numbers, words"):
        run(raised, [{"base": object()}], tmp_path)
    with pytest.raises(ValueError, match=r"what function returns at .* must be a mapping; got 3"):
        run(lambda base: 3, [{"base": 1}], tmp_path)
    with pytest.raises(ValueError, match=r"has \['base'\], which are arguments"):
        run(lambda base: {"base": 3}, [{"base": 1}], tmp_path)
    with pytest.raises(ValueError, match=r"what function returns at .* must be of numbers"):
        run(lambda base: {"value": {1}}, [{"base": 1}], tmp_path)

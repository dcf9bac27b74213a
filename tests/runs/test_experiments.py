"""A function at each of many settings: what is done is not done again."""

import time
from pathlib import Path

import numpy as np
import pytest

import pymc_nnsteps as nns

SETTINGS = [{"base": base, "power": power} for base in (2, 3.5) for power in (1, 2, 3)]


def raised(base, power):
    return {"value": base**power, "even": base**power % 2 == 0, "none": None, "nan": np.nan}


def run(function, settings, store, **options):
    return nns.lab.experiments(function, settings, store=store, progressbar=False, **options)


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


ACTIVE, MOST = [], []


def busy(base, power):
    """As long as another thread needs to begin."""
    ACTIVE.append(base)
    MOST.append(len(ACTIVE))
    time.sleep(0.05)
    ACTIVE.pop()
    return {"value": base**power}


def test_threads_of_a_worker_take_turns(tmp_path):
    """Two that compile at the same time leave PyTensor without its C compiler."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=3, dashboard_address=":0"
    ) as client:
        run(busy, SETTINGS, tmp_path, client=client)
    assert len(MOST) == len(SETTINGS)
    assert max(MOST) == 1


def test_settings_that_are_made_one_by_one(tmp_path):
    assert run(raised, iter(SETTINGS), tmp_path).equals(run(raised, SETTINGS, tmp_path))


def test_two_processes_that_end_at_once(tmp_path, monkeypatch):
    """The one between the other's writing of a result and its renaming of the file."""
    write = Path.write_text

    def and_then_the_other_does(self, text):
        monkeypatch.setattr(Path, "write_text", write)
        write(self, text)
        run(raised, SETTINGS[:1], tmp_path)

    monkeypatch.setattr(Path, "write_text", and_then_the_other_does)
    assert run(raised, SETTINGS[:1], tmp_path)["value"].tolist() == [2]


def test_bad_input(tmp_path):
    for settings in (SETTINGS[0], 5, None):
        with pytest.raises(ValueError, match="settings must be a sequence of mappings"):
            run(raised, settings, tmp_path)
    with pytest.raises(ValueError, match=r"settings\[0\] must have words as names; got 1"):
        run(raised, [{1: 2}], tmp_path)
    itself = []
    itself.append(itself)
    with pytest.raises(ValueError, match=r"settings\[0\] must be of numbers, .*Circular"):
        run(raised, [{"base": itself}], tmp_path)
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
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
        run(raised, SETTINGS, tmp_path, client=4)


@pytest.mark.parametrize("text", ["", '{"setting": {"base": 2, "pow', "[1]", "{}"])
def test_a_file_that_cannot_be_read_is_named_before_anything_is_done(tmp_path, text):
    run(raised, SETTINGS[:1], tmp_path)
    [file] = tmp_path.iterdir()
    file.write_text(text)
    asked = []
    with pytest.raises(ValueError, match=rf"{file} holds no result .* move it away"):
        run(lambda **setting: asked.append(setting), SETTINGS, tmp_path)
    assert not asked
    assert file.read_text() == text
    file.unlink()
    assert len(run(raised, SETTINGS, tmp_path)) == len(SETTINGS)


def test_a_kill_while_a_result_is_written_leaves_no_half_of_it(tmp_path, monkeypatch):
    def killed(file, data):
        with file.open("wb") as part:
            part.write(data[:20])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            run(raised, SETTINGS[:2], tmp_path)
    assert list(tmp_path.iterdir())
    assert run(raised, SETTINGS[:2], tmp_path)["value"].tolist() == [2, 4]

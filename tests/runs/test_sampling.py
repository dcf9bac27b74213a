"""Runs that are broken off and go on: every draw as if they had not been."""

import os
import shutil
import signal
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.runs import sampling, tasks
from pymc_nnsteps.runs.fingerprint import writing
from pymc_nnsteps.runs.store import Store
from pymc_nnsteps.steps import assignment

IN_C = {"compile_kwargs": c_by_default()}
QUIET = {"compute_convergence_checks": False, "progressbar": False}
SIZES = {"draws": 23, "tune": 14, "chains": 2, "random_seed": 3}
TIMES = ("perf_counter_start", "perf_counter_diff", "process_time_diff")


def line():
    with pm.Model(coords={"of": ["slope", "intercept"]}) as model:
        s = pm.HalfNormal("s")
        line = pm.Normal("line", 0, 10, dims="of")
        pm.Deterministic("sum", line.sum())
        pm.Normal("y", line[0] * np.arange(4.0) + line[1], s, observed=[0.0, 1.1, 1.9, 3.0])
    return model


@pytest.fixture(scope="module", autouse=True)
def in_c():
    """What PyMC would compile by Numba in each run."""
    with pytensor.config.change_flags(linker="cvm"):
        yield


@pytest.fixture(scope="module")
def model():
    return line()


@pytest.fixture(scope="module")
def steps(model):
    """Steps of the package and of PyMC, in a compound."""
    return [nns.Gibbs([model["line"]], model=model), pm.NUTS([model["s"]], model=model, **IN_C)]


@pytest.fixture(scope="module")
def quick_steps(model):
    """With few statistics."""
    metropolis = pm.Metropolis([model["s"]], model=model, **IN_C)
    return [nns.PCN([model["line"]], model=model), metropolis]


@pytest.fixture
def begun(model, quick_steps, tmp_path):
    """What a run is begun with, for any place to keep it."""
    return partial(
        nns.runs.sample_distributed, model, step=quick_steps, draws_per_chunk=5, **SIZES, **QUIET
    )


def assert_same(idata, other):
    assert set(idata.children) == set(other.children)
    for group in idata.children:
        assert set(idata[group]) == set(other[group])
        for name, values in idata[group].items():
            if name not in TIMES:
                np.testing.assert_array_equal(values, other[group][name], strict=True)
                assert values.dims == other[group][name].dims
    assert set(idata.posterior.coords) == set(other.posterior.coords)


def test_chains_are_those_of_pymc(model, steps, tmp_path):
    options = {"step": steps, "discard_tuned_samples": False, **SIZES, **QUIET}
    expected = pm.sample(model=model, cores=1, **options)
    found = nns.runs.sample_distributed(
        model, store=tmp_path / "run", draws_per_chunk=10, **options
    )
    assert_same(found, expected)
    assert found.posterior.sizes["of"] == 2


@pytest.mark.slow
def test_nuts_that_pymc_chooses(model, tmp_path):
    options = {"draws": 6, "tune": 6, "chains": 2, "random_seed": 1, "var_names": ["s"]}
    options |= {"nuts": {"target_accept": 0.9}, **IN_C, **QUIET}
    expected = pm.sample(model=model, cores=1, **options)
    assert_same(nns.runs.sample_distributed(model, store=tmp_path / "run", **options), expected)
    assert list(expected.posterior) == ["s"]


def test_arguments_for_nuts_leave_it_the_weights(tmp_path, monkeypatch):
    """As in ``pm.sample``: HMC, which they are not for, refused them."""
    model = nns.hierarchical_mlp(np.eye(4), np.arange(4.0) - 1.5, hidden=(2,))
    chosen = []

    def selected(model, *, selected_steps, **others):
        chosen.append({step.__name__ for step in selected_steps})
        raise KeyboardInterrupt

    monkeypatch.setattr(assignment, "instantiate_steppers", selected)
    for options in ({}, {"nuts": {"target_accept": 0.9}}, IN_C):
        with pytest.raises(KeyboardInterrupt):
            nns.runs.sample_distributed(model, store=tmp_path / "run", **options)
    assert chosen == [{"Gibbs", "HMC"}, {"Gibbs", "NUTS"}, {"Gibbs", "NUTS"}]


def test_broken_off_at_any_write(begun, model, quick_steps, tmp_path, monkeypatch):
    """A checkpoint that is not that of the draws before it, a step whose state is not all of it."""

    class Killed(BaseException):
        pass

    array = pytest.importorskip("zarr").Array
    set_item, left, breaks = array.__setitem__, 10**6, 0

    def set_item_if_alive(self, *arguments):
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        set_item(self, *arguments)

    expected = pm.sample(model=model, step=quick_steps, cores=1, **SIZES, **QUIET)
    monkeypatch.setattr(array, "__setitem__", set_item_if_alive)
    store, found = tmp_path / "broken", None
    left = 29
    with pytest.raises(Killed):
        begun(store=store)
    while found is None:
        if breaks == 1:
            sampling.remember(Store(str(store)).run())  # as another process would
        left = 7 + breaks % 11
        try:
            found = nns.runs.resume(store, **QUIET)
        except Killed:
            breaks += 1
    assert breaks > 8
    assert_same(found, expected)


def test_extended(begun, model, tmp_path):
    """Also with a last chunk that was not full."""
    expected = begun(store=tmp_path / "whole")
    begun(store=tmp_path / "short", draws=9)
    assert_same(nns.runs.extend(tmp_path / "short", 14, model=model, **QUIET), expected)


def level(seen=0.0):
    """A model whose data can be exchanged, with a step."""
    with pm.Model() as model:
        w = pm.Normal("w", 0, 10)
        pm.Normal("y", w, 0.1, observed=pm.Data("targets", np.full(50, seen)))
        return model, nns.Gibbs([w])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run in a store, and its model."""
    (model, step), store = level(), tmp_path_factory.mktemp("kept") / "run"
    sizes = {"draws": 20, "tune": 0, "chains": 2, "random_seed": 1, "draws_per_chunk": 5}
    nns.runs.sample_distributed(model, store=store, step=step, **sizes, **QUIET)
    return model, store


@pytest.fixture
def copied(kept, tmp_path):
    return shutil.copytree(kept[1], tmp_path / "run")


def test_a_run_keeps_the_data_that_it_was_begun_with(kept, copied):
    """Whatever its user does to the model: what is run, what is compared, what is returned."""
    model, _ = kept
    with model:
        pm.set_data({"targets": np.full(50, 50.0)})
    idata = nns.runs.extend(copied, 20, **QUIET)
    assert abs(idata.posterior["w"]).max() < 0.1
    assert not idata.observed_data["y"].any()
    with pytest.raises(ValueError, match=r"/run holds a run that differs in data container targe"):
        nns.runs.resume(copied, model=model, **QUIET)
    nns.runs.resume(copied, model=level()[0], **QUIET)


LOST = {
    "posterior/w/1.2": r"posterior/w of the run in .*/run is lost or damaged; restore it",
    "posterior/w/.zarray": "posterior/w of the run",
    "checkpoints/1": "checkpoints/1 of the run",
    "checkpoints/.zarray": "checkpoints/0 of the run",
    "run/0": "run/0 of the run",
    ".zattrs": "zattrs",
    ".zgroup": "zgroup",
}


def test_what_is_lost_or_cut_off_is_named(copied):
    """Zarr makes zeros of it, other numbers, and errors that name nothing."""
    for name, message in LOST.items():
        file, whole = copied / name, (copied / name).read_bytes()
        cut = [whole[:end] for end in (0, 10, len(whole) // 2, len(whole) - 1)]
        flipped = bytes([*whole[:-9], whole[-9] ^ 4, *whole[-8:]])
        for damaged in [None, *cut] + [flipped] * (not file.name.startswith(".")):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            sampling.remember(None)
            with pytest.raises(ValueError, match=message):
                nns.runs.resume(copied, **QUIET)
        file.write_bytes(whole)
    nns.runs.resume(copied, **QUIET)


@pytest.mark.parametrize("name", ["checkpoints/1", "run/0"])
def test_a_number_of_objects_that_is_changed_is_named(copied, name):
    """Zarr would make room for so many."""
    file, whole = copied / name, (copied / name).read_bytes()
    file.write_bytes((2**25).to_bytes(4, "little") + whole[4:])
    sampling.remember(None)
    tracemalloc.start()
    with pytest.raises(ValueError, match=LOST[name]):
        nns.runs.resume(copied, **QUIET)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**27


@pytest.mark.parametrize("contents", [b'{"zarr_format": 2}', b"[]", b"{}"])
def test_metadata_that_are_changed_are_named(copied, contents):
    """Zarr raises a TypeError, or opens a group."""
    (copied / "posterior/w/.zarray").write_bytes(contents)
    with pytest.raises(ValueError, match=LOST["posterior/w/.zarray"]):
        nns.runs.resume(copied, **QUIET)


@pytest.mark.parametrize("file", ["posterior/.zgroup", "sample_stats/.zattrs"])
def test_room_for_more_draws_is_made_where_it_can_be(copied, file):
    """Groups are opened for this only; nothing has grown then."""
    (copied / file).write_bytes(b"{")
    with pytest.raises(ValueError, match=f"{Path(file).parent} of the run in .* is lost or"):
        nns.runs.extend(copied, 5, **QUIET)
    assert Store(str(copied)).draws == 20


def test_a_store_is_a_place(kept):
    with pytest.raises(ValueError, match=r"store must be a folder or a URL; got Model\."):
        nns.runs.resume(kept[0])


def hold(store, held):
    with writing(store):
        held.set()
        time.sleep(60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_one_process_writes_at_a_time(copied):
    """One that is killed gives its lock back; what is finished can be read."""
    context = get_context("fork")
    held = context.Event()
    other = context.Process(target=hold, args=(copied, held))
    other.start()
    held.wait()
    with pytest.raises(RuntimeError, match=r"another process is writing to .*/run; wait until"):
        nns.runs.extend(copied, 5, **QUIET)
    assert nns.runs.resume(copied, **QUIET).posterior.sizes["draw"] == 20
    other.kill()
    other.join()
    assert nns.runs.extend(copied, 5, **QUIET).posterior.sizes["draw"] == 25


def test_an_interrupt_says_how_to_go_on(copied, monkeypatch, caplog):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    caplog.set_level("INFO")
    monkeypatch.setattr(sampling, "_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nns.runs.extend(copied, 5, **QUIET)
    assert (
        f"40 of 50 draws are in the store, and nns.runs.resume('{copied}') continues" in caplog.text
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_killed_four_times(begun, model, tmp_path):
    """The signal that nothing can catch ends a run, in tuning too."""
    sizes = {"draws": 160, "tune": 60}
    expected = begun(store=tmp_path / "whole", **sizes)
    whole, store = Store(str(tmp_path / "whole")), str(tmp_path / "killed")
    run, rng, before = whole.run(), np.random.default_rng(0), [0, 0]
    process = get_context("fork").Process(target=begun, kwargs={"store": store, **sizes})
    for _ in range(4):
        process.start()
        wait_until(lambda old=tuple(before): tuple(standing(store)) != old)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.join()
        killed, now = Store(store), standing(store)
        assert all(new >= old for new, old in zip(now, before, strict=True))
        for chain, done in enumerate(now):
            for name, values in killed.read(run, chain).samples.items():
                np.testing.assert_array_equal(values, whole.read(run, chain).samples[name][:done])
        before = now
        process = get_context("fork").Process(target=nns.runs.resume, args=(store,), kwargs=QUIET)
    assert before != [220, 220]
    assert_same(nns.runs.resume(store, model=model, **QUIET), expected)


def standing(store):
    """Numbers of draws of the chains."""
    try:
        return [Store(store).checkpoint(chain).done for chain in range(2)]
    except ValueError:
        return [0, 0]  # it is not there yet


def wait_until(holds):
    while not holds():
        time.sleep(0.01)


# --- on a cluster --------------------------------------------------------------------------


@pytest.fixture
def cluster():
    """A cluster in this process, with two threads."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


def test_same_on_a_cluster(begun, cluster, tmp_path):
    expected = begun(store=tmp_path / "here")
    begun(store=tmp_path / "there", draws=2)
    found = nns.runs.extend(
        tmp_path / "there", 21, client=cluster, compute_convergence_checks=False
    )
    assert_same(found, expected)


def test_an_error_on_a_worker_is_raised_here(begun, cluster, tmp_path, monkeypatch):
    def restore(step, state):
        raise ArithmeticError

    begun(store=tmp_path / "run", draws=2)
    monkeypatch.setattr(sampling, "restore", restore)
    with pytest.raises(ArithmeticError):
        nns.runs.extend(tmp_path / "run", 2, client=cluster, **QUIET)


@pytest.mark.slow
def test_a_worker_dies(begun, model, tmp_path):
    """Its chain goes on elsewhere, from the last checkpoint."""
    distributed = pytest.importorskip("distributed")
    expected = begun(store=tmp_path / "here", draws=150)
    begun(store=tmp_path / "there", draws=2)
    with distributed.Client(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=tmp_path
    ) as client:
        [worker, _] = client.run(os.getpid).values()
        pool = ThreadPoolExecutor(1)
        going_on = pool.submit(nns.runs.extend, tmp_path / "there", 148, client=client, **QUIET)
        wait_until(lambda: Store(str(tmp_path / "there")).checkpoint(0).done > 30)
        os.kill(worker, signal.SIGKILL)
        found = going_on.result()
        pool.shutdown()
    assert_same(found, expected)


# --- what is refused -----------------------------------------------------------------------


def test_bad_input(begun, model, tmp_path):
    store = tmp_path / "run"
    begun(store=store, draws=2)
    with pytest.raises(ValueError, match=r"exists already: nns\.runs\.resume"):
        begun(store=store)
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client .*; got 4"):
        begun(store=tmp_path / "other", client=4)
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
        nns.runs.extend(store, 3, client=4)
    with pytest.raises(ValueError, match="holds no run"):
        nns.runs.resume(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no run"):
        nns.runs.resume(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file, but a run is a folder: nns"):
        nns.runs.resume(tmp_path / "file")
    with pytest.raises(ValueError, match="draws must be a positive integer"):
        nns.runs.extend(store, 0)
    with pytest.raises(ValueError, match="tune must be a non-negative integer; got -1"):
        begun(store=tmp_path / "other", tune=-1)
    with pytest.raises(ValueError, match=r"var_names has \['nobody'\]"):
        begun(store=tmp_path / "other", var_names=["s", "nobody"])
    with pytest.raises(ValueError, match="chains of step depend on each other"):
        begun(store=tmp_path / "other", step=pm.DEMetropolis(model=model, **IN_C))
    assert not (tmp_path / "other").exists()
    with pm.Model() as other:
        pm.Normal("line")
    with pytest.raises(ValueError, match=r"differs in variable s .*, variable line .*elsewhere"):
        nns.runs.resume(store, model=other)
    with pytest.raises(ValueError, match=r"model must be a pm\.Model; got str"):
        nns.runs.resume(store, model="line")


def test_what_is_not_installed_is_named():
    with pytest.raises(ImportError, match=r"nobody is not installed.*pymc_nnsteps\[distributed\]"):
        tasks.needed("nobody")

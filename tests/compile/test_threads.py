"""One chain computes in one thread, and what the user's other code has is left as it was."""

import multiprocessing
import threading
from typing import Any

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep
from threadpoolctl import threadpool_info, threadpool_limits

import pymc_nnsteps as nns
from pymc_nnsteps.compile.threads import Pool, one_thread, pools


def numbers() -> set[int]:
    """Numbers of threads of all BLAS libraries of this process."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _three_threads():
    assert len(pools()) == len([p for p in threadpool_info() if p["user_api"] == "blas"])
    with threadpool_limits(3, user_api="blas"):
        assert numbers() == {3}
        yield
        assert numbers() == {3}


def test_libraries_get_their_threads_back_after_the_outermost_block_and_after_errors():
    @one_thread
    def fail():
        with one_thread:
            assert numbers() == {1}
        assert numbers() == {1}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert numbers() == {3}


def test_blocks_of_two_python_threads_overlap():
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with one_thread:
            inside.set()
            leave.wait()
            seen.append(numbers())

    with one_thread:
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
    assert numbers() == {1}
    leave.set()
    thread.join()
    assert seen == [{1}]


def test_numbers_of_openmp_belong_to_a_python_thread():
    own = threading.local()
    own.n = 3
    pool = Pool(lambda: getattr(own, "n", 4), lambda n: setattr(own, "n", n), by_thread=True)
    pool.enter()
    seen = []

    def other():
        pool.enter()
        seen.append(own.n)
        pool.leave()
        seen.append(own.n)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    pool.leave()
    assert (seen, own.n) == ([1, 4], 3)


@pytest.mark.parametrize("name", ["Gibbs", "HMC", "MALA", "PCN", "PCNL"])
def test_every_step_computes_in_one_thread(name):
    seen: list[set[int]] = []

    class Watched(getattr(nns, name)):  # type: ignore[misc]
        """Notes the number of threads wherever PyMC calls it."""

        def __init__(self, *args: Any, **options: Any) -> None:
            seen.append(numbers())
            super().__init__(*args, **options)

        def setup_chain(self, *args: Any) -> None:
            seen.append(numbers())
            super().setup_chain(*args)

        def step(self, point: Any) -> Any:
            seen.append(numbers())
            return super().step(point)

    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        pm.Normal("y", w, observed=[0.3, -0.2])
        step = Watched([w])
    step.setup_chain(np.random.default_rng(0), 1, 1)
    step.step(model.initial_point())
    assert seen == [{1}] * 3
    assert numbers() == {3}


class Beside(BlockedStep):
    """A step of somebody else, whose statistic is the largest number of threads."""

    stats_dtypes_shapes = {"n_threads": (np.int64, [])}  # noqa: RUF012

    def __init__(self, vars: Any, model: Any = None, **options: Any) -> None:
        self.vars = [model.rvs_to_values[v] for v in vars]

    def step(self, point):
        return point, [{"n_threads": np.int64(max(numbers()))}]


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_in_processes_of_chains_steps_beside_ours_have_one_thread_too(start):
    with pm.Model() as model:
        v, w = pm.Normal("v"), pm.Normal("w")
        pm.Normal("y", w, observed=0.3)
        idata = pm.sample(
            2,
            tune=2,
            chains=2,
            cores=2,
            mp_ctx=start,
            step=[Beside([v], model=model), nns.Gibbs([w])],
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert (idata.sample_stats["n_threads"] == 1).all()


def test_processes_that_are_no_chains_keep_their_threads():
    def work(queue):
        with pm.Model():
            each = nns.Gibbs([pm.Normal("w")])
            each.setup_chain(np.random.default_rng(0), 1, 1)
        queue.put(numbers())

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == {3}
    process.join()

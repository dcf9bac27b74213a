"""Chains from several starts: where theory knows all about them, and as runs that go on."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.runs.fingerprint import writing
from pymc_nnsteps.runs.tasks import QUICK
from tests.statistics import Z_LIMIT

RHO = 0.9
N = 200
"""Replicates: entries of one variable."""


def no_information(X, y):
    """``w ~ N(0, 1)`` and data that say nothing of it: PCN is an autoregression."""
    with pm.Model() as model:
        w = pm.Normal("w", shape=N)
        pm.Normal("y", pm.Data("inputs", X) @ w, 1, observed=y)
    return model


@pytest.fixture(scope="module")
def autoregression():
    """Informed, and from 30 standard deviations away: ``w_t = 0.9^t w_0 + noise``."""
    lab = nns.lab.teacher_student(no_information, np.zeros((2, N)), random_seed=1)
    starts = {"informed": lab.starts["informed"], "far": {"w": np.full(N, 30.0)}}
    w = lab.model["w"]
    run = nns.lab.thermalize(
        starts,
        {"first": w[0], "score": lab.score("w"), "w": w},
        sweeps=2048,
        step=nns.PCN(beta=np.sqrt(1 - RHO**2), model=lab.model),
        records=range(1, 2049),
        model=lab.model,
        progressbar=False,
    )
    return lab, run


def test_chains_are_those_of_theory(autoregression):
    """Mean and variance of a chain that approaches, at each sweep, over the replicates."""
    _, run = autoregression
    t = np.arange(1, 100, 7)
    for start, first in (("far", 30.0), ("informed", None)):
        w = run.records["w"].sel(chain=start, sweep=t).values
        mean = np.zeros(len(t)) if first is None else first * RHO**t
        variance = np.ones(len(t)) if first is None else 1 - RHO ** (2 * t)
        z = (w.mean(1) - mean) / np.sqrt(variance / N)
        assert np.abs(z).max() < Z_LIMIT
        ratio = ((w - mean[:, None]) ** 2).mean(1) / variance
        assert np.abs(ratio - 1).max() < Z_LIMIT * np.sqrt(2 / N)


def test_score_and_merging_are_those_of_theory(autoregression):
    """The score is minus the mean: zero in equilibrium, and ``-30 0.9^t`` from afar."""
    _, run = autoregression
    score = run.records["score"]
    np.testing.assert_allclose(score, -run.records["w"].mean("w_dim_0"), atol=1e-10)
    tau = (1 + RHO) / (1 - RHO)
    informed = score.sel(chain="informed").mean().item()
    assert abs(informed) < Z_LIMIT * np.sqrt(tau / N / 2048)
    sd = {"first": 1.0, "score": np.sqrt(1 / N)}
    for name, found in run.table.loc["far"].iterrows():
        # The sums of 30 0.9^t over the windows (e/2, e], against their errors.
        ends = 2048 / 2.0 ** np.arange(7)
        sums = 30 * (RHO ** (ends / 2) - RHO**ends) * RHO / (1 - RHO)
        seen = sums > 4 * sd[name] * np.sqrt(2 * tau * ends / 2)
        assert found["state"] == "merged"
        assert found["merged"] in ends[seen].max(initial=32) * np.array([0.5, 1.0, 2.0])


def test_rhat_is_that_of_theory(autoregression):
    """In equilibrium the mean of a block has variance ``v``, its draws ``1 - v``."""
    lab, run = autoregression
    late = run.records[["w"]].isel(sweep=slice(1024, None)).rename(sweep="draw")
    n, t = 128, np.arange(1, 128)
    rhat = nns.lab.rhat_over_time(late, np.eye(N), block=n, model=lab.model)["rhat"].values
    v = (1 + 2 * np.sum((1 - t / n) * RHO**t)) / n
    expected = (n - 1) / n + v / (1 - v)
    assert abs(np.mean(rhat**2) / expected - 1) < 0.03
    early = run.records[["w"]].isel(sweep=slice(0, 64)).rename(sweep="draw")
    away = nns.lab.rhat_over_time(early, np.eye(N), block=16, model=lab.model)["mean"].values
    assert (np.diff(away) < 0).all()
    assert away[0] > 1.5


def two_modes():
    with pm.Model() as model:
        w = pm.NormalMixture("w", [0.5, 0.5], [-50.0, 50.0], sigma=1)
        pm.Normal("y", w**2, 100, observed=2500.0)
    return model


def test_a_chain_in_another_mode_is_stuck():
    """What tells the modes apart stays apart; what does not has merged. Without a teacher."""
    model = two_modes()
    starts = {"informed": {"w": np.array(50.0)}, "other": {"w": np.array(-50.0)}}
    run = nns.lab.thermalize(
        starts,
        {"w": model["w"], "square": model["w"] ** 2},
        sweeps=1500,
        step=nns.MALA(step_size=0.7, model=model),
        model=model,
        progressbar=False,
    )
    table = run.table.loc["other"]
    assert list(table["state"]) == ["stuck", "merged"]
    assert abs(table.loc["w", "difference"] + 100) < 4 * table.loc["w", "error"] < 5
    assert str(run).count("-") >= 1


def regression(X, y):
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        w = pm.Normal("w", shape=2)
        pm.Normal("y", pm.Data("inputs", X) @ w, s, observed=y)
    return model


def test_a_step_is_left_as_it_was(tmp_path):
    """One whose options adapt themselves goes on with its own run."""
    with pm.Model() as model:
        w = pm.Normal("w", 0, 100)
    step = pm.Slice([w], model=model)
    starts = {"informed": {"w": np.array(0.0)}, "other": {"w": np.array(1.0)}}
    given = {"step": step, "tune": 20, "model": model, "path": tmp_path / "run"}
    for sweeps in (40, 50):
        run = nns.lab.thermalize(starts, {"w": w}, sweeps=sweeps, progressbar=False, **given)
    assert run.records["sweep"][-1] == 50
    assert step.w == 1


@pytest.fixture(scope="module")
def mixed():
    """Gibbs and PyMC's NUTS together."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    lab = nns.lab.teacher_student(regression, X, random_seed=1)
    with lab.model:
        step = [nns.Gibbs([lab.model["w"]]), pm.NUTS([lab.model["s"]])]
    functions = {"error": lab.test_error(X), "s": lab.model["s"], "w": lab.model["w"]}
    return lab, functions, step


def run_of(mixed, sweeps=150, **options):
    lab, functions, step = mixed
    settings = {"tune": 40, "random_seed": 3, "model": lab.model, "progressbar": False}
    return nns.lab.thermalize(lab.starts, functions, sweeps=sweeps, step=step, **settings | options)


@pytest.mark.slow
def test_goes_on_where_it_stopped(mixed, tmp_path, monkeypatch):
    """As if nothing had happened: after an interrupt in tuning, and for more sweeps."""
    whole = run_of(mixed)
    assert whole.records["w"].dims == ("chain", "sweep", "w_dim_0")
    assert whole.functions == ["error", "s"]
    file, calls = tmp_path / "run", []
    step, original = mixed[2][0], mixed[2][0].step

    def interrupted(point):
        calls.append(None)
        if len(calls) == 77:
            raise KeyboardInterrupt
        return original(point)

    monkeypatch.setattr(step, "step", interrupted)
    part = run_of(mixed, path=file)
    assert part.records.sizes["sweep"] == 76 // 3
    monkeypatch.undo()
    more = run_of(mixed, sweeps=120, path=file)
    assert more.records["sweep"][-1] == 120
    last = run_of(mixed, path=file)
    assert not list(tmp_path.glob("*.part"))
    for records in (part.records, more.records, last.records):
        same = whole.records.sel(sweep=records["sweep"]).drop_vars("seconds")
        xr.testing.assert_allclose(same, records.drop_vars("seconds"), rtol=1e-9)
    assert (np.diff(last.records["seconds"]) >= 0).all()
    with pytest.raises(ValueError, match=r"differs in random_seed \(3, now 4\); continue with"):
        run_of(mixed, path=file, random_seed=4)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{file} is lost or damaged"):
        run_of(mixed, path=file)


def test_another_experiment_is_not_what_was_kept(tmp_path):
    """Data, an expression of the same name, its constants, a step, its options, a start."""
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        pm.Normal("y", pm.Data("inputs", np.eye(2)) @ w, observed=np.ones(2))
    zero = {"w": np.zeros(2)}
    starts = {"informed": zero, "other": {"w": np.ones(2)}}

    def step(kind=nns.PCN, **options):
        return kind([w], model=model, compile_kwargs={"mode": QUICK}, **options)

    first = step(beta=0.5)

    def run(**options):
        given = {"starts": starts, "functions": {"f": w[0]}, "sweeps": 3, "step": first}
        given |= {"model": model, "progressbar": False}
        return nns.lab.thermalize(path=tmp_path / "run", **given | options)

    run()
    changed = step(beta=0.5)
    changed.steps = 2
    for message, options in {
        r"step of w \(PCN.*steps=1.*, now PCN.*steps=2": {"step": changed},
        "test function f": {"functions": {"f": pm.math.abs(w[0])}},
        "constants of test function f": {"functions": {"f": w[0] + 1}},
        r"step of w \(PCN\(beta=0.5, .*, now PCN\(beta=0.4,": {"step": step(beta=0.4)},
        r"step of w \(PCN.*, now Metropolis": {"step": step(pm.Metropolis)},
        "start other": {"starts": {**starts, "other": zero}},
    }.items():
        with pytest.raises(ValueError, match=f"/run holds a run that differs in {message}"):
            run(**options)
    with writing(tmp_path / "run"), pytest.raises(RuntimeError, match="another process"):
        run()
    with model:
        pm.set_data({"inputs": 2 * np.eye(2)})
    with pytest.raises(ValueError, match="differs in data container inputs; continue"):
        run()


def test_log_spaced_records(mixed):
    sweeps = run_of(mixed, records=16).records["sweep"]
    expected = [*range(1, 33), *range(34, 65, 2), *range(68, 129, 4), 136, 144, 150]
    assert sweeps.values.tolist() == expected


@pytest.mark.slow
def test_networks_without_noise_by_nuts_and_mala():
    """Both samplers approach the level of the informed chain on the same data."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    noise = {"pre": 0, "post": 0, "output": 0.05}
    lab = nns.lab.teacher_student(
        lambda X, y: nns.intermediate_noise_mlp(X, y, hidden=(2,), noise=noise),
        X,
        random_seed=3,
    )
    error = {"error": lab.test_error(X)}
    starts = {start: lab.starts[start] for start in ("informed", "zero")}
    last = {}
    steps = {"NUTS": (pm.NUTS(model=lab.model), 300), "MALA": (nns.MALA(model=lab.model), 20_000)}
    for sampler, (step, sweeps) in steps.items():
        run = nns.lab.thermalize(
            starts, error, sweeps=sweeps, tune=sweeps // 3, step=step, model=lab.model,
            progressbar=False,
        )  # fmt: skip
        half = run.records["error"].sel(sweep=slice(sweeps // 2, None)).mean("sweep")
        last |= {(sampler, start): half.sel(chain=start).item() for start in starts}
        assert run.records["error"][0, 0] < run.records["error"][1, 0] / 5
    assert max(last.values()) < 3 * min(last.values()), last


def test_steps_are_chosen_as_by_pymc():
    with pm.Model() as model:
        w = pm.Normal("w")
    run = nns.lab.thermalize(
        {"informed": {"w": np.array(0.0)}, "far": {"w": np.array(50.0)}},
        {"w": w},
        sweeps=100,
        tune=50,
        model=model,
    )
    assert run.table["state"].tolist() == ["merged"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sweeps": 0}, "sweeps must be a positive integer"),
        ({"tune": -1}, "tune must be a non-negative integer"),
        ({"records": [3, 2]}, "records must be a positive integer, or increasing sweeps"),
        ({"records": [1, 20]}, "records must not be later than sweeps=10; got 20"),
        ({"reference": "teacher"}, "starts must have 'teacher', the reference"),
        ({"step": "NUTS"}, "step must be a step method, a list of these, or None; got 'NUTS'"),
        ({"functions": {}}, "functions must have at least one"),
        ({"functions": {"f": 3.0}}, r"functions\['f'\] must be an expression of the model's"),
        ({"functions": {"sweep": None}}, "functions must not be called 'sweep'"),
        ({"functions": {"f": pm.Normal.dist()}}, r"functions\['f'\] depends on .* is not a var"),
        ({"starts": {"informed": {"w": 0.0}, "x": {"v": 0.0}}}, r"starts\['x'\] must have the"),
    ],
)
def test_bad_input(options, message):
    with pm.Model() as model:
        w = pm.Normal("w")
    zero = {"w": np.array(0.0)}
    given = {"starts": {"informed": zero, "zero": zero}, "functions": {"w": w}, "sweeps": 10}
    with pytest.raises(ValueError, match=message):
        nns.lab.thermalize(**given | {"model": model, "progressbar": False} | options)


def test_infinite_functions():
    with pm.Model() as model:
        w = pm.Normal("w")
    zero = {"w": np.array(0.0)}
    with pytest.raises(ValueError, match=r"functions\['f'\] is infinite or NaN at sweep 1 "):
        nns.lab.thermalize(
            {"informed": zero, "zero": zero},
            {"f": pm.math.log(-pm.math.sqr(w))},
            sweeps=10,
            step=nns.PCN(beta=0.5, model=model),
            model=model,
            progressbar=False,
        )

"""Rows in shards: the draws of a local sweep, whatever the number of shards."""

from operator import ne

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from distributed import Client, LocalCluster

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.runs.fingerprint import writing
from pymc_nnsteps.sharded import sampling
from pymc_nnsteps.sharded.gaps import with_gaps
from pymc_nnsteps.sharded.rounds import rounds_of
from pymc_nnsteps.sharded.sampling import ShardPool, sample_sharded
from pymc_nnsteps.sharded.shards import (
    Shard,
    SharedDraws,
    _exchange,
    _sums_over_rows,
    added,
    instructions,
)
from pymc_nnsteps.steps.sweep import Sweep
from tests.cases import slow
from tests.statistics import bonferroni_limit
from tests.steps.joint import LEVEL, joint_z_scores

RNG = np.random.default_rng(21)
X = RNG.normal(size=(60, 3))
Y = np.abs(X[:, 0]) + 0.3 * RNG.normal(size=60)
CLASSES = np.digitize(X[:, 1] + 0.3 * RNG.normal(size=60), [-0.4, 0.5])
NAMES = ("inputs", "targets")
GAPS = np.random.default_rng(22).random(X.shape) < [0.0, 0.1, 0.3]
GAPS[:15, 1] = False
WITH_GAPS = np.where(GAPS, np.nan, X)


def learnt(X, y, units=2):
    """A network by hand with scales that all rows share, and one that rows say nothing of."""
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", y)
        tau = pm.Gamma("tau", 2, 1)
        W1 = pm.Normal("W1", 0, tau=tau, shape=(units, X.shape[1]))
        variance = pm.InverseGamma("variance", 3, 1)
        Z2 = pm.Normal("Z2", inputs @ W1.T, pm.math.sqrt(variance))
        X2 = pm.Normal("X2", pm.math.maximum(Z2, 0), 0.4)
        W2 = pm.Normal("W2", 0, 0.5, shape=units)
        b2 = pm.Normal("b2", 0, 1)
        precision = pm.Gamma("precision", 3, 1)
        pm.Normal("y", X2 @ W2 + b2, tau=precision, observed=targets)
    return model


CASES = {
    "two layers": (lambda X, y: nns.intermediate_noise_mlp(X, y, hidden=(4, 2), noise=0.2), Y),
    "probit": (
        lambda X, y: nns.intermediate_noise_mlp(
            X, y, hidden=(2,), noise=0.3, activation="abs", likelihood="probit"
        ),
        (CLASSES > 0).astype(int),
    ),
    "classes": (
        lambda X, y: nns.intermediate_noise_mlp(
            X, y, hidden=(2,), noise=0.3, likelihood="multinomial_probit"
        ),
        CLASSES,
    ),
    "learnt scales": (learnt, Y),
    "missing inputs": (
        lambda X, y: nns.intermediate_noise_mlp(X, y, hidden=(2,), noise=0.3, missing="impute"),
        Y,
    ),
}


def split(y, n_shards, X=X):
    """Shards of different sizes."""
    ends = np.cumsum(np.arange(1, n_shards + 1)) * len(y) // (n_shards * (n_shards + 1) // 2)
    return [
        {"inputs": X[start:end], "targets": y[start:end]}
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def pool_of(model, shards, scan="sequential"):
    planned = rounds_of(model, NAMES, scan)
    told = instructions(model, planned, NAMES, scan)
    return SharedDraws(model, planned), ShardPool(told, shards, None)


@pytest.mark.parametrize(
    ("case", "scan"),
    [
        ("two layers", "sequential"),
        ("two layers", "parallel"),
        ("classes", "sequential"),
        slow("missing inputs", "sequential"),
        slow("probit", "sequential"),
        slow("learnt scales", "sequential"),
    ],
)
def test_one_shard_has_the_draws_of_a_local_sweep(case, scan):
    build, y = CASES[case]
    x = WITH_GAPS if case == "missing inputs" else X
    model = build(x, y)
    shared, pool = pool_of(build(x[20:50], y[20:50]), split(y, 1, x), scan)
    [shard] = pool.members
    shared.begin(0)
    pool.begin([1], shared.natural())
    point = {**shard.point, **shared.point}

    planned = rounds_of(model, NAMES, scan)
    order = [c for each in planned.rounds for c in (*each.rows, *each.shared)]
    local = Sweep(model, order, shapes_of(model), c_by_default())
    rng, changed = np.random.default_rng(3), {}
    shared.rng = np.random.default_rng(3)
    for _ in range(5):
        rng, values, *_ = local(rng, point)
        point.update(values)
        for which in range(len(shared.rounds)):
            shard.rng = shared.rng
            said = pool.draw(which, changed)
            shared.rng = shard.rng
            changed = shared.draw(which, said)
    shard.point.update(changed)
    assert point.keys() == shard.point.keys()
    for name, value in point.items():
        np.testing.assert_allclose(shard.point[name], value, rtol=1e-9, err_msg=name)


def sums_at(model, point, scan="sequential"):
    """What the shared draws of a sweep are given at a point, and the parts of rows in it."""
    planned, rng = rounds_of(model, NAMES, scan), pt.random.rng("rng")
    said = [
        part
        for each in planned.rounds
        for conditional in each.shared
        for part in _sums_over_rows(model, planned, conditional, rng)[1]
    ]
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    sums = pytensor.function(
        [rng, *values],
        substitute(said, natural_values(model)),
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    return sums(np.random.default_rng(0), *(point[value.name] for value in values))


@pytest.mark.slow
def test_sums_with_missing_inputs_add():
    """Entries of one shard taken for those of another; one that has no gap in a column."""
    build, y = CASES["missing inputs"]
    model = build(WITH_GAPS, y)
    start = model.initial_point()
    point = {name: RNG.gamma(2.0, size=np.shape(value)) for name, value in start.items()}
    models = []
    for shard in split(y, 2, WITH_GAPS):
        template = build(WITH_GAPS[20:50], y[20:50])
        models.append(with_gaps(template, _exchange(template, shard)))
    parts = [dict(point) for _ in models]
    ends = [len(models[0]["targets"].get_value())]
    for name, value in point.items():
        rows = np.arange(len(y)) if np.shape(value)[:1] == (len(y),) else None
        if name.endswith("missing"):
            [rows] = np.nonzero(GAPS[:, int(name.split("::")[1][0])])
        if rows is not None:
            for part, own in zip(parts, np.split(value, np.searchsorted(rows, ends)), strict=True):
                part[name] = own
    assert len(parts[0]["inputs::1_missing"]) == 0
    found = added([sums_at(*each) for each in zip(models, parts, strict=True)])
    for one, other in zip(found, sums_at(model, point), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_missing_inputs_that_no_shard_can_have_are_named():
    build, y = CASES["missing inputs"]
    elsewhere = {"inputs": np.where(np.arange(3) == 0, np.nan, X), "targets": y}
    with pytest.raises(
        ValueError, match=r"NaN .*; remove those rows, or have gaps there in the model too"
    ):
        _exchange(build(WITH_GAPS, y), elsewhere)
    table = pd.DataFrame({"a": X[:, 0], "city": np.where(X[:, 1] > 0, "Aix", "Brest")})
    table.loc[:3, "city"] = None
    with pytest.raises(
        nns.laws.NotConjugate, match="inputs has missing levels in the column 'city'"
    ):
        rounds_of(build(table, y), NAMES)


def linear():
    """A linear model, of which each sweep is an independent draw of the posterior."""
    y = X @ [1.0, -0.5, 0.2] + 0.3 * RNG.normal(size=len(X))
    return nns.intermediate_noise_mlp(X[:4], y[:4], hidden=(), noise=0.5, weight_precision=30), y


def z_scores_of_linear_posterior(n_draws=2000):
    model, y = linear()
    shared, pool = pool_of(model, split(y, 3))
    shared.begin(0)
    pool.begin([1, 2, 3], shared.natural())
    said = pool.draw(0, {})
    draws = []
    for _ in range(n_draws):
        shared.draw(0, said)
        draws.append([*shared.point["W1"].ravel(), *shared.point["b1"]])
    design = np.column_stack([X, np.ones(len(X))])
    covariance = np.linalg.inv(design.T @ design / 0.5 + np.diag([30.0] * 3 + [3.0]))
    white = np.linalg.solve(
        np.linalg.cholesky(covariance), (np.array(draws) - covariance @ design.T @ y / 0.5).T
    )
    means = white.mean(1) * np.sqrt(n_draws)
    squares = (white @ white.T - n_draws * np.eye(4))[np.triu_indices(4)] / np.sqrt(2 * n_draws)
    return np.abs([*means, *squares])


def test_several_shards_have_a_conjugate_posterior():
    assert z_scores_of_linear_posterior().max() < 4


@pytest.mark.parametrize("planted", ["a shard counts twice", "a prior for each shard"])
def test_planted_errors_of_sums_are_seen(monkeypatch, planted):
    def draw(self, which, said):
        if planted == "a shard counts twice":
            return original(self, which, [*said, said[0]])
        information, linear = said[0]
        prior = np.diag([30.0] * 3 + [3.0])
        return original(self, which, [[information + prior, linear], *said[1:]])

    original = SharedDraws.draw
    monkeypatch.setattr(SharedDraws, "draw", draw)
    assert z_scores_of_linear_posterior().max() > 10


class Sharded:
    """Sweeps over shards as a step of a whole model, for Geweke's test."""

    def __init__(self, model, shards):
        self.shared, self.pool = pool_of(model, shards)
        self.sizes = np.cumsum([len(shard["inputs"]) for shard in shards])[:-1]
        self.model = model

    def setup_chain(self, rng, tune, draws):
        self.shared.begin(int(rng.integers(2**31)))
        seeds = rng.integers(2**31, size=len(self.pool.members))
        self.pool.begin(list(seeds), self.shared.natural())

    def step(self, point):
        shards = self.pool.members
        shared = {name: point[name] for name in self.shared.point}
        rows = {name: value for name, value in point.items() if name not in shared}
        rows["targets"] = self.model["targets"].get_value()
        for name, value in rows.items():
            for shard, part in zip(shards, np.split(value, self.sizes), strict=True):
                if name == "targets":
                    shard._model[name].set_value(part)
                else:
                    shard.point[name] = part
        for shard in shards:
            for each in shard._rounds:
                each.refresh_if_data_changed()
        self.shared.point.update(shared)
        changed = sampling.sweep(self.pool, self.shared, shared)
        assert changed.keys() <= shared.keys()
        drawn = {
            name: np.concatenate([shard.point[name] for shard in shards])
            for name in point
            if name in rows
        }
        return {**point, **drawn, **self.shared.point}, []


@pytest.mark.slow
def test_sweeps_over_shards_leave_the_joint_distribution():
    """With scales that are learnt from sums of squares."""
    model = learnt(X[:9], Y[:9])
    step = Sharded(model, split(Y[:9], 3))
    z = joint_z_scores(step, model, "targets", transitions=3000, seed=5)
    assert max(map(abs, z.values())) < bonferroni_limit(len(z), LEVEL)


@pytest.fixture(scope="module")
def network():
    model = nns.intermediate_noise_mlp(X[:20], Y[:20], hidden=(2,), noise=0.2)
    options = {"draws": 20, "tune": 5, "chains": 2, "random_seed": 4, "progressbar": False}
    return model, split(Y, 2), options, sample_sharded(model, split(Y, 2), **options)


def assert_same_draws(idata, expected):
    for name, draws in expected.posterior.items():
        np.testing.assert_array_equal(idata.posterior[name], draws)


@pytest.mark.slow
def test_a_run_that_stopped_goes_on(network, tmp_path, monkeypatch):
    model, shards, options, expected = network
    assert expected.posterior["W1"].dims == ("chain", "draw", "hidden1", "feature")
    sweeps = []

    def until(pool, shared, changed):
        if len(sweeps) == 38:
            raise KeyboardInterrupt
        sweeps.append(None)
        return original(pool, shared, changed)

    original = sampling.sweep
    monkeypatch.setattr(sampling, "sweep", until)
    with pytest.raises(KeyboardInterrupt):
        sample_sharded(model, shards, **options, store=tmp_path, checkpoint_every=7)
    monkeypatch.undo()
    assert_same_draws(
        sample_sharded(model, shards, **options, store=tmp_path, checkpoint_every=7), expected
    )
    with pytest.raises(ValueError, match=r"holds a run that differs in draws \(20, now 30\)"):
        sample_sharded(model, shards, **{**options, "draws": 30}, store=tmp_path)
    steeper = nns.intermediate_noise_mlp(X[:20], Y[:20], hidden=(2,), noise=0.2, activation="abs")
    with pytest.raises(ValueError, match="differs in log density of X2"):
        sample_sharded(steeper, shards, **options, store=tmp_path)
    with pytest.raises(ValueError, match="holds a run with other rows in a shard"):
        sample_sharded(model, shards[::-1], **options, store=tmp_path)
    with writing(tmp_path), pytest.raises(RuntimeError, match="another process is writing"):
        sample_sharded(model, shards, **options, store=tmp_path)
    for file in sorted(tmp_path.glob("*.pickle"), reverse=True):
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(ValueError, match=f"{file} is lost or damaged"):
            sample_sharded(model, shards, **options, store=tmp_path)


@pytest.mark.slow
def test_a_shard_that_is_lost_changes_nothing(network, tmp_path, monkeypatch):
    """One whose worker is closed, and one that has been made anew behind our back."""
    model, shards, options, expected = network
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        rounds = []

        def disturbed(self, which, changed):
            if len(rounds) == 18:
                planned = rounds_of(model, NAMES, "sequential")
                told = instructions(model, planned, NAMES, "sequential")
                anew = client.submit(Shard, told, shards[0], actor=True, workers=[self.workers[0]])
                self.members[0] = anew.result()
            if len(rounds) == 31:
                [worker] = [
                    worker
                    for worker in cluster.workers.values()
                    if worker.address == self.workers[1]
                ]
                cluster.sync(worker.close)
            rounds.append(None)
            return original(self, which, changed)

        original = ShardPool.draw
        monkeypatch.setattr(ShardPool, "draw", disturbed)
        idata = sample_sharded(model, shards, client, **options, store=tmp_path, checkpoint_every=7)
    assert len(rounds) > 50
    assert_same_draws(idata, expected)


@pytest.mark.slow
def test_shards_in_groups_have_the_same_draws_wherever_they_are(network, tmp_path, monkeypatch):
    """Also where a worker is lost that speaks to a group, and one that belongs to another's."""
    model, _, options, _ = network
    options = {**options, "draws": 8, "tune": 0, "chains": 1}
    apart = sample_sharded(model, split(Y, 4), **options)
    monkeypatch.setattr(sampling, "GROUPED_FROM", 4)
    monkeypatch.setattr(sampling, "PATIENCE", 2.0)
    expected = sample_sharded(model, split(Y, 4), **options)
    for name, draws in apart.posterior.items():
        np.testing.assert_allclose(expected.posterior[name], draws, rtol=1e-6)
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        relays = []

        def disturbed(self, which, changed):
            relays.append([relay.key for relay in self._relays])
            if len(relays) == 4:
                [worker] = [
                    worker
                    for worker in cluster.workers.values()
                    if worker.address == self.workers[0]
                ]
                cluster.sync(worker.close)
            return original(self, which, changed)

        original = ShardPool.draw
        monkeypatch.setattr(ShardPool, "draw", disturbed)
        idata = sample_sharded(model, split(Y, 4), client, **options, store=tmp_path)
    assert_same_draws(idata, expected)
    first, *_, last = relays
    assert all(map(ne, first, last))


def test_groups_are_as_many_as_their_shards():
    assert [sampling.group_size(n) for n in (1, 4, 15, 16, 100, 256)] == [1, 1, 1, 4, 10, 16]


def test_bad_input_is_named():
    model, y = linear()
    with pytest.raises(ValueError, match="shards must have at least one"):
        sample_sharded(model, [])
    with pytest.raises(ValueError, match=r"for a single one pass \[shards\]"):
        sample_sharded(model, split(y, 1)[0])
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client .*; got 'tcp:"):
        sample_sharded(model, split(y, 1), "tcp://127.0.0.1:8786")
    with pytest.raises(ValueError, match=r"must replace data containers .*; got rows"):
        sample_sharded(model, split(y, 1), rows=["rows"])
    for shard, message in [
        ({"inputs": X}, "a shard must hold inputs, targets; got inputs"),
        ({"inputs": X[:3], "targets": y}, "must have the same number of rows"),
        ({"inputs": X[:, :2], "targets": y}, r"inputs of a shard must have shape \(rows, 3\)"),
        (lambda: {"inputs": X, "targets": y * np.nan}, "targets of a shard has 60 NaN"),
        ({"inputs": X, "targets": y.astype(str)}, "targets of a shard must be numeric; got dtype"),
        (
            {"inputs": pd.DataFrame(X), "targets": pd.Series(y, index=range(1, len(y) + 1))},
            "targets of a shard has other row labels than inputs of a shard",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            sample_sharded(model, [shard], progressbar=False)


def test_columns_of_a_shard_are_known_by_their_names():
    """Taken by their positions, the weights of one input would be those of another."""
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    named["city"] = np.where(X[:, 0] > 0, "north", "south")
    model = nns.intermediate_noise_mlp(named[:9], Y[:9], hidden=(), noise=0.2)
    shuffled = {"inputs": named[["c", "city", "a", "b"]], "targets": pd.Series(Y)}
    _, pool = pool_of(model, [shuffled])
    [shard] = pool.members
    expected = np.column_stack([X, X[:, 0] > 0, X[:, 0] <= 0])
    np.testing.assert_array_equal(shard._model["inputs"].get_value(), expected)


def test_groups_of_a_shard_are_known_by_their_labels():
    with pm.Model(coords={"city": ["Aix", "Brest"]}) as model:
        pm.Normal("a", dims="city")[pm.Data("group", [0, 1])]
        pm.Normal("y", pm.math.zeros(2) + model["a"][model["group"]], observed=[0.0, 1.0])
    _exchange(model, {"group": ["Brest", "Aix", "Brest"]})
    np.testing.assert_array_equal(model["group"].get_value(), [1, 0, 1])
    with pytest.raises(ValueError, match=r"group of a shard has the labels 'Caen', but the model"):
        _exchange(model, {"group": ["Caen", "Aix"]})


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_targets_of_the_model_are_named():
    y = np.where(np.arange(9) == 4, np.nan, Y[:9])
    model = nns.intermediate_noise_mlp(X[:9], y, hidden=(2,), noise=0.2)
    with pytest.raises(
        nns.laws.NotConjugate, match=r"y has missing observations.* leave out their rows"
    ):
        rounds_of(model, ["inputs"])


def test_classes_that_the_model_does_not_have():
    """Each of them was taken for another class, without a word."""
    build, y = CASES["probit"]
    model = build(X[:9], y[:9])
    for targets, message in [
        (0.9 * y, "targets of a shard must hold whole numbers, as in the model; got other values"),
        (np.where(y, np.nan, 0.0), "targets of a shard must hold whole numbers"),
        (2 * y, "y of a shard has values that are impossible in the model"),
    ]:
        with pytest.raises(ValueError, match=message):
            sample_sharded(model, [{"inputs": X, "targets": targets}], progressbar=False)

"""What the Metropolis-Hastings steps share: carried values, adaptation, and ``pm.sample``."""

from collections import Counter

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_nnsteps as nns
from pymc_nnsteps.steps.metropolis import flat
from tests.cases import slow
from tests.statistics import Z_LIMIT, assert_chain_moments, batch_means_z_scores
from tests.steps.cases import CASES, assert_same, run
from tests.steps.chains import chain
from tests.steps.gaussian import PRIORS, regression
from tests.zoo import smooth_network

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
FORK_WARNS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
METROPOLIS = [name for name in CASES if name.startswith(("pcn", "mala"))]

# --- nothing is evaluated twice ------------------------------------------------------------

COUNTS = Counter()


class Counted(Op):
    """``-sum x^4 / 4``, and how often it was asked for."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        COUNTS["value"] += 1
        outputs[0][0] = np.array(-np.sum(inputs[0] ** 4) / 4)

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] * CountedGradient()(inputs[0])]


class CountedGradient(Op):
    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        COUNTS["gradient"] += 1
        outputs[0][0] = -(inputs[0] ** 3)


def counted():
    with pm.Model() as model:
        f = pm.Normal("f", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=3)
        pm.Normal("idle")
        pm.Potential("p", Counted()(f * pm.Data("data", np.ones(3))))
    return model


KINDS = {nns.PCN: ("beta", 0.6), nns.PCNL: ("delta", 0.5), nns.MALA: ("step_size", 1.0)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_costs_one_evaluation(kind):
    """The place evaluated again at each step; a gradient that PCN does not need."""
    model = counted()
    name, size = KINDS[kind]
    step = kind(["f"], model=model, steps=3, **{name: size})

    def cost(action):
        COUNTS.clear()
        result = action()
        gradients = 0 if kind is nns.PCN else COUNTS["value"]
        assert COUNTS["gradient"] == gradients
        return COUNTS["value"], result

    def steps(start):
        return cost(lambda: run(step, start, 10)[0][-1])

    step.setup_chain(np.random.default_rng(0), 0, 100)
    spent, point = steps(model.initial_point())
    assert spent == 1 + 30
    spent, point = steps(point)
    assert spent == 30
    spent, point = steps(point | {"idle": np.array(2.0)})
    assert spent == 30
    for moved in ({"mu": np.array(0.3)}, {"sigma_log__": np.array(-0.5)}, {"f": np.ones(3)}):
        spent, point = steps(point | moved)
        assert spent == 1 + 30
    model.set_data("data", 2 * np.ones(3))
    spent, point = steps(point)
    assert spent == 1 + 30
    step.setup_chain(np.random.default_rng(1), 0, 100)
    assert steps(point)[0] == 1 + 30


@pytest.mark.parametrize("name", METROPOLIS)
def test_carried_values_are_those_of_a_fresh_evaluation(name):
    """A place that a rejected proposal, another variable or new data have left behind."""
    model = CASES[name].build()
    step = CASES[name].make(model)
    step.setup_chain(np.random.default_rng(0), 50, 50)
    point = model.initial_point()
    others = [n for n in step._proposal.others if n not in step._proposal.values]
    logp = model.compile_logp(mode="FAST_COMPILE")
    for i in range(30):
        point, [stats] = step.step(point)
        fresh = step._proposal.locate(step._proposal.read(point))
        carried = step.current.place
        for one, other in zip(
            [carried.log_density, *carried.coordinates, *carried.gradient],
            [fresh.log_density, *fresh.coordinates, *fresh.gradient],
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
        if step._density == "log_density" and not others:
            np.testing.assert_allclose(stats["log_density"], logp(point), rtol=1e-10)
        if i % 10 == 9:
            for other in others:
                point[other] = point[other] + 0.1
        if i % 10 == 4:
            model.set_data("targets", model["targets"].get_value() + 0.1)


# --- adaptation ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (nns.PCN, None),
        slow(nns.PCN, 0.5),
        slow(nns.PCNL, None),
        (nns.PCNL, 0.9),
        (nns.MALA, 0.574),
    ],
)
def test_acceptance_after_tuning(kind, target):
    """A sign, or a logarithm: the bias that dual averaging has by itself is .02 at most."""
    model, variables = regression(PRIORS["several"], link=pm.math.tanh, noise=0.1)
    options = {} if target is None else {"target_accept": target}
    step = kind(variables, model=model, **options)
    _, acceptance = chain(step, model.initial_point(), 4_000, tune=4_000)
    default = {nns.PCN: 0.234, nns.PCNL: 0.574, nns.MALA: 0.574}[kind]
    target = default if target is None else target
    z = batch_means_z_scores(acceptance - target)
    error = abs(acceptance.mean() - target) / abs(z)
    assert abs(acceptance.mean() - target) < 0.02 + Z_LIMIT * error


@pytest.fixture(scope="module")
def adapted():
    model, variables = regression(PRIORS["normal"], noise=0.3)
    return model, nns.PCNL(variables, model=model)


def sizes_of(step, point, n):
    return [stats["proposal_size"] for stats in run(step, point, n)[1]]


def test_size_is_frozen_after_tuning(adapted):
    """Adaptation that goes on breaks the balance."""
    model, step = adapted
    step.setup_chain(np.random.default_rng(0), 100, 50)
    while_tuned = sizes_of(step, model.initial_point(), 100)
    assert len(set(while_tuned)) > 90
    step.stop_tuning()
    kept = set(sizes_of(step, model.initial_point(), 50))
    assert len(kept) == 1
    assert min(while_tuned) < kept.pop() < max(while_tuned)


def test_chains_adapt_by_themselves(adapted):
    """A second chain that goes on from the size of the first."""
    model, step = adapted
    results = []
    for _ in range(2):
        step.setup_chain(np.random.default_rng(1), 60, 10)
        results.append(sizes_of(step, model.initial_point(), 60))
        step.stop_tuning()
        results[-1] += sizes_of(step, model.initial_point(), 10)
    assert results[0] == results[1]
    assert results[0][0] == pytest.approx(1 / 11)


def test_no_tuning(adapted):
    """Without a tuning phase nothing is adapted, and the size that the step has is kept."""
    model, step = adapted
    step.stop_tuning()
    kept = step.size
    step.setup_chain(np.random.default_rng(0), 0, 20)
    assert set(sizes_of(step, model.initial_point(), 20)) == {kept}


@pytest.mark.parametrize("kind", KINDS)
def test_a_given_size_is_kept(kind):
    """Tuned over although it was given."""
    model, variables = regression(PRIORS["normal"], noise=0.3)
    name, size = KINDS[kind]
    step = kind(variables, model=model, **{name: size})
    step.setup_chain(np.random.default_rng(0), 50, 10)
    tuned = sizes_of(step, model.initial_point(), 50)
    step.stop_tuning()
    [kept] = {*tuned, *sizes_of(step, model.initial_point(), 10)}
    assert kept == pytest.approx(np.sqrt(8 * size) / (2 + size) if name == "delta" else size)


@pytest.mark.parametrize("kind", KINDS)
def test_recovers_from_a_start_far_away(kind):
    """All is accepted on the way in and nothing at first when there, or the reverse."""
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=20, initval=np.full(20, 30.0))
        pm.Normal("y", f, 0.1, observed=np.zeros(20))
    step = kind([f], model=model)
    with np.errstate(over="raise", invalid="raise"):
        draws, acceptance = chain(step, model.initial_point(), 2_000, tune=6_000)
    assert abs(acceptance.mean() - step._target) < 0.1
    assert np.abs(draws).max() < 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_number_is_never_accepted(kind):
    """A comparison with NaN that is false on the wrong side."""
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, initval=0.5)
        pm.Potential("p", pt.switch(f < 0, np.nan, 0.0))
    step = kind([f], model=model, **dict([KINDS[kind]]))
    draws, acceptance = chain(step, model.initial_point(), 300)
    assert draws.min() >= 0
    assert np.any(acceptance == 0)
    assert np.any(acceptance == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_that_many_proposals(kind):
    """Thinning that forgets to adapt, or reports the last proposal for the mean."""
    model, variables = regression(PRIORS["normal"], noise=0.3)
    once = kind(variables, model=model)
    thrice = kind(variables, model=model, steps=np.int64(3))
    for step in (once, thrice):
        step.setup_chain(np.random.default_rng(0), 9, 9)
    points, stats = run(once, model.initial_point(), 9)
    thinned, thinned_stats = run(thrice, model.initial_point(), 3)
    assert_same(thinned, points[2::3])
    acceptance = np.reshape([s["acceptance_probability"] for s in stats], (3, 3)).mean(1)
    expected = [s["acceptance_probability"] for s in thinned_stats]
    np.testing.assert_allclose(expected, acceptance, rtol=1e-14)
    assert [s["proposal_size"] for s in thinned_stats] == [s["proposal_size"] for s in stats[2::3]]


# --- through pm.sample ---------------------------------------------------------------------

FEW = QUIET | {"draws": 8, "tune": 6, "chains": 2, "random_seed": 11}


def mixed(model):
    return [
        nns.PCN(["W1"], model=model),
        nns.PCNL(["w2", "b2"], model=model, steps=2),
        pm.NUTS([model["sigma"]], model=model),
    ]


@FORK_WARNS
def test_processes_draw_the_same_bits():
    """A point that another process writes over, or a generator that is shared."""
    model = smooth_network()
    one, two = (pm.sample(model=model, step=mixed(model), cores=cores, **FEW) for cores in (1, 2))
    for name, values in one["posterior"].data_vars.items():
        np.testing.assert_array_equal(two["posterior"][name], values, err_msg=name)
    for name in ("acceptance_probability", "proposal_size", "log_likelihood"):
        values = one["sample_stats"][name]
        assert values.shape == (2, 8, 2)
        np.testing.assert_array_equal(two["sample_stats"][name], values)
        assert np.isfinite(values).all()
    assert "tree_depth" in one["sample_stats"]
    sizes = one["sample_stats"]["proposal_size"].values
    np.testing.assert_array_equal(sizes, np.broadcast_to(sizes[:, :1], sizes.shape))
    first, second = one["posterior"]["W1"].values
    assert not np.any(first[-1] == second[-1])


def test_statistics_of_mala():
    model = smooth_network()
    step = nns.MALA(model=model)
    idata = pm.sample(model=model, step=step, cores=1, **FEW)
    assert set(idata["sample_stats"].data_vars) == {
        "acceptance_probability",
        "proposal_size",
        "log_density",
    }
    assert idata["sample_stats"]["log_density"].shape == (2, 8)


def test_progress_bar_is_drawn(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    model, variables = regression(PRIORS["normal"])
    options = {k: v for k, v in FEW.items() if k not in ("progressbar", "quiet")}
    step = nns.PCN(variables, model=model)
    pm.sample(model=model, step=step, cores=1, progressbar=True, **options)
    assert "Step size" in capsys.readouterr().out


def test_new_data_between_calls_of_sample():
    """A step that is used again has an old log density in its hands."""
    model, variables = regression(PRIORS["normal"], noise=0.3)
    step = nns.PCNL(variables, model=model, beta=0.5)
    options = QUIET | {"draws": 200, "tune": 50, "chains": 1, "cores": 1, "random_seed": 1}
    pm.sample(model=model, step=step, **options)
    model.set_data("targets", np.array([3.0, -2.0, 1.0]))
    again = pm.sample(model=model, step=step, **options)["posterior"]["theta"]
    step = nns.PCNL(variables, model=model, beta=0.5)
    fresh = pm.sample(model=model, step=step, **options)["posterior"]["theta"]
    np.testing.assert_array_equal(again, fresh)


def latent_process(*, reparameterize):
    x = np.linspace(0, 1, 5)
    with pm.Model() as model:
        process = pm.gp.Latent(cov_func=1.2**2 * pm.gp.cov.Matern52(1, 0.5))
        f = process.prior("f", X=x[:, None], reparameterize=reparameterize)
        pm.Poisson("y", pm.math.exp(f), observed=[0, 2, 5, 1, 0])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nns.PCN, nns.PCNL])
def test_gaussian_process_in_either_parametrisation(kind):
    """The prior that is whitened by PyMC or by the step: one posterior of the function."""
    moments = []
    for reparameterize, seed in ((True, 1), (False, 2)):
        model = latent_process(reparameterize=reparameterize)
        name = "f_rotated_" if reparameterize else "f"
        step = kind([name], beta=0.5, steps=4, model=model)
        options = QUIET | {"draws": 5_000, "tune": 100, "chains": 1, "cores": 1}
        idata = pm.sample(model=model, step=step, random_seed=seed, **options)
        f = idata["posterior"]["f"].values[0]
        moments.append(np.column_stack([f, f**2, f[:, :-1] * f[:, 1:]]))
    first, second = moments
    difference = first.mean(0) - second.mean(0)
    errors = [(m.mean(0) - 99.0) / batch_means_z_scores(m - 99.0) for m in moments]
    assert np.all(np.abs(difference / np.hypot(*errors)) < Z_LIMIT)


@pytest.mark.parametrize("kind", [nns.PCNL, nns.MALA])
def test_a_gradient_that_is_not_finite_at_the_start(kind):
    """NaN in every proposal, and a chain that stays where it is for ever."""
    with pm.Model() as model:
        f = pm.Normal("f", 0, 1, shape=2)
        pm.Normal("y", pm.math.sqrt((f**2).sum()), 1, observed=1.0)
        step = kind([f], rng=np.random.default_rng(0))
    point = model.initial_point()
    for _ in range(50):
        point, _ = step.step(point)
    assert np.all(point["f"] != 0)


# --- a state that is restored --------------------------------------------------------------


def set_anew(model):
    model.set_data("targets", np.array([3.0, -2.0]))
    model.set_data("means", np.array([0.5, 5.0]))


def edited_in_place(model):
    model["targets"].get_value(borrow=True)[:] = [3.0, -2.0]
    model["means"].get_value(borrow=True)[:] = [0.5, 5.0]


@pytest.mark.parametrize("change", [set_anew, edited_in_place])
@pytest.mark.parametrize("kind", KINDS)
def test_restored_after_the_data_have_changed(kind, change):
    """The log density of the old data: a chain that may never move again."""
    with pm.Model() as model:
        f = pm.Normal("f", pm.Data("means", np.zeros(2)), 1, shape=2)
        pm.Normal("y", f, 0.1, observed=pm.Data("targets", np.zeros(2)))
    step = kind([f], model=model, **dict([KINDS[kind]]))
    point = run(step, model.initial_point(), 5)[0][-1]
    state = step.sampling_state
    change(model)
    step.sampling_state = state
    carried = step._locate(point).place
    expected = kind([f], model=model, **dict([KINDS[kind]]))._locate(point).place
    for one, other in zip(flat(carried), flat(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# --- siblings and names of dimensions ------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_entries_of_a_vector_that_are_not_observed():
    """The entries without the density that they share with those that are: a flat target."""
    cov = np.array([[1.0, 0.8], [0.8, 1.0]])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.MvNormal("y", mu, cov, observed=np.ma.masked_array([1.5, 0.0], [False, True]))
        steps = [
            nns.PCN([mu], beta=0.8, steps=3),
            nns.MALA(["y_unobserved"], step_size=0.8, steps=3),
        ]
    point, rng, draws = model.initial_point(), np.random.default_rng(0), []
    for step in steps:
        step.setup_chain(rng, 0, 0)
    for _ in range(8_000):
        for step in steps:
            point, _ = step.step(point)
        draws.append(np.append(point["mu"], point["y_unobserved"]))
    joint = np.block([[np.eye(2), np.eye(2)], [np.eye(2), np.eye(2) + cov]])
    kept = [0, 1, 3]
    gain = joint[kept, 2] / joint[2, 2]
    covariance = joint[np.ix_(kept, kept)] - np.outer(gain, joint[2, kept])
    assert_chain_moments(draws[100:], gain * 1.5, covariance)


def test_mala_of_named_dimensions():
    """A value that is no tensor, or the axes of one variable for those of another."""
    y = np.array([[0.5, 1.0, 3.0], [-0.5, 0.0, 1.5]])
    with pm.Model(coords={"a": range(2), "b": range(3)}) as model:
        f = pmd.Normal("f", pmd.as_xtensor([0.0, 1.0], dims="a"), 2.0, dims=("b", "a"))
        pmd.Normal("y", f, 1.0, observed=pmd.as_xtensor(y, dims=("a", "b")))
    step = nns.MALA([f], step_size=0.7, steps=3, model=model)
    draws = chain(step, model.initial_point(), 10_000, burn=100)[0]
    mean = (np.array([[0.0], [1.0]]) / 4 + y) / 1.25
    assert_chain_moments(draws, mean.T.ravel(), np.eye(6) / 1.25)

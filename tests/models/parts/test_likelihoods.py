"""Laws of targets given a network's outputs: densities, predictions, and what is refused."""

import re
from typing import get_args

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import scipy.stats
from numpy.testing import assert_allclose

import pymc_nnsteps as nns
from pymc_nnsteps.models.parts.likelihoods import LIKELIHOODS, AnyNetwork
from tests.cases import slow
from tests.modes import AS_WRITTEN
from tests.prediction.draws import made_up

rng = np.random.default_rng(0)
N_OBS = 12
X = rng.normal(size=(N_OBS, 2))
NEW = rng.normal(size=(5, 2))
EXPOSURE = rng.uniform(0.5, 3.0, size=N_OBS)
CENSORED = np.arange(N_OBS) % 3 == 0
COUNTS = rng.poisson(2.0, size=N_OBS)
POSITIVE = rng.gamma(2.0, size=N_OBS)
CLASSES = np.arange(N_OBS) % 3
GRADES = pd.Categorical.from_codes(CLASSES, ["low", "fair", "high"], ordered=True)


def with_dispersion(law):
    return lambda f: law(f, pm.HalfNormal("dispersion"))


def by_shares(f):
    below = pm.math.cumsum(pm.Dirichlet("shares", np.ones(3)))[:-1]
    pm.OrderedLogistic("y", eta=f, cutpoints=pm.math.logit(below), observed=CLASSES)


CENSORING = np.where(CENSORED, POSITIVE, np.inf)

CASES = {
    "bernoulli": (
        {"y": CLASSES > 0},
        lambda f: pm.Bernoulli("y", pm.math.sigmoid(f), observed=CLASSES > 0),
    ),
    "categorical": (
        {"y": CLASSES},
        lambda f: pm.Categorical("y", pm.math.softmax(f, axis=-1), observed=CLASSES),
    ),
    "poisson": (
        {"y": COUNTS, "exposure": EXPOSURE},
        lambda f: pm.Poisson("y", pm.math.exp(f + np.log(EXPOSURE)), observed=COUNTS),
    ),
    "negative_binomial": (
        {"y": COUNTS, "exposure": EXPOSURE},
        with_dispersion(
            lambda f, d: pm.NegativeBinomial(
                "y", mu=pm.math.exp(f + np.log(EXPOSURE)), alpha=1 / d**2, observed=COUNTS
            )
        ),
    ),
    "gamma": (
        {"y": POSITIVE},
        with_dispersion(
            lambda f, d: pm.Gamma(
                "y", mu=pm.math.exp(f), sigma=d * pm.math.exp(f), observed=POSITIVE
            )
        ),
    ),
    "ordered": ({"y": GRADES}, by_shares),
    "weibull": (
        {"y": POSITIVE, "censored": CENSORED},
        with_dispersion(
            lambda f, d: pm.Censored(
                "y",
                pm.Weibull.dist(1 / d, pm.math.exp(f)),
                lower=None,
                upper=CENSORING,
                observed=POSITIVE,
            )
        ),
    ),
}
"""Targets and what goes with them, and the law as users of PyMC would write it."""

GAUSSIAN = {"shrinkage": nns.models.Shrinkage("gaussian", weight_var=0.5), "bias_var": 1.0}
NETWORKS = {
    "hierarchical": (nns.hierarchical_mlp, {}, {}),
    "wide": (nns.wide_mlp, {}, {"reparametrize": False}),
    "intermediate_noise": (
        nns.intermediate_noise_mlp,
        {"noise": {"pre": 0.1, "post": 0.2, "output": 0.3}},
        {},
    ),
    "bow_tie": (nns.bow_tie, GAUSSIAN, {}),
}


def network(likelihood, **options):
    """A small hierarchical network."""
    given = {**CASES[likelihood][0], **options}
    return nns.hierarchical_mlp(X, given.pop("y"), hidden=(3,), likelihood=likelihood, **given)


def test_the_table_has_what_types_say():
    assert [name for name, law in LIKELIHOODS.items() if law.any_network] == [*get_args(AnyNetwork)]
    assert [*CASES] == [*get_args(AnyNetwork)]


@pytest.mark.parametrize(
    ("likelihood", "kind"),
    [
        *((law, "hierarchical") for law in CASES if law not in ("bernoulli", "categorical")),
        *(("poisson", kind) for kind in NETWORKS if kind != "hierarchical"),
        *(slow("weibull", kind) for kind in NETWORKS if kind != "hierarchical"),
        *(slow("categorical", kind) for kind in NETWORKS),
    ],
)
def test_density_is_that_of_a_block_and_a_law(likelihood, kind):
    """Beside what a user writes with PyMC's own distributions, at points about the start."""
    given, observe = CASES[likelihood]
    builder, both, alone = NETWORKS[kind]
    given = dict(given)
    built = builder(X, given.pop("y"), hidden=(3,), likelihood=likelihood, **given, **both, **alone)
    with pm.Model() as written:
        outputs = 3 if likelihood == "categorical" else None
        observe(getattr(nns.blocks, kind)(X, hidden=(3,), outputs=outputs, **both))
    start = built.initial_point(0)
    moved = np.random.default_rng(1)
    point = {
        name: value if value.dtype.kind == "i" else value + 0.3 * moved.normal(size=value.shape)
        for name, value in start.items()
    }
    named = {f"f::{name}": value for name, value in point.items()} | point
    values = [value.name for value in written.value_vars]
    assert len(values) == len(point)
    assert_allclose(
        built.compile_logp(mode=AS_WRITTEN)(point),
        written.compile_logp(mode=AS_WRITTEN)({name: named[name] for name in values}),
        rtol=1e-10,
    )


@pytest.mark.parametrize("likelihood", ["poisson", "weibull"])
def test_rows_of_data_can_be_exchanged(likelihood):
    """More exposure, and other durations that are censored."""
    name, new = {
        "poisson": ("exposure", 2 * EXPOSURE),
        "weibull": ("censored", ~CENSORED),
    }[likelihood]
    model, other = network(likelihood), network(likelihood, **{name: new})
    with model:
        pm.set_data({name: new})
    point = model.initial_point(0)
    densities = [each.compile_logp(mode=AS_WRITTEN)(point) for each in (model, other)]
    assert densities[0] == densities[1]


def responses_and_laws(likelihood, new):
    """Responses of many draws of one set of weights, their ``f``, and the model's parameters."""
    model = network(likelihood)
    draws = made_up(model, 1, 0.4)
    if likelihood == "ordered":
        draws["shares"] = ("chain", "draw", "class"), np.array([[[0.5, 0.2, 0.3]]])
    many = draws.isel(draw=np.zeros(4000, dtype=int)).assign_coords(draw=np.arange(4000))
    f = nns.predict(draws, NEW, model=model, output="f").values[0, 0]
    drawn = nns.predict(many, new, model=model, kind="response", random_seed=1).values[0]
    return model, draws, f, drawn


def test_new_counts_follow_the_exposure():
    exposure = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    _, draws, f, drawn = responses_and_laws(
        "negative_binomial", {"inputs": NEW, "exposure": exposure}
    )
    mean = exposure * np.exp(f[:, 0])
    d = draws["dispersion"].item()
    error = np.sqrt((mean + (d * mean) ** 2) / len(drawn))
    assert np.all(np.abs(drawn.mean(0)[:, 0] - mean) < 4 * error)


def test_new_durations_are_whole():
    """That of no new row is cut short, said to be censored or not."""
    censored = np.array([True, False, True, False, False])
    model, draws, f, drawn = responses_and_laws("weibull", NEW)
    rows = [NEW, {"inputs": NEW, "censored": censored}]
    one, other = (nns.predict(draws, X, model=model, kind="response", random_seed=1) for X in rows)
    np.testing.assert_array_equal(one, other)
    for row in range(len(NEW)):
        one = scipy.stats.weibull_min(1 / draws["dispersion"].item(), scale=np.exp(f[row, 0]))
        assert scipy.stats.kstest(drawn[:, row, 0], one.cdf).pvalue > 1e-3


def test_probabilities_of_ordered_classes():
    """Shares where ``f`` is zero; labelled; and the frequencies of responses."""
    model, draws, f, drawn = responses_and_laws("ordered", NEW)
    p = nns.predict(draws, NEW, model=model, kind="probability")
    assert list(p["output"].values) == ["low", "fair", "high"]
    cdf = scipy.special.expit(scipy.special.logit([0.5, 0.7]) - f)
    expected = np.diff(np.column_stack([np.zeros(5), cdf, np.ones(5)]), axis=1)
    assert_allclose(p.values[0, 0], expected, rtol=1e-7)
    shares = [(drawn[..., 0] == k).mean(0) for k in range(3)]
    assert np.all(np.abs(np.transpose(shares) - expected) < 4 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("likelihood", ["poisson", "weibull"])
def test_log_likelihood_of_rows(likelihood):
    model = network(likelihood)
    draws = made_up(model, 2, 0.4)
    f = nns.predict(draws, X, model=model, output="f").values[..., 0]
    found = nns.log_likelihood(draws, model, progressbar=False)["log_likelihood"]["y"].values
    if likelihood == "poisson":
        expected = scipy.stats.poisson(EXPOSURE * np.exp(f)).logpmf(COUNTS)
    else:
        shape = 1 / draws["dispersion"].values[..., None]
        law = scipy.stats.weibull_min(shape, scale=np.exp(f))
        expected = np.where(CENSORED, law.logsf(POSITIVE), law.logpdf(POSITIVE))
    assert_allclose(found, expected, rtol=1e-8)


WRONG = {
    "rates": (
        {"likelihood": "poisson", "y": COUNTS + 0.5},
        r"y must hold counts 0, 1, 2, .* at y\[0\]; for rates pass the counts, and .* exposure",
    ),
    "negative counts": ({"likelihood": "poisson", "y": COUNTS - 3}, "y must hold counts"),
    "missing counts": (
        {"likelihood": "poisson", "y": np.where(CENSORED, np.nan, COUNTS)},
        'y has 4 missing values, which likelihood="poisson" does not draw; leave these rows out',
    ),
    "boolean counts": (
        {"likelihood": "poisson", "y": CENSORED},
        'y is boolean, .* for two classes use likelihood="bernoulli"',
    ),
    "zero": (
        {"likelihood": "gamma", "y": POSITIVE * ~CENSORED},
        r'y must be positive with likelihood="gamma"; got 0 at y\[0\]',
    ),
    "text": (
        {"likelihood": "weibull", "y": ["a"] * N_OBS},
        'y must be numeric; .* for class labels use likelihood="categorical"',
    ),
    "labels": (
        {"likelihood": "ordered", "y": list("abc") * 4},
        r'labels without an order, .*"ordered" needs one; pass pandas.Categorical\(y, categories=',
    ),
    "categories": (
        {"likelihood": "ordered", "y": pd.Series(list("abc") * 4, dtype="category")},
        "labels without an order",
    ),
    "gaps": (
        {"likelihood": "ordered", "y": 2 * CLASSES},
        'y must hold consecutive integers with likelihood="ordered"',
    ),
    "exposure of real targets": (
        {"y": POSITIVE, "exposure": EXPOSURE},
        'exposure has no meaning with likelihood="normal"; leave it out',
    ),
    "censored counts": (
        {"likelihood": "poisson", "y": COUNTS, "censored": CENSORED},
        'censored has no meaning with likelihood="poisson"',
    ),
    "zero exposure": (
        {"likelihood": "poisson", "y": COUNTS, "exposure": EXPOSURE * ~CENSORED},
        r"exposure must be positive; got 0 at exposure\[0\]; leave such rows out",
    ),
    "exposure of other rows": (
        {"likelihood": "poisson", "y": COUNTS, "exposure": EXPOSURE[1:]},
        r"exposure must have shape \(12,\), one entry for each row of X; got \(11,\)",
    ),
    "missing exposure": (
        {"likelihood": "poisson", "y": COUNTS, "exposure": EXPOSURE * np.nan},
        "exposure has 12 NaN or infinite values",
    ),
    "censored numbers": (
        {"likelihood": "weibull", "y": POSITIVE, "censored": COUNTS + 2},
        "censored must be True where a duration is only known to exceed y",
    ),
    "sigma of counts": (
        {"likelihood": "poisson", "y": COUNTS, "sigma": 0.2},
        'sigma has no meaning with likelihood="poisson"',
    ),
    "unknown": ({"likelihood": "binomial", "y": COUNTS}, "for other laws put a network of nns"),
}


@pytest.mark.parametrize("case", WRONG)
def test_message(case):
    given, message = WRONG[case]
    given = dict(given)
    with pytest.raises(ValueError, match=message) as caught:
        nns.hierarchical_mlp(X, given.pop("y"), hidden=(3,), **given)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("builder", "given", "message"),
    [
        (nns.wide_mlp, {}, 'likelihood="poisson" does not allow the readout .* reparam.*=False'),
        (nns.wide_mlp, {"reparametrize": False, "sigma": 0.2}, "sigma has no meaning"),
        (nns.bow_tie, {"noise_beta": 1.0}, 'noise_beta has no meaning with likelihood="poisson"'),
        (nns.intermediate_noise_mlp, {"sigma": "network"}, "noise cannot vary"),
        (nns.intermediate_noise_mlp, {"noise": {"pre": 1}}, "noise must have exactly the keys"),
    ],
)
def test_message_of_a_network(builder, given, message):
    with pytest.raises(ValueError, match=message):
        builder(X, COUNTS, hidden=(3,), likelihood="poisson", **given)


def test_a_model_around_gets_each_variable_once():
    with pm.Model() as around:
        nns.bow_tie(X, COUNTS, hidden=(3,), likelihood="poisson", exposure=EXPOSURE)
    assert [data.name for data in around.data_vars] == ["inputs", "targets", "exposure"]


def test_missing_exposure_of_new_rows():
    model = network("poisson")
    message = re.escape('whose exposure goes with them; pass X_new={"inputs": ..., "exposure": ')
    with pytest.raises(ValueError, match=message):
        nns.predict(made_up(model), NEW, model=model, kind="response")
    rows = {"inputs": NEW, "exposure": -np.ones(len(NEW))}
    with pytest.raises(ValueError, match=r"y is Poisson, .* look in inputs, exposure for values"):
        nns.predict(made_up(model), rows, model=model, kind="response")


@pytest.mark.slow
def test_sampled_rates_are_near_the_truth():
    """Counts of a known rate, a fifth of whose rows have ten times the exposure."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 2))
    exposure = np.where(np.arange(150) % 5 == 0, 10.0, 1.0)
    truth = 0.5 + np.sin(2 * X[:, 0])
    counts = rng.poisson(exposure * np.exp(truth))
    with nns.hierarchical_mlp(
        X, counts, hidden=(6,), likelihood="poisson", exposure=exposure
    ) as model:
        idata = pm.sample(
            300, tune=300, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False, var_names=nns.without_latents(),
        )  # fmt: skip
    f = nns.predict(idata, X, model=model, output="f", progressbar=False)
    low, mean, high = f.quantile([0.05, 0.5, 0.95], ("chain", "draw")).values[..., 0]
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.25
    assert np.mean((low < truth) & (truth < high)) > 0.7


@pytest.mark.slow
def test_posterior_of_censored_durations():
    """Means by quadrature over a line's weight, bias and dispersion; not those of ended rows."""
    rng = np.random.default_rng(3)
    X, leaves = rng.normal(size=(25, 1)), rng.uniform(0.3, 2.5, size=25)
    ends = np.exp(0.5 * X[:, 0]) * rng.weibull(2, size=25)
    y, censored = np.minimum(ends, leaves), ends > leaves
    with nns.hierarchical_mlp(
        X, y, hidden=(), likelihood="weibull", censored=censored, priors={"io": 1, "bo": 1}
    ):
        step = nns.HMC(rng=4)
        idata = pm.sample(
            1500, tune=500, chains=2, cores=1, random_seed=5, step=step, progressbar=False
        )
    grids = np.linspace(-0.5, 2, 61), np.linspace(-1.2, 1.5, 61), np.linspace(0.2, 1.4, 61)
    w, b, d = np.meshgrid(*grids, indexing="ij")

    def means(censored):
        log = -(w**2 + b**2 + d**2) / 2
        for each, duration, is_censored in zip(X[:, 0], y, censored, strict=True):
            law = scipy.stats.weibull_min(1 / d, scale=np.exp(b + each * w))
            log = log + (law.logsf if is_censored else law.logpdf)(duration)
        weights = np.exp(log - log.max())
        return [np.average(each, weights=weights) for each in (w, b, d)]

    draws = [idata["posterior"][name].squeeze() for name in ("W_io", "bo", "dispersion")]
    found = np.array([each.mean() for each in draws])
    errors = np.array([az.mcse(each.values) for each in draws])
    assert np.all(np.abs(found - means(censored)) < 4 * errors)
    assert np.any(np.abs(found - means(np.zeros(25, bool))) > 20 * errors)

"""Laws of rows read off what their densities compute: likelihoods, and responses to new rows."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.row_axes import MixesRows, Rows
from pymc_nnsteps.graphs.rows import follow_rows
from pymc_nnsteps.prediction import blocks

RNG = np.random.default_rng(2)
N = 12
X, E = RNG.normal(size=(N, 2)), np.exp(RNG.normal(size=N))
REAL, COUNTS, GROUP = (
    RNG.normal(size=N),
    np.arange(N) % 4 * (np.arange(N) % 3 > 0),
    np.arange(N) % 3,
)
DRAWS = xr.Dataset(
    {
        "w": (("chain", "draw", "w_dim_0"), RNG.normal(size=(2, 3, 2))),
        "psi": (("chain", "draw", "psi_dim_0"), RNG.uniform(0.2, 0.8, size=(2, 3, 3))),
        "z_unobserved": (("chain", "draw", "z_dim"), np.arange(12).reshape(2, 3, 2) % 3),
    }
)


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(blocks, "c_by_default", lambda: {"mode": "FAST_COMPILE"})


def network(observe, name="inputs", data=X):
    """A function of the inputs with a law of what is observed, given shares of three groups."""
    with pm.Model() as model:
        f = pm.Deterministic("f", pt.tanh(pm.Data(name, data)) @ pm.Normal("w", shape=2))
        observe(f, pt.exp(f / 2), pm.Beta("psi", 1, 1, shape=3))
    return model


def two_normals(f, at=0.0, **observed):
    return pm.Mixture("y", [0.3, 0.7], [pm.Normal.dist(f, 0.5), pm.Normal.dist(at, 2)], **observed)


LAWS = {
    "zero-inflated": lambda f, rate, psi: pm.ZeroInflatedPoisson(
        "y", psi[pm.Data("group", GROUP)], rate * E, observed=COUNTS
    ),
    "two columns": lambda f, rate, psi: pm.ZeroInflatedNegativeBinomial(
        "y", psi[:2], mu=pt.stack([rate, 1 / rate], -1), alpha=2, observed=np.c_[COUNTS, GROUP]
    ),
    "hurdle": lambda f, rate, psi: pm.HurdlePoisson("y", psi[0], rate, observed=COUNTS),
    "mixture": lambda f, rate, psi: two_normals(f, observed=REAL),
    "weights of rows": lambda f, rate, psi: pm.NormalMixture(
        "y", pt.special.softmax(f[:, None] * psi, axis=-1), f[:, None] + psi, 0.4, observed=REAL
    ),
    "censored": lambda f, rate, psi: pm.Censored(
        "y", pm.Normal.dist(f, 1.5), lower=None, upper=psi[0], observed=np.minimum(REAL, 0.1)
    ),
    "censored where data say": lambda f, rate, psi: pm.Censored(
        "y", pm.Weibull.dist(1.5, rate), lower=None, upper=E, observed=np.minimum(E[::-1], E)
    ),
    "truncated": lambda f, rate, psi: pm.Truncated(
        "y", pm.Poisson.dist(rate), lower=1, observed=np.maximum(COUNTS, 1)
    ),
    "custom": lambda f, rate, psi: pm.CustomDist(
        "y", f, dist=lambda f, size: pt.exp(pm.Normal.dist(f, size=size)), observed=E
    ),
    "classes": lambda f, rate, psi: pm.Categorical("y", logit_p=f[:, None] * psi, observed=GROUP),
    "vectors": lambda f, rate, psi: pm.Multinomial(
        "y", 2, pt.special.softmax(f[:, None] * psi, axis=-1), observed=2 * np.eye(3)[GROUP]
    ),
    "mixture of vectors": lambda f, rate, psi: pm.Mixture(
        "y",
        [0.3, 0.7],
        [pm.MvNormal.dist(pt.stack([f, -f], -1), np.eye(2)), pm.MvNormal.dist(psi[:2], np.eye(2))],
        observed=X,
    ),
    "single precision": lambda f, rate, psi: pm.ZeroInflatedPoisson(
        "y", 0.5, rate.astype("float32"), observed=COUNTS.astype("int32")
    ),
}


QUICK = {"zero-inflated", "mixture", "censored", "classes", "first", "by data"}


def some_slow(cases):
    """Names, of which most are tried at length only."""
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in cases]


def likelihoods(model, **options):
    """Ours, and PyMC's."""
    tree = xr.DataTree.from_dict({"posterior": DRAWS[[rv.name for rv in model.free_RVs]]})
    ours = nns.log_likelihood(tree, model, **options)["log_likelihood"]
    with model:
        theirs = pm.compute_log_likelihood(
            tree.copy(), progressbar=False, compile_kwargs={"mode": "FAST_COMPILE"}
        )
    return ours, theirs["log_likelihood"]


@pytest.mark.parametrize("law", some_slow(LAWS))
def test_likelihood_is_that_of_pymc(law):
    ours, theirs = likelihoods(network(LAWS[law]))
    expected = theirs["y"].sum("y_dim_1") if law == "two columns" else theirs["y"]
    np.testing.assert_allclose(
        ours["y"], expected, rtol=1e-6 if law == "single precision" else 1e-12
    )


GIVEN = {
    "levels": lambda f, seen: pm.Categorical("z", np.ones(3) / 3, observed=seen(GROUP)),
    "levels by the inputs": lambda f, seen: pm.Categorical(
        "z", logit_p=f[:, None] * np.arange(3), observed=seen(GROUP)
    ),
    "numbers": lambda f, seen: pm.Normal("z", f, observed=seen(REAL)),
}


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("law", GIVEN)
def test_likelihood_given_another_observed_variable(law, gaps):
    """Its missing entries are parameters, as for PyMC; new rows have none."""
    missing = np.isin(np.arange(N), [2, 5])

    def observe(f, rate, psi):
        z = GIVEN[law](f, lambda z: np.ma.masked_array(z, missing) if gaps else z)
        pm.Normal("y", f + (z if law == "numbers" else psi[z]), observed=REAL)

    model = network(observe)
    ours, theirs = likelihoods(model)
    for name in ours.data_vars:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)
    assert ours["y"].dims[2:] == theirs["y"].dims[2:]
    message = 'states z for its own rows alone; put a value for .* row in pm.Data, .* output="f"'
    with pytest.raises(ValueError, match=message):
        nns.predict(DRAWS, X[:3], model=model, output="y", kind="response")


def test_a_container_with_dims_and_missing_targets():
    """Symbolic laws of which PyMC observes a part are read as a whole."""
    seen = np.arange(N) % 4 > 0
    with pytest.warns(pm.exceptions.ImputationWarning):
        model = network(lambda f, *_: two_normals(f, observed=np.where(seen, REAL, np.nan)))
    found = nns.log_likelihood(DRAWS, model)["log_likelihood"]["y"]
    _, whole = likelihoods(network(LAWS["mixture"]))
    np.testing.assert_allclose(found, whole["y"][..., seen], rtol=1e-12)
    np.testing.assert_array_equal(found["y_dim_0"], np.flatnonzero(seen))


PICKED = {
    "first": slice(7),
    "every other": slice(1, None, 2),
    "some": [5, 0, 9],
    "if": GROUP > 0,
    "by data": [5, 0, 9],
}


@pytest.mark.parametrize("which", some_slow(PICKED))
def test_likelihood_on_some_rows(which):
    """Beside a complete one; data are of all rows and picked alike, or of these rows alone."""
    rows = PICKED[which]

    def observe(f, rate, psi):
        pm.Poisson("whole", rate, observed=COUNTS)
        picked = pm.Data("picked", rows) if which == "by data" else rows
        share, of_column = psi[pm.Data("group", GROUP)[picked]], pt.stack([f, rate], 1)[picked, 1]
        pm.ZeroInflatedPoisson("y", share, of_column * E[rows], observed=COUNTS[rows])

    model = network(observe)
    ours, theirs = likelihoods(model)
    for name in ("whole", "y"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)
    np.testing.assert_array_equal(ours["y"][ours["y"].dims[-1]], np.arange(N)[rows])
    [alone] = likelihoods(model, var_names="y")[0].values()
    np.testing.assert_array_equal(alone, ours["y"])


@pytest.mark.parametrize("state", [np.array, pm.Data])
def test_rows_that_pick_entries_of_a_longer_table(state):
    """Districts of groups are no rows, as many as there may be."""
    groups = np.arange(N) + 3

    def observe(f, rate, psi):
        index = groups if state is np.array else pm.Data("index", groups)
        pm.HurdlePoisson(
            "y", psi[0], rate * pm.Data("of_groups", np.arange(20.0))[index], observed=COUNTS
        )

    ours, theirs = likelihoods(network(observe))
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-12)


def test_no_rows():
    model = network(lambda f, rate, psi: two_normals(f[:0], observed=REAL[:0]))
    with pytest.raises(ValueError, match="y has no rows, and so no log likelihood; leave it out"):
        nns.log_likelihood(DRAWS, model)


def test_some_rows_keep_their_labels():
    """Those of one variable are not aligned with those of another."""
    labels = [f"row {number}" for number in range(N)]
    with pm.Model(coords={"row": labels, "feature": ["a", "b"]}) as model:
        f = pm.Data("inputs", X, dims=("row", "feature")) @ pm.Normal("w", shape=2)
        pm.HurdleGamma("whole", 0.5, pt.exp(f), 2.0, observed=E, dims="row")
        two_normals(f[9::-4], observed=REAL[9::-4])
    ours, theirs = likelihoods(model)
    for name in ("whole", "y"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)
    assert list(ours["y"]["y_row"].values) == labels[9::-4]


def test_one_variable_does_not_block_the_others():
    """Nor does a potential, as there are no latent variables whose law it could change."""

    def observe(f, rate, psi):
        pm.HurdlePoisson("y", psi[0], rate, observed=COUNTS)
        pm.MvNormal("joint", f, np.eye(N), observed=REAL)
        pm.Potential("penalty", -(f**2).sum())

    model = network(observe)
    ours, theirs = likelihoods(model, var_names=["y"])
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-12)
    for options, message in (
        ({}, "the law of joint is not known row by row of inputs"),
        ({"var_names": ["y", "z"]}, "var_names must name observed variables that depend on inputs"),
        ({"var_names": []}, "var_names must name observed variables that depend on inputs"),
    ):
        with pytest.raises(ValueError, match=message):
            nns.log_likelihood(DRAWS, model, **options)


def prototypes(f, rate, psi):
    """A sum over five rows of data, of which a part of all rows would make another sum."""
    other = pm.Data("prototypes", E)
    pm.Normal("y", pt.tanh(f[:5, None] * other[:5]).sum(axis=1), 1, observed=REAL[:5])


DECLINED = {
    "walk": lambda f, rate, psi: pm.RandomWalk(
        "y",
        innovation_dist=pm.Normal.dist(f[1:], 1),
        init_dist=pm.Normal.dist(),
        steps=N - 1,
        observed=REAL,
    ),
    "series": lambda f, rate, psi: pm.AR(
        "y", [f[0]], 1.0, init_dist=pm.Normal.dist(), steps=N - 1, observed=REAL
    ),
    "rows of a vector": lambda f, rate, psi: pm.Mixture(
        "y", [0.3, 0.7], [pm.MvNormal.dist(s * f, np.eye(N)) for s in (1, -1)], observed=REAL
    ),
    "centred": lambda f, rate, psi: pm.CustomDist(
        "y", f, logp=lambda y, f: -((y - y.mean() - f) ** 2), observed=REAL
    ),
    "if all are": lambda f, rate, psi: pm.CustomDist(
        "y", f, logp=lambda y, f: pt.switch(pt.all(y > f), 0.0, -((y - f) ** 2)), observed=REAL
    ),
    "without a density": lambda f, rate, psi: pm.CustomDist(
        "y", f, random=lambda f, rng=None, size=None: rng.normal(f), observed=REAL
    ),
    "batches": lambda f, rate, psi: pm.Poisson("y", rate, observed=COUNTS, total_size=99),
    "prototypes": prototypes,
    "in another order": lambda f, rate, psi: pm.Normal(
        "y", f[np.arange(N)[::-1]] + f, 1, observed=REAL
    ),
}


@pytest.mark.parametrize("law", DECLINED)
def test_rows_that_depend_on_each_other_are_declined(law):
    model = network(DECLINED[law])
    for ask in (
        lambda: nns.log_likelihood(DRAWS, model),
        lambda: nns.predict(DRAWS, X, model=model, kind="response"),
    ):
        with pytest.raises(ValueError, match=r"draw responses by pm\.sample_posterior_predictive"):
            ask()


def test_noise_of_hidden_layers_is_integrated_out():
    """By quadrature over the one noise of a row."""
    sd, psi = 0.6, 0.7
    with pm.Model() as model:
        f = pm.Data("inputs", X) @ pm.Normal("w", shape=2)
        z = pm.Normal("z", f, sd)
        pm.ZeroInflatedPoisson("y", psi, pt.exp(z), observed=COUNTS)
    draws = DRAWS[["w"]].isel(chain=[0], draw=[0])
    found = nns.log_likelihood(draws, model, noise_draws=4000, random_seed=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    rate = np.exp((X @ draws["w"].values[0, 0])[:, None] + sd * nodes)
    given = (
        psi * scipy.stats.poisson.pmf(COUNTS[:, None], rate) + (1 - psi) * (COUNTS == 0)[:, None]
    )
    exact = np.log(given @ weights / weights.sum())
    errors = found["log_likelihood_error"]["y"].values[0, 0]
    assert (np.abs(found["log_likelihood"]["y"].values[0, 0] - exact) < 4 * errors).all()
    assert (errors < 0.05).all()


def hurdle(k, rate):
    positive = scipy.stats.poisson.pmf(k, rate) / scipy.stats.poisson.sf(0, rate)
    return np.where(k == 0, 0.4, 0.6 * positive)


COUNTED = {
    "zero-inflated": (
        lambda f, rate, psi: pm.ZeroInflatedPoisson("y", 0.6, rate, observed=COUNTS),
        lambda k, f, rate: 0.4 * (k == 0) + 0.6 * scipy.stats.poisson.pmf(k, rate),
    ),
    "hurdle": (
        lambda f, rate, psi: pm.HurdlePoisson("y", 0.6, rate, observed=COUNTS),
        lambda k, f, rate: hurdle(k, rate),
    ),
    "rounded mixture": (
        lambda f, rate, psi: two_normals(f, observed=REAL),
        lambda k, f, rate: sum(
            share * side * scipy.stats.norm.cdf(k + side / 2, mean, sd)
            for share, mean, sd in ((0.3, f, 0.5), (0.7, 0.0, 2.0))
            for side in (1, -1)
        ),
    ),
    "censored": (
        lambda f, rate, psi: pm.Censored(
            "y", pm.Normal.dist(f, 1.0), lower=0.0, upper=1.0, observed=np.clip(REAL, 0, 1)
        ),
        lambda k, f, rate: np.where(
            k == 0,
            scipy.stats.norm.cdf(0.5 - f),
            np.where(k == 1, scipy.stats.norm.sf(0.5 - f), 0.0),
        ),
    ),
}


@pytest.mark.parametrize("law", some_slow(COUNTED))
def test_responses_to_new_rows_have_the_law(law):
    """Frequencies, and that draws of rows and of the posterior are independent."""
    observe, probability = COUNTED[law]
    model, n = network(observe), 1000 if law == "hurdle" else 20_000
    rows = np.repeat(X[:1], n, axis=0)
    f = nns.predict(DRAWS, X[:1], model=model, output="f").values.reshape(-1, 1)
    drawn = nns.predict(DRAWS, rows, model=model, kind="response", random_seed=1).values
    drawn = drawn.reshape(len(f), n)
    k = np.arange(-2, 5)
    expected = probability(k, f, np.exp(f / 2))
    found = (np.rint(drawn)[:, :, None] == k).mean(axis=1)
    error = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(found - expected) <= 4.5 * error + 1e-12).all()
    assert np.abs(np.corrcoef(drawn) - np.eye(len(f))).max() < 4.5 / np.sqrt(n)
    for each in drawn:
        assert np.abs(np.corrcoef(each[1:], each[:-1])[0, 1]) < 4.5 / np.sqrt(n)


def test_bounds_that_are_infinite():
    """As those of rows that are not censored; infinite inputs stay errors."""

    def observe(f, *_):
        upper = pm.Data("upper", np.where(REAL > 0, 0.0, np.inf))
        pm.Censored("y", pm.Normal.dist(f, 1), None, upper, observed=np.minimum(REAL, 0.0))

    model = network(observe)
    drawn = partial(nns.predict, DRAWS, model=model, kind="response", random_seed=1)
    new = {"inputs": np.zeros((40, 2)), "upper": np.repeat([0.5, np.inf], 20)}
    largest = drawn(new).values.reshape(-1, 2, 20).max(axis=(0, 2))
    assert largest[0] == 0.5
    assert 0.5 < largest[1] < np.inf
    with pytest.raises(ValueError, match=r"X_new\['upper'\] has 1 NaN"):
        drawn(new | {"upper": [np.nan, *new["upper"][1:]]})


def test_likelihoods_that_are_potentials():
    """All containers are looked at: a table, or without one the only array.

    A ``pm.Deterministic`` named "f" is the output, whether it is asked for or not.
    """
    for name, data in (("covariates", X), ("of columns", np.asfortranarray(X))):
        model = network(
            lambda f, *_: pm.Potential("p", pm.logp(pm.Normal.dist(f), pm.Data("t", REAL))),
            name,
            data,
        )
        expected = DRAWS["w"].values @ np.tanh(X).T
        for output in (None, "f"):
            found = nns.predict(DRAWS, X, model=model, output=output)
            np.testing.assert_allclose(found[..., 0], expected, rtol=1e-12)
    with pm.Model() as model:
        x, w = pm.Data("age", E), pm.Normal("w", shape=2)
        f = pm.Deterministic("f", w[0] + w[1] * x)
        pm.Potential("p", pm.logp(pm.Normal.dist(f), REAL).sum())
    found = nns.predict(DRAWS, E[:3], model=model)
    expected = DRAWS["w"].values @ np.stack([np.ones(3), E[:3]])
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-12)
    with pm.Model() as model:
        pm.Data("age", E)
        pm.Potential("p", pm.logp(pm.Normal.dist(pm.Normal("w") * E), REAL).sum())
    with pytest.raises(ValueError, match="has age; give the network one of these itself, not the"):
        nns.predict(DRAWS, E[:3], model=model)


def entries(p, y):
    """The entry of each row that another array names."""
    return p[pt.arange(p.shape[0]), y]


PLACES = {
    "entries": (entries, Rows(0)),
    "along an axis": (lambda p, y: pt.take_along_axis(p, y[:, None], axis=1), Rows(0)),
    "checked": (lambda p, y: pm.distributions.dist_math.check_parameters(p, p > 0, y < 3), Rows(0)),
    "diagonal": (lambda p, y: p[pt.arange(p.shape[0]), pt.arange(p.shape[0])], "uses the number"),
    "same number twice": (lambda p, y: (lambda i: p[i, i])(pt.arange(p.shape[0])), "pairs rows"),
    "other rows": (lambda p, y: p[pt.arange(p.shape[0]) + 1, y], "combines all rows"),
    "from one on": (lambda p, y: p[pt.arange(1, p.shape[0]), y], "combines all rows"),
    "numbers as values": (lambda p, y: p * pt.arange(p.shape[0])[:, None], "combines all rows"),
    "what holds for all": (lambda p, y: p * pt.all(p > 0), "combines all rows"),
}


@pytest.mark.parametrize(("expression", "expected"), PLACES.values(), ids=PLACES)
def test_places_of_rows_in_densities(expression, expected):
    p, y = pt.tensor("p", shape=(None, 4)), pt.lvector("y")
    known = {p: (p, Rows(0)), y: (y, Rows(0))}
    if isinstance(expected, str):
        with pytest.raises(MixesRows, match=expected):
            follow_rows(expression(p, y), known)
    else:
        assert follow_rows(expression(p, y), known)[1] == expected

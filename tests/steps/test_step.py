"""Steps of models of named dimensions: built on plain tensors, they draw the model's own values."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from pymc.dims.distributions.transforms import IntervalTransform

import pymc_nnsteps as nns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.abs(X[:, 0]) + 0.1 * RNG.normal(size=20)
COORDS = {"row": range(20), "column": ["a", "b"], "unit": range(3)}
OPTIONS = {
    **{"draws": 10, "tune": 10, "chains": 1, "cores": 1, "random_seed": 3},
    **{"progressbar": False, "quiet": True, "compute_convergence_checks": False},
}


def products():
    """Products of inputs and first weights, and the scale of weights behind them."""
    x = pmd.Data("inputs", X, dims=("row", "column"))
    scale = 1 / pmd.math.sqrt(pmd.Gamma("tau", 2, 2))
    return x.dot(pmd.Normal("W", 0, scale, dims=("column", "unit")), dim="column")


def observed(layer):
    scale = 1 / pmd.math.sqrt(pmd.Gamma("lambda", 2, 2))
    f = pmd.Deterministic("f", layer.dot(pmd.Normal("v", 0, scale, dims="unit"), dim="unit"))
    targets = pmd.Data("targets", Y, dims="row")
    pmd.Normal("y", f, pmd.math.sqrt(pmd.InverseGamma("noise", 3, 1)), observed=targets)


def regression():
    x = pmd.Data("inputs", X, dims=("row", "column"))
    mean = x.dot(pmd.Normal("b", 0, 1, dims="column"), dim="column") + pmd.Normal("level")
    targets = pmd.Data("targets", Y, dims="row")
    pmd.Normal("y", mean, pmd.HalfNormal("s"), observed=targets)


def noisy():
    Z = pmd.Normal("Z", products(), 0.3)
    observed(pmd.Normal("X2", pmd.math.maximum(Z, 0), 0.1))


def gated():
    h = products()
    gates = pmd.Bernoulli("gates", logit_p=h / 0.1)
    observed(pmd.Normal("X2", gates * h, 0.1))


def hierarchical():
    observed(pmd.math.tanh(products()))


STEPS = {
    regression: {
        "b": lambda b: nns.PCN([b]),
        "level": lambda level: nns.MALA(level, preconditioner={level: 2.0}),
        "s": lambda s: nns.HMC("s"),
    },
    noisy: {},
    gated: {},
    hierarchical: {},
}


def made(build):
    with pm.Model(coords=COORDS) as model:
        build()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("build", STEPS)
def test_draws_are_those_of_the_plain_model(build):
    """A variable that is left to NUTS, or a point that is read with other transforms."""
    named = made(build)
    drawn = []
    for model in (named, nns.models.plain_model(named)):
        with model:
            steps = [step(model[name]) for name, step in STEPS[build].items()]
            given = {"step": steps} if steps else {}
            drawn.append(pm.sample(**OPTIONS, **given))
    xr.testing.assert_equal(*(idata.posterior.to_dataset() for idata in drawn))
    assert set(nns.explain(named).beside) == set(nns.explain(nns.models.plain_model(named)).beside)
    used = {step for _, step, _ in nns.explain(named).beside}
    assert used == {regression: {"NUTS"}, hierarchical: {"HMC"}}.get(build, set())


@pytest.mark.slow
def test_chains_have_the_posterior_of_named_dimensions():
    """The density is that of ``pymc.dims``; a plain model with another one would be sampled."""
    assert nns.verify(made(noisy), sweeps=400, random_seed=1).rows


def test_values_are_those_of_the_model():
    model = made(regression)
    with model:
        step = nns.Gibbs([model["b"], "level"])
        apart = nns.PCN(["b", "level"], blocked=False)
    values = [model.rvs_to_values[model[name]] for name in ("b", "level")]
    assert step.vars == values
    assert [each.vars for each in apart.methods] == [[value] for value in values]
    assert nns.MALA(model.value_vars, model=model).vars == model.value_vars


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["c"], r"vars must be free variables of the model \(b, level, s\); got 'c'"),
        (["y"], "y is observed"),
        ([pm.Normal.dist(name="x")], "x does not belong to this model"),
    ],
)
def test_wrong_variables_are_named(given, error):
    with pytest.raises(ValueError, match=error):
        nns.Gibbs(given, model=made(regression))


def test_models_without_a_plain_form_are_left_to_pymc():
    """No warning, and a reason on request: the bounds are not those of the distribution."""
    with pm.Model() as model:
        pmd.Uniform("u", 0, 1, default_transform=IntervalTransform(0, 2))
        pm.sample(**OPTIONS)
    for ask in (nns.explain, lambda model: nns.HMC(model=model)):
        with pytest.raises(nns.laws.NotConjugate, match="u has a transform of its own"):
            ask(model)

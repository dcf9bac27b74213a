"""Pre-activations under a piecewise-linear activation, against the model's own log density.

Density: what the draw hands to its random variable is the claimed density
``N(z | mu, sigma) N(x | a(z), tau)``; entry by entry its differences are the model's to 1e-10,
from the bulk to a million noise scales away. A lost offset, a scale of the wrong layer, entries in
the wrong order or a wrong piece show at once.

Sampling: draws of many equal entries follow the distribution function that the model's own log
density has on a grid.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.activations import ACTIVATIONS, PiecewiseLinear
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws import match
from pymc_nnsteps.laws.piecewise import PiecewiseGaussian
from tests.laws.exact_piecewise import assert_exact_piecewise
from tests.laws.graphs import draw_graph, point_of
from tests.statistics import assert_uniform

STEPS = PiecewiseLinear(knots=(-1, 0.5, 2), slopes=(0, 1.5, -0.3, 0), values=(1, 0, 0.25, -4))
KINKED = {name: f for name, f in ACTIVATIONS.items() if name != "identity"} | {
    "builder": STEPS,
    "hat": lambda z: pt.maximum(0, 1 - abs(z)),
    "slope 0.1": lambda z: pt.switch(z > 0, z, 0.1 * z) / 0.3,
}
N, K = 6, 3


def layer(activation, *, noise=(0.3, 0.2)):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=K)
        z = pm.Normal("z", b + np.linspace(-1, 1, N)[:, None], noise[0])
        pm.Normal("x", activation(z), noise[1])
    return model


@pytest.mark.parametrize("activation", KINKED)
def test_claimed_law_is_the_models(activation):
    model = layer(KINKED[activation])
    found = match(model, model["z"])
    assert isinstance(found, PiecewiseGaussian)
    assert_exact_piecewise(model, found, point_of(model, np.random.default_rng(1)))


RELU = ACTIVATIONS["relu"]
SCALES = np.exp(np.random.default_rng(2).normal(size=(N, K)))
DATA = np.random.default_rng(3).normal(size=(N, K))


def _other_noise():
    z = pm.Normal("z", DATA, SCALES)
    pm.Normal("x", RELU(z), SCALES[::-1, :1])


def _noise_as_precision():
    z = pm.Normal("z", DATA, tau=0.3)
    pm.Normal("x", RELU(z), tau=7.0, observed=DATA[::-1])


def _random_noise():
    s = pm.HalfNormal("s")
    z = pm.Normal("z", DATA, s)
    pm.Normal("x", RELU(z), s * np.array([1, 2, 3.0]), observed=DATA[::-1])


def _offset():
    c = pm.Normal("c", shape=K)
    z = pm.Normal("z", 0.1, 0.7, shape=(N, K))
    pm.Normal("x", c - RELU(z) + DATA, 0.5)


def _observed():
    z = pm.Normal("z", 0, 1, shape=(N, K))
    pm.Normal("x", abs(z), 0.5, observed=pm.Data("d", DATA))


def _one_column_sliced():
    z = pm.Normal("z", DATA[:, :1], 1)
    pm.Normal("x", RELU(z)[:, 0] + DATA[:, 1], SCALES[:, 0], observed=DATA[:, 2])


def _one_column_squeezed():
    z = pm.Normal("z", DATA[:, :1], SCALES[:, :1])
    pm.Normal("x", pt.squeeze(RELU(z)), 0.3)


def _one_column_of_dims():
    model = pm.modelcontext(None)
    model.add_coords({"obs": range(N), "out": ["a"]})
    z = pm.Normal("z", DATA[:, :1], 1, dims=("obs", "out"))
    pm.Normal("x", RELU(z[:, 0]), 0.5, dims="obs")


def _column_to_row():
    z = pm.Normal("z", DATA[:, :1], SCALES[:, :1])
    pm.Normal("x", RELU(z)[:, 0][None, :] + DATA[:, :1].T, SCALES[:, 1][None])


def _vector_to_column():
    z = pm.Normal("z", DATA[:, 0], SCALES[:, 0])
    pm.Normal("x", RELU(z)[:, None], 0.3, observed=DATA[:, :1])


def _scalar():
    z = pm.Normal("z", 0.3, 2)
    pm.Normal("x", abs(z - 1), 0.3, observed=0.7)


def _three_axes():
    z = pm.Normal("z", 0.3, np.array([1.0, 2]), shape=(4, 3, 2))
    pm.Normal("x", pt.clip(z, -1, 1) * 2, np.ones((3, 1)) * 0.3)


def _residual():
    u = pm.Normal("u", 0, 1, shape=(N, K))
    z = pm.Normal("z", u @ np.ones((K, K)), 0.3)
    pm.Normal("x", u + RELU(z), 0.3)


def _named():
    z = pm.Normal("z", pm.Deterministic("F", pt.as_tensor(DATA) * 2), 0.3)
    a = pm.Deterministic("a", RELU(z))
    pm.Normal("x", a, pm.Deterministic("s", pt.exp(pm.Normal("l"))))


VARIANTS = [_other_noise, _noise_as_precision, _random_noise, _offset, _observed,
            _one_column_sliced, _one_column_squeezed, _one_column_of_dims, _column_to_row,
            _vector_to_column, _scalar, _three_axes, _residual, _named]  # fmt: skip


@pytest.mark.parametrize("build", VARIANTS, ids=lambda f: f.__name__.strip("_"))
def test_claimed_law_however_it_is_written(build):
    with pm.Model() as model:
        build()
    found = match(model, model["z"])
    assert isinstance(found, PiecewiseGaussian)
    assert_exact_piecewise(model, found, point_of(model, np.random.default_rng(4)))


@pytest.mark.parametrize("activation", [*KINKED])
@pytest.mark.parametrize("x", [-0.7, 1.1, 30.0])
def test_draws_follow_the_models_density(activation, x):
    """Equal entries, as many as draws; the grid's entries give the model's density."""
    n, (low, high) = 60_000, (-8, 40)
    with pm.Model() as model:
        z = pm.Normal("z", 0.4, 0.9, shape=n)
        pm.Normal("x", KINKED[activation](z), 0.8, observed=np.full(n, x))
    rng, _, values = draw_graph(model, match(model, z))
    draw = pytensor.function([rng], values, mode=ONCE)
    [draws] = draw(np.random.default_rng(5))
    grid = np.linspace(low, high, n)
    logp = model.compile_logp(mode=ONCE, sum=False)
    log_density = sum(np.broadcast_to(term, n) for term in logp({"z": grid}))
    density = np.exp(log_density - log_density.max())
    # where the activation jumps a cell of the grid is off by its width at most
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    cdf = np.interp(draws, grid, cumulative / cumulative[-1])
    assert_uniform(cdf)


def test_declined_where_it_would_be_wrong():
    def reason(build):
        with pm.Model() as model:
            build()
        with pytest.raises(NotConjugate) as error:
            match(model, model["z"])
        return str(error.value)

    def two_children():
        z = pm.Normal("z", shape=3)
        pm.Normal("x", RELU(z))
        pm.Normal("u", z)

    def not_normal_prior():
        z = pm.Laplace("z", 0, 1, shape=3)
        pm.Normal("x", RELU(z))

    def scale_depends():
        z = pm.Normal("z", shape=3)
        pm.Normal("x", RELU(z), pt.exp(z))

    def repeated():
        z = pm.Normal("z", shape=3)
        pm.Normal("x", RELU(z), 1, shape=(4, 3))

    def repeated_by_dims():
        z = pm.Normal("z", shape=3)
        pm.Normal("x", RELU(z), np.ones((4, 1)))

    def smooth():
        z = pm.Normal("z", shape=3)
        pm.Normal("x", pt.tanh(z))

    def poisson():
        z = pm.Normal("z", shape=3)
        pm.Poisson("x", RELU(z) + 1, observed=[1, 2, 3])

    assert "the mean of child x is not affine in it" in reason(two_children)
    assert "Laplace" in reason(not_normal_prior)
    assert "the scale of child x depends on it" in reason(scale_depends)
    assert "broadcasts it" in reason(repeated)
    assert "broadcasts it" in reason(repeated_by_dims)
    assert "not piecewise linear" in reason(smooth)
    assert "child x is Poisson" in reason(poisson)


def test_float32_draws_are_float32():
    with pytensor.config.change_flags(floatX="float32"):
        model = layer(RELU)
        _, _, [value] = draw_graph(model, match(model, model["z"]))
    assert value.dtype == "float32"

"""Gaussian blocks: every drawing form, against the model's own log density and by sampling.

Density: the law that a draw claims (read off its graph exactly, see `graphs.gaussian_law`) has
the model's own differences of log densities at random pairs of points, tails included, to 1e-10.
A factor of two in a precision, a dropped prior mean, a forgotten offset, a sum over the wrong
index or a cross term left out shows in the first difference; each was planted once.

Sampling: draws have the claimed mean and covariance, which the standard normals and the order of
the generator could still spoil (a generator used twice correlates what must be independent).
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.gaussian import forms
from pymc_nnsteps.gaussian.forms import FORMS
from pymc_nnsteps.laws import find_conditionals, match
from pymc_nnsteps.laws.gaussian import Gaussian, match_gaussian
from tests.cases import quick
from tests.laws.graphs import (
    assert_exact_gaussian,
    draw_graph,
    flat,
    gaussian_law,
    point_of,
    shapes_of,
)
from tests.statistics import assert_moments

RNG = np.random.default_rng(22)
X = RNG.normal(size=(9, 3))
WIDE = RNG.normal(size=(4, 7))
Y = RNG.normal(size=(9, 5))
G = np.array([0, 3, 1, 1, 0, 3, 3, 2, 0])
A = np.exp(RNG.normal(size=(9, 5)) / 2)
COEFFICIENT = RNG.normal(size=(5, 3))

normal = pm.Normal
MODELS = {}


def model_of(form, *names, **values):
    """Register a model: its drawing form, the variables drawn jointly, and values to start at."""

    def register(build):
        assert build.__name__ not in MODELS
        MODELS[build.__name__] = (form, names, values, build)
        return build

    return register


# --- elementwise -------------------------------------------------------------------------------


@model_of("diagonal", "mu")
def one_number():
    mu = normal("mu", 0.7, 0.3)
    normal("y", mu, 0.1, observed=Y[:, 0])


@model_of("diagonal", "mu")
def one_number_float64():
    mu = normal("mu", np.float64(0.7), np.float64(0.3))
    normal("y", mu, np.float64(0.1), observed=Y[:, 0])


@model_of("diagonal", "mu")
def precisions_as_tau():
    mu = normal("mu", -0.2, tau=0.3)
    normal("y", mu, tau=12.7, observed=Y[:, 0])


@model_of("diagonal", "mu", tau=0.3)
def unknown_precision():
    mu = normal("mu", -0.2, tau=0.3)
    tau = pm.Gamma("tau", 2, 1)
    normal("y", 0.3 * mu + 0.1, tau=tau, observed=Y[:, 0])


@model_of("diagonal", "mu")
def no_child():
    normal("mu", RNG.normal(size=4), np.array([0.1, 2, 3, 4]), shape=(3, 4))


@model_of("diagonal", "slope")
def slope_of_data():
    slope = normal("slope", 0.1, 3)
    normal("y", 0.3 - slope * pm.Data("x", X[:, 0]) / 0.7, 0.3, observed=Y[:, 0])


@model_of("diagonal", "b")
def biases_heteroscedastic():
    b = normal("b", RNG.normal(size=5), np.linspace(0.1, 1, 5))
    normal("y", b, A, observed=Y)


@model_of("diagonal", "b")
def biases_sigma_of_rows():
    b = normal("b", 0.3, 0.2, shape=5)
    normal("y", b + Y[::-1], A[:, :1], observed=Y)


@model_of("diagonal", "b")
def biases_of_data_sigma():
    b = normal("b", 0.3, 0.2, shape=5)
    normal("y", b, pm.Data("sigma", A), observed=pm.Data("y_", Y))


@model_of("labels", "b")
def row_effects():
    b = normal("b", 0.3, 0.2, shape=(9, 1))
    normal("y", b * Y[::-1] + 2, A, observed=Y)


@model_of("diagonal", "theta", tau=0.2, mu=3)
def hierarchical_means():
    mu = normal("mu", 1.0, 5)
    tau = pm.HalfNormal("tau")
    theta = normal("theta", mu, tau, shape=6)
    normal("y", theta[G], 0.3, observed=Y[:, 0])  # groups 4 and 5 have no observations


@model_of("diagonal", "mu", tau=0.2)
def hierarchical_top():
    mu = normal("mu", 1.0, 5)
    tau = pm.HalfNormal("tau")
    theta = normal("theta", mu, tau, shape=6)
    normal("y", theta[G], 0.3, observed=Y[:, 0])


@model_of("diagonal", "theta")
def group_slopes():
    theta = normal("theta", np.arange(4.0), 0.5)
    groups = pm.Data("groups", G - 4)  # negative
    normal("y", theta[groups] * X[:, 0] + X[:, 1], A[:, 0], observed=Y[:, 0])


@model_of("diagonal", "theta")
def groups_with_a_common_noise_and_outputs():
    theta = normal("theta", 0.5, 0.5, shape=(4, 5))
    normal("y", theta[G] + 0.1, np.linspace(0.1, 1, 5), observed=Y)


@model_of("diagonal", "theta")
def groups_along_columns():
    theta = normal("theta", 0.5, 0.5, shape=(9, 3))
    normal("y", 2 * theta[:, np.array([0, 2, 2, 0, -1])], A, observed=Y)


@model_of("diagonal", "theta")
def groups_seen_by_three_children():
    theta = normal("theta", 0.5, np.array([1.0, 0.1, 2.0, 0.5]))
    phi = normal("phi", theta, 0.3)
    normal("y", theta[G] - 1, 0.3, observed=Y[:, 0])
    normal("u", phi, 0.1, observed=Y[:4, 0])
    normal("w", theta[1:3] * 2, A[0, :2], observed=Y[:2, 1])


@model_of("diagonal", "z")
def linear_chain():
    z = normal("z", X @ np.ones(3), 0.2)
    normal("x", 2 * z, 0.1)


@model_of("diagonal", "s")
def scalar_in_a_sum():
    s = normal("s", 2, 3)
    normal("y", (s + X).sum(1), 0.3, observed=Y[:, 0])


@model_of("diagonal", "s")
def scalar_in_many_places():
    s = normal("s", 2, 3)
    normal("y", s * X[:, 0] + s / 3, 0.3, observed=Y[:, 0])
    normal("u", pt.stack([s, 0.5 * s, 1.0]), np.array([0.1, 0.2, 0.3]), observed=Y[:3, 0])


@model_of("diagonal", "x")
def two_label_axes_transposed():
    x = normal("x", RNG.normal(size=(5, 9)), 0.5)
    normal("y", 0.7 * x.T + X[:, :1], A, observed=Y)


@model_of("diagonal", "x")
def three_label_axes():
    x = normal("x", 0.2, A[:4, :3, None], shape=(4, 3, 2))
    normal("u", x.dimshuffle(2, 0, 1)[::-1], 0.3, observed=RNG.normal(size=(2, 4, 3)))
    normal("v", x * 2, 0.5, observed=RNG.normal(size=(4, 3, 2)))


# --- one precision for all labels --------------------------------------------------------------


@model_of("shared", "beta")
def regression():
    beta = normal("beta", 0.1, 0.7, shape=3)
    normal("y", X @ beta, 0.3, observed=Y[:, 0])


@model_of("shared", "beta", "alpha")
def regression_with_intercept():
    beta = normal("beta", 0.1, np.array([0.7, 0.1, 4.0]))
    alpha = normal("alpha", 3, 10)
    normal("y", alpha + X @ beta, 0.3, observed=Y[:, 0])


@model_of("shared", "alpha", "beta")
def regression_heteroscedastic():
    alpha = normal("alpha", 3, 10)
    beta = normal("beta", 0.1, 0.7, shape=3)
    normal("y", alpha - pt.dot(X, beta), A[:, 0], observed=Y[:, 0])


@model_of("shared", "a", "b", "c")
def three_parts_of_one_design():
    a = normal("a", 1, 2)
    b = normal("b", 0, 2, shape=2)
    c = normal("c", -1, 0.3)
    normal("y", a + X[:, :2] @ b - c * X[:, 2], A[:, 0], observed=Y[:, 0])


@model_of("shared", "W")
def weights_few_labels():
    W = normal("W", 0, 0.3, shape=(2, 3))
    normal("z", X @ W.T + 0.1, 0.1)


@model_of("shared", "W", "b")
def layer_few_labels():
    W = normal("W", 0.2, 0.3, shape=(2, 3))
    b = normal("b", -0.4, 3, shape=2)
    normal("z", X @ W.T + b, 0.1, observed=Y[:, :2])


@model_of("shared", "W", "b")
def layer_many_labels():
    W = normal("W", 0, 0.3, shape=(5, 3))
    b = normal("b", np.arange(5.0), 3)
    normal("z", X @ W.T + b, 0.1)


@model_of("shared", "b", "W")
def layer_other_orientation_and_order():
    b = normal("b", np.arange(5.0), 3)
    W = normal("W", RNG.normal(size=(3, 5)), 0.3)
    normal("z", b + pm.Data("inputs", X) @ W, 0.1)


@model_of("shared", "W", "b")
def layer_heteroscedastic_rows():
    W = normal("W", RNG.normal(size=(5, 3)), np.array([0.1, 1, 2.0]))
    b = normal("b", 0, 3, shape=5)
    normal("z", X @ W.T + b, A[:, :1], observed=Y)


@model_of("shared", "W", "b", z=Y.T)
def layer_transposed():
    W = normal("W", 0.1, 0.3, shape=(5, 3))
    b = normal("b", 0, 3, shape=5)
    normal("z", W @ X.T + b[:, None], 0.1, shape=(5, 9))


@model_of("shared", "W", "b")
def layer_of_latent_inputs():
    H = normal("H", 0, 1, shape=(9, 3))
    W = normal("W", 0.1, 0.3, shape=(5, 3))
    b = normal("b", 0, 3, shape=5)
    normal("z", H @ W.T + b, 0.1)


@model_of("shared", "H")
def inputs_of_a_layer():
    H = normal("H", X, 0.7)
    W = normal("W", 0.1, 0.3, shape=(5, 3))
    b = normal("b", 0, 3, shape=5)
    normal("z", H @ W.T + b, 0.1)


@model_of("shared", "H")
def inputs_of_two_layers():
    H = normal("H", X, np.array([0.7, 1, 2]))
    W = normal("W", 0.1, 0.3, shape=(5, 3))
    V = normal("V", 0.1, 0.3, shape=(3, 2))
    normal("z", H @ W.T, 0.1)
    normal("u", 1 - 2 * (H @ V), np.array([0.3, 0.1]), observed=Y[:, :2])


@model_of("shared", "W")
def weights_in_two_layers():
    W = normal("W", 0.3, 0.5, shape=(3, 3))
    z = normal("z", X @ W.T, 0.1)
    normal("u", pt.maximum(z, 0) @ W.T + 1, 0.2)


@model_of("shared", "T")
def mean_over_a_label_like_axis():
    T = normal("T", 0.3, 0.5, shape=(5, 3))
    normal("z", X @ T.T, 0.3, observed=Y)
    normal("u", X[:4] @ T.T * 2 - 1, 0.1, observed=Y[:4])


@model_of("shared", "W")
def summed_over_two_axes():
    W = normal("W", 0.3, 0.5, shape=(2, 3))
    C = RNG.normal(size=(9, 2, 3))
    normal("y", (C * W).sum((1, 2)) + 1, 0.3, observed=Y[:, 0])


@model_of("shared", "W", "b")
def summed_over_two_axes_with_intercept():
    W = normal("W", 0.3, np.array([[0.1, 1, 2], [3, 0.5, 0.7]]))
    b = normal("b", 1, 2)
    C = RNG.normal(size=(9, 2, 3))
    normal("y", (C * W).sum((1, 2)) + b, 0.3, observed=Y[:, 0])


@model_of("shared", "W")
def design_over_two_axes():
    W = normal("W", 0.3, 0.5, shape=3)
    C = RNG.normal(size=(9, 5, 3))
    normal("y", C @ W + 1, 0.3, observed=Y)


@model_of("shared", "W", "b")
def design_over_two_axes_heteroscedastic():
    W = normal("W", 0.3, 0.5, shape=3)
    b = normal("b", -2, 0.5)
    C = RNG.normal(size=(9, 5, 3))
    normal("y", C @ W + b, A, observed=Y)


@model_of("shared", "W", "b")
def three_dimensional_layer():
    W = normal("W", 0.3, 0.5, shape=(4, 3))
    b = normal("b", 0.3, 0.5, shape=4)
    Q = pm.Data("Q", RNG.normal(size=(2, 9, 3)))
    normal("y", Q @ W.T + b, 0.2, observed=RNG.normal(size=(2, 9, 4)))


@model_of("shared", "W")
def tensordot_layer():
    W = normal("W", 0.3, 0.5, shape=(4, 3))
    normal(
        "y",
        pt.tensordot(RNG.normal(size=(2, 9, 3)), W, axes=[[2], [1]]),
        0.2,
        observed=RNG.normal(size=(2, 9, 4)),
    )


@model_of("shared", "W", "b")
def sums_of_units():
    W = normal("W", 0.3, 0.5, shape=(4, 3))
    b = normal("b", 0.3, 0.5, shape=4)
    normal("y", (X @ W.T + b).sum(1), 0.2, observed=np.arange(9.0))
    # 15 entries, 9 observations: see by_observations for the form


MODELS["sums_of_units"] = ("observations", *MODELS["sums_of_units"][1:])


@model_of("shared", "x")
def random_walk_step():
    x = normal("x", 0.3, 0.5, shape=6)
    D = np.diff(np.eye(6), axis=0)
    normal("steps", D @ x, 0.2, observed=RNG.normal(size=5))
    normal("y", x, 0.3, observed=Y[:6, 0])


@model_of("shared", "x")
def gathered_and_summed():
    x = normal("x", 0.3, 0.5, shape=3)
    normal("y", x[np.array([0, 0, 1, -1, 2, 0])], 0.2, observed=Y[:6, 0])
    normal("u", RNG.normal(size=(5, 3)) @ x, 0.2, observed=Y[:5, 1])


@model_of("shared", "f")
def single_column_squeezed():
    f = normal("f", 0.3, 0.5, shape=(3, 1))
    normal("y", (X @ f)[:, 0] + 1, 0.3, observed=Y[:, 0])


@model_of("shared", "f")
def part_of_a_matrix():
    f = normal("f", 0.3, 0.5, shape=(3, 2))
    normal("y", X @ f[:, 1:].squeeze() + 1, 0.3, observed=Y[:, 0])


# --- one precision per label -------------------------------------------------------------------


@model_of("batched", "W", "b")
def noise_per_unit():
    W = normal("W", 0.2, 0.3, shape=(5, 3))
    b = normal("b", 0, 3, shape=5)
    normal("z", X @ W.T + b, np.linspace(0.1, 1, 5), observed=Y)


@model_of("batched", "W")
def prior_per_unit():
    W = normal("W", 0.2, np.linspace(0.1, 1, 5)[:, None], shape=(5, 3))
    normal("z", X @ W.T, 0.3, observed=Y)


@model_of("labels", "W", "b")
def prior_per_weight():
    W = normal("W", COEFFICIENT, np.exp(COEFFICIENT))
    b = normal("b", 0, 3, shape=5)
    normal("z", X @ W.T + b, A, observed=Y)


@model_of("labels", "W")
def design_per_unit():
    W = normal("W", 0.2, 0.3, shape=(5, 3))
    normal("z", (X @ W.T) * Y[::-1] + Y, 0.3, observed=Y)


@model_of("batched", "beta")
def varying_slopes():
    beta = normal("beta", 0.2, np.array([0.3, 1, 2]), shape=(5, 3))
    normal("y", (beta[G] * X).sum(-1) + 0.1, 0.3, observed=Y[:, 0])


@model_of("batched", "beta")
def varying_slopes_of_data_with_a_population():
    mu = normal("mu", 0, 1, shape=3)
    beta = normal("beta", mu, 0.4, shape=(5, 3))
    groups = pm.Data("groups", G)
    normal("y", (beta[groups] * X).sum(-1), A[:, 0], observed=Y[:, 0])
    normal("u", beta @ np.array([1.0, 2, 3]), 0.2, observed=np.arange(5.0))


@model_of("diagonal", "mu")
def population_of_varying_slopes():
    mu = normal("mu", 0.4, 1, shape=3)
    beta = normal("beta", mu, np.exp(COEFFICIENT), shape=(5, 3))
    normal("y", (beta[G] * X).sum(-1), 0.2, observed=Y[:, 0])


@model_of("batched", "T")
def batched_matrices():
    T = normal("T", 0.4, 1, shape=(2, 3, 4))
    normal("y", X @ T + 1, 0.3, shape=(2, 9, 4), observed=RNG.normal(size=(2, 9, 4)))
    normal("u", RNG.normal(size=(2, 9, 3)) @ T, 0.2, observed=RNG.normal(size=(2, 9, 4)))


@model_of("batched", "H")
def missing_rows_of_a_second_child():
    H = normal("H", X, 0.7)
    V = normal("V", 0.1, 0.3, shape=(3, 4))
    normal("u", H @ V, 0.2)
    normal("w", H[2:7] @ V * 2, 0.3, observed=RNG.normal(size=(5, 4)))


# --- fewer observations than entries -----------------------------------------------------------


@model_of("observations", "X2")
def scalar_output():
    X2 = normal("X2", RNG.normal(size=(9, 4)), 0.2)
    W = normal("W", 0, 0.5, shape=(1, 4))
    b = normal("b", 0, 1, shape=1)
    normal("y", (X2 @ W.T + b)[:, 0], 0.1, observed=Y[:, 0])


@model_of("observations", "X2", W=np.zeros((1, 4)))
def scalar_output_of_zero_weights():
    X2 = normal("X2", RNG.normal(size=(9, 4)), 0.2)
    W = normal("W", 0, 0.5, shape=(1, 4))
    normal("y", (X2 @ W.T)[:, 0], 0.1, observed=Y[:, 0])


@model_of("observations", "X2")
def scalar_output_own_scales():
    X2 = normal("X2", RNG.normal(size=(9, 4)), np.array([0.1, 1, 2, 3]))
    w = normal("w", 0, 0.5, shape=4)
    normal("y", 1 - X2 @ w, tau=7.0, observed=Y[:, 0])


@model_of("observations", "X2")
def two_outputs():
    X2 = normal("X2", RNG.normal(size=(9, 4)), np.array([0.1, 1, 2, 3]))
    W = normal("W", 0, 0.5, shape=(2, 4))
    b = normal("b", 0, 1, shape=2)
    normal("y", X2 @ W.T + b, 0.1, observed=Y[:, :2])


@model_of("observations", "X2")
def two_outputs_own_noise():
    X2 = normal("X2", RNG.normal(size=(9, 4)), 0.7)
    W = normal("W", 0, 0.5, shape=(2, 4))
    normal("y", X2 @ W.T, np.array([0.1, 2.0]), observed=Y[:, :2])


@model_of("observations", "W", "b")
def more_inputs_than_rows():
    W = normal("W", RNG.normal(size=(5, 7)), 0.7)
    b = normal("b", 1, 2, shape=5)
    normal("z", WIDE @ W.T + b, 0.3, observed=Y[:4])


@model_of("observations", "beta", "alpha")
def more_features_than_rows():
    beta = normal("beta", 0.3, np.linspace(0.1, 2, 7))
    alpha = normal("alpha", 1, 2)
    normal("y", WIDE @ beta + alpha, A[:4, 0], observed=Y[:4, 0])


@model_of("observations", "beta")
def one_row():
    beta = normal("beta", 0.3, 0.7, shape=7)
    normal("y", WIDE[:1] @ beta, 0.2, observed=[1.0])


@model_of("observations", "x")
def mean_of_entries():
    x = normal("x", np.arange(6.0), 0.7)
    normal("y", x.mean(), 0.2, observed=Y[:, 0])


@model_of("observations", "x")
def mean_of_entries_heteroscedastic():
    x = normal("x", np.arange(6.0), 0.7)
    normal("y", x.mean(), A[:, 0], observed=Y[:, 0])


@model_of("observations", "x")
def one_entry():
    x = normal("x", np.arange(6.0), 0.7)
    normal("y", x[-2] * 2, 0.2, observed=1.0)


# --- observations side by side -----------------------------------------------------------------


@model_of("windows", "Z")
def average_pooling_with_a_remainder():
    """Each pixel with a variance of its own, windows with another noise, and an offset."""
    Z = normal("Z", RNG.normal(size=(3, 2, 5, 5)), np.exp(RNG.normal(size=(5, 5))))
    means = sum(Z[:, :, i:4:2, j:4:2] for i in range(2) for j in range(2)) / 4
    normal("P", means + 0.3, np.array([[0.1, 1.0], [2.0, 0.5]]))


@model_of("windows", "x")
def windows_of_a_vector():
    x = normal("x", np.arange(7.0), 0.7)
    normal("y", x[:6].reshape((3, 2)) @ np.array([2.0, -1.0]), A[:3, 0], observed=Y[:3, 0])


@model_of("observations", "Z")
def windows_that_overlap():
    Z = normal("Z", RNG.normal(size=(9, 4)), 0.7)
    normal("P", (Z[:, :-1] + Z[:, 1:]) / 2, 0.3)


# --- fewer observations than entries, and a precision per label --------------------------------


@model_of("few_rows", "X2")
def scalar_output_noise_per_row():
    X2 = normal("X2", RNG.normal(size=(9, 4)), 0.2)
    w = normal("w", 0, 0.5, shape=4)
    normal("y", X2 @ w, A[:, 0], observed=Y[:, 0])


@model_of("few_rows", "X2")
def two_outputs_noise_per_row_and_own_scales():
    X2 = normal("X2", 0.0, np.exp(RNG.normal(size=(9, 5))))
    W = normal("W", 0, 0.5, shape=(5, 2))
    normal("y", 2 * (X2 @ W) + 1, A[:, :2], observed=Y[:, :2])


@model_of("few_rows", "X2")
def two_outputs_of_which_entries_are_missing():
    X2 = normal("X2", RNG.normal(size=(9, 4)), 0.2)
    W = normal("W", 0, 0.5, shape=(2, 4))
    seen = np.arange(18).reshape(9, 2) % 5 > 0
    mean, sigma = X2 @ W.T - 0.3, np.array([0.1, 0.4])
    for name, where in (("y", seen), ("missing", ~seen & (np.arange(9) != 5)[:, None])):
        rows, outputs = np.nonzero(where)
        normal(name, mean[rows, outputs], sigma[outputs], observed=Y[rows, outputs])


@model_of("few_rows", "X2")
def scalar_output_of_some_rows_seen_twice():
    X2 = normal("X2", 0.2, 0.7, shape=(2, 5, 4))
    w = normal("w", 0, 0.5, shape=4)
    normal("y", (X2 @ w)[:, [0, 3, 3, -1]], np.exp(COEFFICIENT[:2, [0, 1, 2, 0]]))


@pytest.fixture
def drawn_forms(monkeypatch):
    """Names of the forms that are drawn."""
    drawn = []
    for form in FORMS:

        def record(rng, block, name=form.draw.__name__, draw=form.draw):
            drawn.append(name)
            return draw(rng, block)

        monkeypatch.setattr(form, "draw", record)
    return drawn


def prepare(name):
    global RNG
    form, names, values, build = MODELS[name]
    RNG = np.random.default_rng(22)  # the same data each time
    with pm.Model() as model:
        build()
    rvs = [model[n] for n in names]
    found = {c.draws: c for c in find_conditionals(model, rvs)}
    assert list(found) == [tuple(rv for rv in model.free_RVs if rv in rvs)]
    seed = sum(map(ord, name))
    point = point_of(model, np.random.default_rng(seed), **values)
    return form, model, found.popitem()[1], point


QUICK = {
    "one_number", "precisions_as_tau", "no_child", "slope_of_data", "biases_heteroscedastic",
    "row_effects", "hierarchical_means", "group_slopes",
    "groups_with_a_common_noise_and_outputs", "groups_seen_by_three_children", "linear_chain",
    "scalar_in_many_places", "three_label_axes", "regression_with_intercept",
    "three_parts_of_one_design", "layer_few_labels", "layer_other_orientation_and_order",
    "layer_heteroscedastic_rows", "inputs_of_a_layer", "weights_in_two_layers",
    "summed_over_two_axes", "design_over_two_axes_heteroscedastic", "three_dimensional_layer",
    "sums_of_units", "random_walk_step", "gathered_and_summed", "part_of_a_matrix",
    "prior_per_weight", "varying_slopes_of_data_with_a_population", "batched_matrices",
    "missing_rows_of_a_second_child", "scalar_output_own_scales", "two_outputs_own_noise",
    "more_features_than_rows", "mean_of_entries", "windows_that_overlap",
    "two_outputs_noise_per_row_and_own_scales", "two_outputs_of_which_entries_are_missing",
    "scalar_output_of_some_rows_seen_twice",
}  # fmt: skip


@pytest.mark.parametrize("name", quick(MODELS, QUICK))
def test_claimed_law_is_the_models(name, drawn_forms):
    form, model, conditional, point = prepare(name)
    assert isinstance(conditional, Gaussian)
    assert_exact_gaussian(model, conditional, point)
    assert set(drawn_forms) == {form}


@pytest.mark.parametrize(
    "name", ["regression_with_intercept", "layer_many_labels", "scalar_output", "two_outputs"]
)
def test_shapes_choose_the_form_and_never_the_law(name):
    """Shapes at compilation that are not the true ones cost time, not exactness."""
    _, model, conditional, point = prepare(name)
    expected = gaussian_law(model, conditional, point)
    for factor in (0, 100):
        shapes = {
            rv: tuple(
                n * (factor if rv in conditional.draws else 3) + (rv in conditional.draws)
                for n in shape
            )
            for rv, shape in shapes_of(model).items()
        }
        law = gaussian_law(model, conditional, point, shapes)
        np.testing.assert_allclose(law.mean, expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(law.covariance, expected.covariance, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_convolution_of_images_has_a_band(drawn_forms, monkeypatch):
    """Two axes of labels, images with noises of their own, a noise for each place above."""
    monkeypatch.setattr(forms, "LEAST", 1)
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        kernels = normal("kernels", shape=(4, 2, 2))
        images = normal(
            "images",
            rng.normal(size=(9, 2, 1, 3)),
            np.exp(rng.normal(size=(2, 1, 3))),
            shape=(9, 2, 2, 3),
        )
        mean = sum(
            kernels[None, :, c, i, None, None] * images[:, c, None, :, i : i + 2]
            for c in range(2)
            for i in range(2)
        )
        normal("above", mean + 0.3, np.exp(rng.normal(size=(4, 1, 2))))
    assert_exact_gaussian(model, match(model, images), point_of(model, rng))
    assert set(drawn_forms) == {"banded"}


def test_a_design_of_data_is_not_evaluated_to_look_for_windows(monkeypatch):
    """Where there are more observations than entries, two of them see the same."""
    monkeypatch.setattr(forms, "windows_of", None)
    with pm.Model() as model:
        W = normal("W", shape=(5, 3))
        normal("z", X @ W.T, 0.1, observed=Y)
    draw_graph(model, match(model, W))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_scales(scale):
    """Priors of 1e-6 and 1e6 noise scales: exact as far as digits allow."""
    with pm.Model() as model:
        W = normal("W", 0, scale, shape=(5, 3))
        normal("z", X @ W.T, 0.1, observed=Y)
    point = point_of(model, np.random.default_rng(0))
    assert_exact_gaussian(model, match(model, W), point, rtol=1e-8)


def test_blocks_that_are_drawn_apart_are_exact_too():
    """Weights and biases as two blocks (spec eqs F1-F4), each given the other."""
    with pm.Model() as model:
        W = normal("W", 0.2, 0.3, shape=(5, 3))
        b = normal("b", 1, 3, shape=5)
        normal("z", X @ W.T + b, 0.1)
    point = point_of(model, np.random.default_rng(0))
    for rv in (W, b):
        assert_exact_gaussian(model, match(model, rv), point)


@pytest.mark.parametrize("seed", range(12))
def test_random_layers(seed):
    """Random sizes (ones among them), scales and children of one matrix variable."""
    rng = np.random.default_rng(seed)
    n, d, k, m = rng.integers(1, 6, size=4)
    scale = [0.3, np.exp(rng.normal(size=d)), np.exp(rng.normal(size=(k, d)))][rng.integers(3)]
    noise = [0.2, np.exp(rng.normal(size=k)), np.exp(rng.normal(size=(n, 1)))][rng.integers(3)]
    with pm.Model() as model:
        W = normal("W", rng.normal(), scale, shape=(k, d))
        normal("z", pm.Data("inputs", rng.normal(size=(n, d))) @ W.T - 0.3, noise, shape=(n, k))
        if rng.integers(2):
            normal("v", W @ rng.normal(size=(d, m)), 0.3, shape=(k, m))
        if rng.integers(2):
            normal("u", W[rng.integers(0, k, size=4)].sum(1), 0.3, shape=4)
        if rng.integers(2):
            normal("t", W.mean(), 0.3)
    assert_exact_gaussian(model, match(model, W), point_of(model, rng), seed=seed)


def test_float32():
    """Laws in single precision agree with double precision to single precision."""
    for name in ("layer_few_labels", "layer_many_labels", "noise_per_unit", "scalar_output",
                 "two_outputs", "hierarchical_means", "varying_slopes"):  # fmt: skip
        _, model, conditional, point = prepare(name)
        expected = gaussian_law(model, conditional, point)
        with pytensor.config.change_flags(floatX="float32", warn_float64="ignore"):
            _, single, conditional32, _ = prepare(name)
            assert all(rv.dtype == "float32" for rv in conditional32.draws)
            point32 = {key: np.float32(value) for key, value in point.items()}
            law = gaussian_law(single, conditional32, point32)
        np.testing.assert_allclose(law.mean, expected.mean, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(law.covariance, expected.covariance, rtol=2e-3, atol=1e-4)


def sampler(model, conditional, point, seed):
    """Draws one after another, from one generator."""
    rng, next_rng, values = draw_graph(model, conditional)
    names = list(model.value_vars)
    function = pytensor.function(
        [rng, *names], [next_rng, *values], mode=ONCE, on_unused_input="ignore"
    )
    generator = np.random.default_rng(seed)
    given = [point[value.name] for value in names]
    while True:
        generator, *drawn = function(generator, *given)
        yield flat(drawn)


SAMPLED = {
    "diagonal": lambda: _labels_model("biases", 4000),
    "elementwise, gathered": lambda: _labels_model("groups", 4000),
    "shared, many labels": lambda: _labels_model("weights", 1000),
    "shared, few labels": lambda: _labels_model("few", 3),
    "batched": lambda: _labels_model("own noise", 1000),
    "own noise of one output": lambda: _labels_model("own noise of one output", 1000),
    "one output": lambda: _labels_model("one output", 1000),
    "two outputs": lambda: _labels_model("two outputs", 1000),
}


FEW = np.random.default_rng(7).normal(size=(40, 30)) / 3


def _labels_model(kind, n):
    with pm.Model() as model:
        if kind == "biases":
            v = normal("v", 0.3, 0.7, shape=n)
            normal("y", 2 * v + 1, 0.5, observed=np.zeros(n))
            form = "diagonal"
        elif kind == "groups":
            v = normal("v", 0.3, 0.7, shape=n)
            normal("y", v[np.arange(2 * n) // 2], 0.5, observed=np.zeros(2 * n))
            form = "diagonal"
        elif kind == "weights":
            v = normal("v", 0.3, np.array([0.7, 0.2, 1]), shape=(n, 3))
            normal("y", X[:4] @ v.T + 1, 0.5, observed=np.zeros((4, n)))
            form = "shared"
        elif kind == "few":
            v = normal("v", 0.3, 0.7, shape=(n, 30))
            normal("y", FEW @ v.T + 1, 0.5, observed=np.zeros((40, n)))
            form = "shared"
        elif kind == "own noise":
            v = normal("v", 0.3, 0.7, shape=(n, 3))
            normal("y", X[:4] @ v.T + 1, np.full(n, 0.5), observed=np.zeros((4, n)))
            form = "batched"
        elif kind == "own noise of one output":
            v = normal("v", 0.3, 0.7, shape=(n, 3))
            normal("y", v @ np.array([1.0, -2, 0.5]), np.full(n, 0.5), observed=np.ones(n))
            form = "few_rows"
        elif kind == "one output":
            v = normal("v", 0.3, 0.7, shape=(n, 3))
            normal("y", v @ np.array([1.0, -2, 0.5]), 0.5, observed=np.ones(n))
            form = "observations"
        else:
            v = normal("v", 0.3, 0.7, shape=(n, 3))
            normal("y", v @ X[:3, :2], 0.5, observed=np.ones((n, 2)))
            form = "observations"
    return model, v, form


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_have_the_claimed_law(name, drawn_forms):
    """With 300 000 whitened numbers a variance off by 2 % is 7 standard errors off.

    The law is worked out here in NumPy for one label, from the model's definition.
    """
    model, v, form = SAMPLED[name]()
    conditional = match(model, v)
    draws = sampler(model, conditional, model.initial_point(), seed=4)
    n, d = v.type.shape[0], int(np.prod(v.type.shape[1:]))
    repeats = max(1, 300_000 // (n * d))
    sample = np.concatenate([next(draws).reshape(n, d) for _ in range(repeats)])
    assert set(drawn_forms) == {form}
    own_scales = name == "shared, many labels"
    precision = 1 / (np.array([0.7, 0.2, 1]) if own_scales else np.full(d, 0.7)) ** 2
    design, response = {
        "diagonal": (np.array([[2.0]]), [-1.0]),
        "elementwise, gathered": (np.array([[1.0], [1.0]]), [0.0, 0.0]),
        "shared, few labels": (FEW, -np.ones(40)),
        "own noise of one output": (np.array([[1.0, -2, 0.5]]), [1.0]),
        "one output": (np.array([[1.0, -2, 0.5]]), [1.0]),
        "two outputs": (X[:3, :2].T, [1.0, 1.0]),
    }.get(name, (X[:4], -np.ones(4)))
    total = np.diag(precision) + 4 * design.T @ design
    mean = np.linalg.solve(total, precision * 0.3 + 4 * design.T @ np.asarray(response))
    white = (sample - mean) @ np.linalg.cholesky(total)
    assert_moments(white, 0.0, 1.0)
    assert_moments(white.ravel(), 0.0, 1.0)
    for i in range(d):
        for j in range(i):
            assert_moments(white[:, i] * white[:, j], 0.0, 1.0)
    # successive labels and successive draws are independent
    assert_moments(white[1:, 0] * white[:-1, -1], 0.0, 1.0)
    assert_moments(white[n:, 0] * white[:-n, 0] if repeats > 1 else white[::2, 0], 0.0, 1.0)


def test_match_gaussian_of_several_needs_one_only_child():
    with pm.Model() as model:
        a = normal("a")
        b = normal("b")
        normal("y", a + b, 1, observed=[1.0])
        normal("u", a, 1, observed=[1.0])
    with pytest.raises(ValueError, match="a, b do not have the same children"):
        match_gaussian(model, [a, b])
    assert len(find_conditionals(model, [a, b])) == 2

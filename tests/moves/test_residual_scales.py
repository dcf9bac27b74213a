"""Scales drawn without the activations between them, against the model's own density.

The oracle is the model's log density with the activations integrated out by completing squares:
given the Polya-Gamma variables of logits above it is quadratic in them.
"""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.laws.any_scales import Powers
from pymc_nnsteps.laws.recognition import find_conditionals
from pymc_nnsteps.moves import residual_scales
from pymc_nnsteps.moves.marginal_likelihood import marginal_likelihood
from pymc_nnsteps.moves.residual_scales import ResidualScale
from pymc_nnsteps.random import lattice
from tests.laws.graphs import shapes_of, sweep_of
from tests.moves.densities import built, integrated_density, random_point
from tests.planting import plant

RNG = np.random.default_rng(17)
N, UNITS = 5, 3
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 2))
GAPS = np.where(np.arange(N) == 2, np.nan, Y[:, 0])
GROUPS = np.array([0, 1, 1, 0, 2])
SHIFTS = np.array([-1.3, -0.2, 0.0, 0.4, 1.1])


def layer():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    return pm.Normal("X2", pt.maximum(z, 0) + 0.3, 0.5)


def half_normal():
    """Beside effects, with a constant in the noise."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma", 1.3)
    a = pm.Normal("a", shape=3)
    pm.Normal("y", layer() @ v + a[GROUPS], sigma * np.linspace(0.5, 2, N), observed=Y[:, 0])


def log_normal():
    """A prior that gives the scale no law given the activations."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.LogNormal("sigma", pm.Normal("level"), 0.7)
    pm.Normal("y", layer() @ v, sigma, observed=Y[:, 0])


def inverse_gamma_of_all_noise():
    sigma = pm.InverseGamma("sigma", 3, 1)
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", abs(z), 0.6 * sigma)
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), sigma, observed=Y[:, 0])


def learnt(y=Y[:, 0], **options):
    nns.intermediate_noise_mlp(X, y, hidden=(UNITS,), **options)


def rows_picked():
    """Samples that are not seen."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma")
    pm.Normal("y", (layer() @ v)[[0, 3, 1, 4]], sigma, observed=Y[:4, 0])


def of_all_noise():
    """One scale of the response, of the activations, and of another variable."""
    sigma = pm.Exponential("sigma", 0.8)
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    a = pm.Normal("X2", abs(z), 0.6 * sigma)
    pm.Normal("u", 0.3, 2 * sigma, observed=Y)
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), sigma, observed=Y[:, 0])


def outputs_of_unlike_noise():
    sigma = pm.HalfNormal("sigma")
    v = pm.Normal("v", shape=(UNITS, 2))
    pm.Normal("y", layer() @ v, sigma * np.array([0.4, 1.5]), observed=Y)


def logistic():
    """Noise of the activations alone."""
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(2, UNITS)), 0.6)
    eta = pm.Gamma("eta", 2, 1, shape=(1, 1))
    a = pm.Normal("X2", abs(z), tau=eta)
    v = pm.Normal("v", shape=UNITS)
    pm.Bernoulli("y", p=pm.math.sigmoid(a @ v - 0.2), observed=[1, 0, 0, 1, 1])


def children_of_one_mean():
    """The scale of one child, beside others that see the same mean in other ways."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma", 1.3)
    mean = layer() @ v
    pm.Normal("y", 1.5 * mean, sigma * np.linspace(0.5, 2, N), observed=Y[:, 0])
    pm.Normal("u", 0.3 - 2 * mean, 0.7, observed=Y[:, 1])
    pm.Bernoulli("k", logit_p=mean, observed=[1, 0, 0, 1, 1])


def children_of_two_means():
    """All rows alike."""
    sigma, a = pm.HalfNormal("sigma", 1.3), layer()
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), sigma, observed=Y[:, 0])
    pm.Normal("u", a @ pm.Normal("w", shape=UNITS), 0.7, observed=Y[:, 1])


def two_responses_of_one_mean():
    v, sigma, a = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma"), layer()
    pm.Normal("y", a @ v, sigma, observed=Y[:, 0])
    pm.Normal("u", a @ v, sigma, observed=Y[:, 1])


def one_scale_of_two_responses():
    sigma, a = pm.HalfNormal("sigma", 1.3), layer()
    v = pm.Normal("v", shape=(UNITS, 2))
    pm.Normal("y", a @ v[:, 0], sigma, observed=Y[:, 0])
    pm.Normal("u", a @ v[:, 1], 1.7 * sigma, observed=Y[:, 1])


def on_some_rows():
    """One scale of three responses: of all rows, of some, and of two that miss some."""
    sigma, a = pm.HalfNormal("sigma", 1.3), layer()
    v, gaps = pm.Normal("v", shape=(UNITS, 4)), np.where(np.eye(N, 2) > 0, np.nan, Y)
    pm.Normal("y", a @ v[:, 0], sigma, observed=Y[:, 0])
    pm.Normal("u", (a @ v[:, 1])[1:4], sigma, observed=Y[1:4, 1])
    pm.Normal("w", a @ v[:, 2:], sigma, observed=gaps)


def of_two_of_three():
    """And of the activations."""
    sigma, w = pm.HalfNormal("sigma", 1.3), pm.Normal("W1", shape=(2, UNITS))
    a = pm.Normal("X2", abs(pm.Normal("Z2", X @ w, 0.6)), 0.7 * sigma)
    v = pm.Normal("v", shape=(UNITS, 3))
    for i, scale in enumerate([sigma, 0.8, sigma]):
        pm.Normal(f"y{i}", a @ v[:, i], scale, observed=X[:, 0] + Y[:, i % 2])


def entry_of_scales():
    """The last of three scales, of two responses by other names, and not those before it."""
    sigma, a = pm.HalfNormal("sigma", [1.3, 0.7, 1.0], shape=3), layer()
    v = pm.Normal("v", shape=(UNITS, 4))
    for i, which in enumerate((-1, 0, 1, 2)):
        pm.Normal(f"y{i}", a @ v[:, i], sigma[which], observed=X[:, 0] + Y[:, i % 2])


def factors_of_rows():
    """None of them zero."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma")
    pm.Normal("y", np.linspace(-1, 2.5, N) * (layer() @ v) + X[:, 0], sigma, observed=Y[:, 0])


CASES = {
    "half-Normal": (half_normal, {}, "sigma"),
    "log-Normal": (log_normal, {}, "sigma"),
    "inverse Gamma of all noise": (inverse_gamma_of_all_noise, {}, "sigma"),
    "learnt": (learnt, {}, "noise_X2"),
    "of the response": (
        learnt,
        {"noise": {"pre": 0.1, "post": 0.2, "output": "learnt"}},
        "noise_y",
    ),
    "missing": (learnt, {"y": GAPS}, "noise_X2"),
    "picked": (rows_picked, {}, "sigma"),
    "two outputs": (learnt, {"y": Y}, "noise_X2"),
    "unlike noise": (outputs_of_unlike_noise, {}, "sigma"),
    "of all noise": (of_all_noise, {}, "sigma"),
    "logistic": (logistic, {}, "eta"),
    "one of three children": (children_of_one_mean, {}, "sigma"),
    "one of two children": (children_of_two_means, {}, "sigma"),
    "of one mean": (two_responses_of_one_mean, {}, "sigma"),
    "of two children": (one_scale_of_two_responses, {}, "sigma"),
    "on some rows": (on_some_rows, {}, "sigma"),
    "of two of three": (of_two_of_three, {}, "sigma"),
    "entry": (entry_of_scales, {}, "sigma"),
    "factors": (factors_of_rows, {}, "sigma"),
}


@pytest.fixture(autouse=True)
def gaps_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        yield


def build(case):
    function, options, _ = CASES[case]
    return built(function, **options)


def scale_of(model):
    """The draw, and the Polya-Gamma variables that it is given."""
    conditionals = find_conditionals(model, model.free_RVs)
    [block] = [c for c in conditionals if c.draws == (model["X2"],)]
    likelihood = marginal_likelihood(block)
    held = {}
    for before in likelihood.before:
        held |= before.fixed
    found = residual_scales.find_residual_scales(likelihood, conditionals, shapes_of(model), {})
    return next(iter(found), None), held


def log_densities(model, scale, held, point):
    """As the draw has them, and as they should be, at shifts of the logarithm."""
    [rv], rng = scale.draws, np.random.default_rng(3)
    shapes = shapes_of(model)
    omegas = {omega: rng.gamma(2.0, size=shapes[c.child]) for omega, c in held.items()}
    fixed = {omega: pt.as_tensor(value) for omega, value in omegas.items()}
    [graph] = substitute([scale.log_density(pt.as_tensor(SHIFTS))], fixed | natural_values(model))
    names = list(model.value_vars)
    function = pytensor.function(names, graph, mode=ONCE, on_unused_input="ignore")
    without = {**point, "X2": np.full_like(point["X2"], np.nan)}
    density = integrated_density(model, "X2", {c.child: omegas[o] for o, c in held.items()})
    stored = model.rvs_to_values[rv].name
    moved = np.zeros(np.shape(point[stored]))
    moved[scale.entry or ...] = 1
    there = [{**point, stored: point[stored] + shift * moved} for shift in SHIFTS]
    expected = np.array([density(point) for point in there])
    return function(*(without[v.name] for v in names)), expected


def differ(model, scale, held):
    found, expected = log_densities(model, scale, held, random_point(model, 2))
    return not np.allclose(found - found[2], expected - expected[2], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_models(case):
    """A lost Jacobian, rows that are missing but counted, eigenvalues in another order."""
    model = build(case)
    scale, held = scale_of(model)
    assert scale.draws[0].name == CASES[case][2]
    assert not differ(model, scale, held)


def seen_twice():
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma")
    pm.Normal("y", (layer() @ v)[[0, 3, 3, 4]], sigma, observed=Y[:4, 0])


def repeated():
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma")
    pm.Normal("y", (layer() @ v)[:, None], sigma, observed=Y)


def rows_without_the_layer():
    """Such rows tell of the scale, and nothing of the activations."""
    v, sigma = pm.Normal("v", shape=UNITS), pm.HalfNormal("sigma")
    pm.Normal("y", np.arange(N) % 2 * (layer() @ v) + X[:, 0], sigma, observed=Y[:, 0])


@pytest.mark.parametrize("function", [seen_twice, repeated, rows_without_the_layer])
def test_scale_of_responses_that_share_what_they_see_is_left(function):
    """What is known for the activations is not enough for the scale."""
    assert scale_of(built(function)) == (None, {})


def entries_of_noise_and_response():
    sigma, w = pm.HalfNormal("sigma", shape=3), pm.Normal("W1", shape=(2, UNITS))
    a = pm.Normal("X2", abs(pm.Normal("Z2", X @ w, 0.6)), sigma[0])
    pm.Normal("y", a @ pm.Normal("v", shape=UNITS), sigma[1], observed=Y[:, 0])


def test_entries_that_are_not_drawn_so_keep_their_own_draw():
    """A scale whose draw is replaced by that of some of its entries: the others stay for ever."""
    model = built(entries_of_noise_and_response)
    of_sigma = [draw for draw in sweep_of(model) if draw.draws == (model["sigma"],)]
    assert [isinstance(draw, ResidualScale) for draw in of_sigma].count(False) == 1
    point = model.initial_point(0)
    step = nns.Gibbs(model=model, rng=np.random.default_rng(0))
    moved = step.step(point)[0]["sigma_log__"]
    assert (moved != point["sigma_log__"]).all()


def missing_rows_counted(right, *given):
    counted, *others = right(*given)
    return pt.ones_like(counted), *others


def eigenvectors_in_another_order(right, matrix):
    found, vectors = right(matrix)
    return found, vectors[:, ::-1]


def common_noise_lost(right, *given):
    weight, residual, spread, is_scaled = right(*given)
    return weight, residual, pt.diag(pt.diagonal(spread)), is_scaled


def another_output_scaled(right, *given):
    *others, is_scaled = right(*given)
    return *others, is_scaled[::-1]


PLANTS = {
    "no Jacobian": (
        *("half-Normal", ResidualScale, "log_density"),
        lambda right, scale, shifts: right(scale, shifts) - shifts,
    ),
    "missing rows counted": (
        *("picked", residual_scales, "along_eigenvectors"),
        missing_rows_counted,
    ),
    "other children lost": (
        *("one of two children", ResidualScale, "_by_output"),
        common_noise_lost,
    ),
    "another output scaled": (
        *("one of two children", ResidualScale, "_by_output"),
        another_output_scaled,
    ),
    "rows of one pattern": (
        *("on some rows", ResidualScale, "_by_output"),
        lambda right, *given: [
            each[:1] if i == 0 else each for i, each in enumerate(right(*given))
        ],
    ),
    "further children lost": (
        *("of all noise", residual_scales, "of_scaled"),
        lambda right, *args: Powers(0.0),
    ),
    "eigenvectors in another order": (
        *("two outputs", residual_scales, "eigh"),
        eigenvectors_in_another_order,
    ),
}


@pytest.mark.parametrize("error", PLANTS)
def test_planted_errors_are_seen(error, monkeypatch):
    case, *planted = PLANTS[error]
    plant(monkeypatch, *planted)
    model = build(case)
    assert differ(model, *scale_of(model))


def steps_on_a_line(widest, n=2000, **options):
    """Levels of steps from draws of a gamma law's logarithm, in that law."""
    law = stats.gamma(3.0)
    rng, start = pt.random.rng("rng"), pt.dscalar()
    next_rng, shift = lattice.lattice_step(
        rng, lambda u: 3 * (start + u) - pt.exp(start + u), widest, **options
    )
    step = pytensor.function([rng, start], [next_rng, start + shift], mode=ONCE)
    generator = np.random.default_rng(4)
    ends = []
    for begin in np.log(law.rvs(n, random_state=np.random.default_rng(5))):
        generator, end = step(generator, begin)
        ends.append(end)
    return law.cdf(np.exp(ends))


@pytest.mark.parametrize("widest", [0.02, 1.0])
def test_lattice_leaves_a_law_invariant(widest):
    levels = steps_on_a_line(widest)
    assert stats.kstest(levels, "uniform").pvalue > 1e-3


def test_lattice_at_a_place_that_is_not_uniform_is_seen(monkeypatch):
    floor = pt.floor
    monkeypatch.setattr(lattice.pt, "floor", lambda x: floor(x / 2))
    levels = steps_on_a_line(0.3, n_points=4)
    assert stats.kstest(levels, "uniform").pvalue < 1e-6


def test_it_stands_between_moves_and_the_fresh_activations():
    """And takes the place of the draw given the activations."""
    model = build("learnt")
    drawn = [tuple(rv.name for rv in draw.draws) for draw in sweep_of(model)]
    place = drawn.index(("X2",))
    assert drawn[place - 6 : place] == [
        ("W2",),
        ("W1", "b1", "Z2", "W2", "noise_y"),
        ("W1", "b1", "Z2", "W2", "b2", "noise_y"),
        ("noise_X2",),
        ("noise_y", "noise_X2"),
        ("noise_Z2", "Z2"),
    ]
    assert drawn.count(("noise_X2",)) == 1
    plain = sweep_of(model, collapse=False)
    assert "step on a lattice" not in [draw.name for draw in plain]


def test_it_is_explained():
    rows = {row[0]: row[2] for row in nns.explain(build("learnt")).rows}
    assert rows["noise_X2"] == (
        "X2 integrated out, given which it moves by small steps; in exchange with noise_y; "
        "children: X2"
    )


@pytest.mark.parametrize(("n_outputs", "is_moved"), [(7, True), (8, False)])
def test_many_outputs_of_few_units_tell_the_scale_themselves(n_outputs, is_moved):
    def factors():
        U, V = pm.Normal("U", shape=(n_outputs, 2)), pm.Normal("V", shape=(9, 2))
        targets = np.ones((n_outputs, 9))
        pm.Normal("y", U @ V.T, pm.HalfNormal("sigma"), observed=targets)

    found = [draw for draw in sweep_of(built(factors)) if isinstance(draw, ResidualScale)]
    assert bool(found) == is_moved

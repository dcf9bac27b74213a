"""A block that is integrated out in two passes over blocks of rows, beside one pass over all."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.compile.expressions import UntranslatableError
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.steps import flat, terms, trajectories
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.terms import block_to_collapse, by_row
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)


def rows(n):
    return {
        "x": RNG.normal(size=(n, 2)),
        "seen": RNG.normal(size=n),
        "weights": RNG.gamma(2.0, size=n),
        "group": RNG.integers(3, size=n),
    }


def network(data):
    model = nns.hierarchical_mlp(data["x"], data["seen"], hidden=(3, 2))
    return model, ["W_ih1", "bh1", "W_h1h2", "bh2", "W_h2o", "bo"]


def several_outputs(data):
    """Whose noises differ: a precision matrix for each."""
    noise = {"noise": "0.05:0.5:0.5"}
    model = nns.hierarchical_mlp(data["x"], data["x"], hidden=(3,), priors=noise)
    return model, ["W_ih1", "bh1", "W_h1o", "bo"]


def weighted(data):
    """A weight for each row; the block is seen by rows alone too, and by a number."""
    with pm.Model() as model:
        x, seen, weights = (pm.Data(name, data[name]) for name in ("x", "seen", "weights"))
        w = pm.Normal("w", shape=(2, 3))
        v = pm.Normal("v", w.sum(), 0.7, shape=3)
        pm.Normal("y", pt.tanh(x @ w) @ v, tau=weights, observed=seen)
        pm.Normal(
            "known", pt.tanh(x @ np.ones((2, 3))) @ v, 0.8, observed=pm.Data("more", data["seen"])
        )
        pm.Normal("total", v.sum() * w[0, 0], 0.5, observed=0.3)
    return model, ["w", "v"]


def groups(data):
    """Each row picks an entry of the block; what is computed of the data has rows too."""
    with pm.Model() as model:
        x, seen, group = (pm.Data(name, data[name]) for name in ("x", "seen", "group"))
        w, v = pm.Normal("w", shape=2), pm.Normal("v", shape=3)
        pm.Normal("y", v[group] + pt.tanh(pt.exp(x) @ w), w[0] ** 2 + 0.1, observed=seen)
    return model, ["w", "v"]


def density(patch, built, *, fewest=1, length=4, mode=AS_WRITTEN):
    """Density with its block integrated out, arguments at a place, and value and gradient there."""
    patch.setattr(terms, "FEWEST", fewest)
    patch.setattr(flat, "ROWS", length)
    model, names = built
    rvs = [model[name] for name in names]
    start = model.initial_point()
    block = block_to_collapse(model, rvs, True, shapes_of(model, start))
    moved = [rv for rv in rvs if rv not in block.draws]
    kernel = trajectories.random_length
    options = None if mode is None else {"mode": mode}
    made = FlatDensity(model, moved, options, block, [(kernel, trajectories.TYPES[kernel])])
    rng = np.random.default_rng(1)
    located = made.read({k: rng.normal(size=np.shape(v)) for k, v in start.items()})
    return made, located, made(located)


@pytest.mark.parametrize("build", [network, several_outputs, weighted, groups])
@pytest.mark.parametrize("n", [1, 9])
def test_density(monkeypatch, build, n):
    """Rows left out or counted twice; sums or slopes that another block or another sum is given."""
    built = build(rows(n))
    _, whole, expected = density(monkeypatch, built, fewest=n + 1)
    made, in_blocks, found = density(monkeypatch, built)
    assert len(whole.layouts) == 1
    assert (len(made.functions), len(in_blocks.layouts)) == (3, 1 if n == 1 else 3)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_a_gradient_without_the_sums_is_seen(monkeypatch):
    built = network(rows(9))
    expected = density(monkeypatch, built)[2]
    once = trajectories.over_blocks

    def first_pass(evaluate, density, q, given):
        found = once(evaluate, density, q, given)
        return found if len(found) != len(q) else 0 * found

    monkeypatch.setattr(trajectories, "over_blocks", first_pass)
    found = density(monkeypatch, built)[2]
    assert found[0] == expected[0]
    assert np.abs(found - expected).max() > 0.1


def test_lengths_that_data_do_not_tell(monkeypatch):
    """What is observed has as many rows as its dims say, whichever are looked at: one pass."""
    data = rows(9)
    with pm.Model(coords={"row": range(9)}) as model:
        x, seen = pm.Data("x", data["x"]), pm.Data("seen", data["seen"])
        w, v = pm.Normal("w", shape=(2, 3)), pm.Normal("v", shape=3)
        pm.Normal("y", pt.tanh(x @ w) @ v, 0.5, observed=seen, dims="row")
    made, located, _ = density(monkeypatch, (model, ["w", "v"]))
    assert (len(made.functions), len(located.layouts)) == (1, 1)


def test_trajectories_in_cpp_and_in_python(monkeypatch):
    built, ends = weighted(rows(9)), []
    for mode in (None, AS_WRITTEN):
        made, located, start = density(monkeypatch, built, mode=mode)
        move, target = made.given_to(trajectories.random_length, located)
        q, rng = located.place, np.random.default_rng(5)
        stats = move(target, q, start, np.full(6, 30.0), 0.1, 30, rng)
        ends.append(np.concatenate([start, q, stats]))
    np.testing.assert_allclose(*ends, rtol=1e-8)


def test_one_compiler_for_all_functions(monkeypatch):
    """Where one is not translated: functions of two compilers would be called from Python."""
    compiled, given = flat.compiled, []

    def second_is_refused(inputs, output, **options):
        given.append(output)
        if len(given) == 2:
            raise UntranslatableError("here")
        return compiled(inputs, output, mode=AS_WRITTEN, on_unused_input="ignore")

    monkeypatch.setattr(flat, "compiled", second_is_refused)
    made = density(monkeypatch, network(rows(9)), mode=None)[0]
    assert len(made.functions) == 3
    assert given[0] is given[2]


X, Y = RNG.normal(size=(25, 2)), RNG.normal(size=25)


def varying_noise():
    """A network in the mean and the scale; weights of both are moved, precisions are not."""
    model = nns.hierarchical_mlp(X, Y, hidden=(2,), sigma="network", likelihood="student_t")
    return model, [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def classes():
    """Integers and a matrix of probabilities; what is computed of the inputs has rows too."""
    with pm.Model() as model:
        x, labels = pm.Data("x", X), pm.Data("labels", (3 * Y).astype(int) % 3)
        w = pm.Normal("w", shape=(2, 3))
        pm.Categorical("y", logit_p=pm.math.exp(x) @ w, observed=labels)
    return model, [w]


def one_column():
    """The length of the only column is stated in the graph, that of the rows is None."""
    model = nns.hierarchical_mlp(X[:, :1], Y > 0, hidden=(2,), likelihood="bernoulli")
    return model, [rv for rv in model.free_RVs if not rv.name.startswith("tau")]


def density_in_blocks(monkeypatch, build, rows):
    model, rvs = build()
    density = FlatDensity(model, rvs, {"mode": AS_WRITTEN})
    point = {k: RNG.normal(size=np.shape(v)) for k, v in model.initial_point().items()}
    monkeypatch.setattr(flat, "ROWS", rows)
    located = density.read(point)
    return model, rvs, point, located.layouts.shape[0], density(located)


@pytest.mark.parametrize("build", [varying_noise, classes, one_column])
@pytest.mark.parametrize("rows", [4, 100])
def test_density_of_rows(monkeypatch, build, rows):
    """Priors counted in each block; rows left out, counted twice, or of other targets."""
    model, rvs, point, n_blocks, found = density_in_blocks(monkeypatch, build, rows)
    factors = [*rvs, model["y"]]
    value = model.compile_logp(vars=factors, mode=AS_WRITTEN)(point)
    slopes = model.compile_dlogp(vars=rvs, mode=AS_WRITTEN)(point)
    assert n_blocks == (7 if rows == 4 else 1)
    np.testing.assert_allclose(found[0], value, rtol=1e-10)
    np.testing.assert_allclose(found[1:], slopes, rtol=1e-9, atol=1e-10)


def test_other_data(monkeypatch):
    """Lengths of blocks that were kept."""
    model, rvs = classes()
    density = FlatDensity(model, rvs, {"mode": AS_WRITTEN})
    monkeypatch.setattr(flat, "ROWS", 4)
    point = {"w": RNG.normal(size=(2, 3))}
    whole = density(density.read(point))
    with model:
        pm.set_data({"x": X[:9], "labels": (3 * Y[:9]).astype(int) % 3})
    part = density.read(point)
    assert len(part.layouts) == 3
    with model:
        pm.set_data({"x": X[9:], "labels": (3 * Y[9:]).astype(int) % 3})
    prior = model.compile_logp(vars=rvs, mode=AS_WRITTEN)(point)
    rest = density(density.read(point))[0] + density(part)[0]
    np.testing.assert_allclose(rest - prior, whole[0], rtol=1e-10)


def random_walk(x, seen, w):
    pm.Normal("y", (x @ w).cumsum(), observed=seen)


def centred(x, seen, w):
    pm.Normal("y", x @ w - (x @ w).mean(), observed=seen)


def own_rows(x, seen, w):
    pm.Normal("y", x @ w + Y, observed=seen)


def latent_rows(x, seen, w):
    pm.Normal("y", x @ w + pm.Normal("latent", shape=25), observed=seen)


def vector(x, seen, w):
    pm.MvNormal("y", x @ w, np.eye(25), observed=seen)


def potential(x, seen, w):
    pm.Normal("y", x @ w, observed=seen)
    pm.Potential("more", (x @ w).sum())


def known_targets(x, seen, w):
    pm.Normal("y", x @ w, observed=Y)


def density_of_the_sum(x, seen, w):
    pm.CustomDist("y", x @ w, logp=lambda value, mean: -pt.sqr((value - mean).sum()), observed=seen)


@pytest.mark.parametrize(
    "observe",
    [
        *(random_walk, centred, own_rows, latent_rows, vector, potential, known_targets),
        density_of_the_sum,
    ],
)
def test_rows_that_depend_on_others_stay_together(observe):
    """Also those that meet numbers which no container holds, or that another term sees."""
    with pm.Model() as model:
        x, seen, w = pm.Data("x", X), pm.Data("seen", Y), pm.Normal("w", shape=2)
        observe(x, seen, w)
    assert by_row(model, [*model.basic_RVs, *model.potentials]).factors == ()

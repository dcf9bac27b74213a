"""A block that is integrated out in two passes over blocks of rows, beside one pass over all."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.kernels import trajectories
from pymc_nnsteps.kernels.expressions import UntranslatableError
from pymc_nnsteps.steps import flat, terms
from pymc_nnsteps.steps.flat import FlatDensity
from pymc_nnsteps.steps.integrated import block_to_collapse
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

    def first_pass(evaluate, q, *given):
        found = once(evaluate, q, *given)
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
        move, functions = made.given_to(trajectories.random_length)
        q, rng = located.place, np.random.default_rng(5)
        rest = np.full(6, 30.0), 0.1, 30, located.numbers, located.layouts, rng
        stats = move(functions, q, start, *rest)
        ends.append(np.concatenate([start, q, stats]))
    np.testing.assert_allclose(*ends, rtol=1e-8)


def test_one_compiler_for_all_functions(monkeypatch):
    """Where one is not translated: functions of two compilers would be called from Python."""
    compiled, given = flat.pymc_compile, []

    def second_is_refused(inputs, output, **options):
        given.append(output)
        if len(given) == 2:
            raise UntranslatableError("here")
        return compiled(inputs, output, mode=AS_WRITTEN, on_unused_input="ignore")

    monkeypatch.setattr(flat, "pymc_compile", second_is_refused)
    made = density(monkeypatch, network(rows(9)), mode=None)[0]
    assert len(made.functions) == 3
    assert given[0] is given[2]

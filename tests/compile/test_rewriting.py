"""Rewritten graphs that are kept: the same functions, and a key for all that they depend on."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import In
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_nnsteps.compile import rewriting
from pymc_nnsteps.compile.compiling import Replace, UseLoops, c_by_default, multiplied
from pymc_nnsteps.compile.graph_translation import in_cpp
from pymc_nnsteps.compile.ops import as_op, refuse_lost
from pymc_nnsteps.compile.rewriting import KeptMode, canonical, compiled, flat
from pymc_nnsteps.random.lattice import choose_point


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder of graphs, which are otherwise those of all tests."""
    monkeypatch.setattr(rewriting, "folder", lambda: tmp_path / "graphs")
    return tmp_path / "graphs"


def kept(folder):
    """Names of the graphs that are kept."""
    return {path.name for path in folder.glob("*")}


def gradients(x, v):
    f = pt.log1p(pt.exp(x @ v)).sum() + pt.linalg.slogdet(pt.eye(3) + x.T @ x)[1]
    return [f, *pt.grad(f, [x, v])]


def in_place(x, v):
    """Arrays that are read, and overwritten after that."""
    y, z = pt.exp(x @ pt.eye(3) * 2), pt.exp(x * 3)
    return [pt.set_subtensor(y[0], v), y.sum(), z.sum(), pt.set_subtensor(z[0], v)]


GRAPHS = {
    "gradients": gradients,
    "an input as a result": lambda x, v: [x, x, x * v],
    "a constant": lambda x, v: [pt.constant([1.0, 2.0]), x.sum()],
    "in place": in_place,
    "a loop": lambda x, v: [
        pytensor.scan(lambda row, total: total + row * v, x, pt.zeros(3), return_updates=False)
    ],
    "a part": lambda x, v: [OpFromGraph([x, v], [x @ v], inline=True)(x, v) ** 2],
}


@pytest.mark.parametrize(
    ("name", "in_c"), [*((name, True) for name in GRAPHS), ("in place", False)]
)
def test_a_kept_graph_is_the_rewritten_one(name, in_c, folder):
    """An output, an input or a node out of its place, and arrays overwritten that are needed."""
    mode = c_by_default()["mode"] if in_c else in_cpp()
    x, v = pt.matrix("x", shape=(None, 3)), pt.vector("v", shape=(3,))
    values = np.random.default_rng(0).normal(size=(4, 3)), np.arange(3.0)

    def function():
        return compiled([x, v], GRAPHS[name](x, v), mode=mode, on_unused_input="ignore")

    fresh, files, again = function(), kept(folder), function()
    assert kept(folder) == files != set()
    written = [flat(function.maker.fgraph) for function in (fresh, again)]
    nodes = [[(str(op), arguments) for op, arguments, _ in graph.nodes] for graph in written]
    assert nodes[0] == nodes[1]
    for _ in range(2):
        for a, b in zip(fresh(*values), again(*values), strict=True):
            np.testing.assert_array_equal(a, b)


def test_updates_and_draws(folder):
    """Updates of shared variables, and generators that are overwritten or not."""
    found = []
    for _ in range(2):
        total = pytensor.shared(np.zeros(3), name="total")
        rng = pytensor.shared(np.random.default_rng(1))
        x = pt.vector("x", shape=(3,))
        following, draw = pt.random.normal(x, 1, rng=rng, return_next_rng=True)
        updates = {total: total + draw, rng: following}
        add = pytensor.function([x], draw, updates=updates, mode=c_by_default()["mode"])
        found.append([add(np.ones(3)), add(np.ones(3)), total.get_value()])
        assert len(kept(folder)) == 1
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0][0] + found[0][1], found[0][2])


class Foreign(Op):
    """An operation of no package that is known: its code may change under its name."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + 1


X = pt.matrix("x", shape=(None, 3))
ONE = {"x": X, "f": lambda x: pt.exp(x) + 1.0}
OTHERS = {
    "a number": {"f": lambda x: pt.exp(x) + 2.0},
    "a type of a number": {"f": lambda x: pt.exp(x) + pt.constant(1.0, dtype="float64")},
    "an array": {"f": lambda x: pt.exp(x) + np.array([1.0, 2.0, 3.0])},
    "an entry of an array": {"f": lambda x: pt.exp(x) + np.array([1.0, 2.0, 4.0])},
    "a function of numbers": {"f": lambda x: pt.expm1(x) + 1.0},
    "an axis": {"f": lambda x: pt.exp(x).sum(0)},
    "another axis": {"f": lambda x: pt.exp(x).sum(1)},
    "a kernel": {"f": lambda x: as_op(choose_point, 1)(x[0], x[0], x[0])},
    "another kernel": {"f": lambda x: refuse_lost(x[0], x[0], x)},
    "results twice": {"f": lambda x: [pt.exp(x) + 1.0] * 2},
    "the length of an axis": {"x": pt.matrix("x", shape=(4, 3))},
    "a type": {"x": pt.matrix("x", shape=(None, 3), dtype="float32")},
    "a part": {"f": lambda x: OpFromGraph([X], [pt.exp(X)])(x)},
    "another part": {"f": lambda x: OpFromGraph([X], [pt.expm1(X)])(x)},
    "an input that may be overwritten": {"of_input": lambda x: In(x, mutable=True)},
    "a rewrite": {"mode": lambda mode: mode.register((Replace(multiplied), 3.0))},
    "another rewrite": {"mode": lambda mode: mode.register((UseLoops(), 3.0))},
    "a rewrite less": {"mode": lambda mode: mode.excluding("fusion")},
    "a setting": {"flags": {"optdb__max_use_ratio": 9.0}},
}


def test_each_graph_has_a_key_of_its_own(folder):
    """A key that leaves out something that rewriting depends on: another graph would be taken."""
    for name, other in {"one": {}, **OTHERS}.items():
        case = ONE | {"of_input": lambda x: x, "mode": lambda mode: mode, "flags": {}} | other
        before = kept(folder)
        mode = case["mode"](c_by_default()["mode"])
        mode = KeptMode(mode.linker, mode.provided_optimizer)
        with pytensor.config.change_flags(**case["flags"]):
            pytensor.function([case["of_input"](case["x"])], case["f"](case["x"]), mode=mode)
        assert kept(folder) - before, name


def test_what_is_not_kept(folder):
    """Graphs of foreign operations, whose code may change, and graphs under other modes."""
    pytensor.function([X], pt.exp(Foreign()(X)), **c_by_default())
    for mode in ("FAST_COMPILE", get_mode("CVM").excluding("fusion")):
        pytensor.function([X], pt.exp(X), **c_by_default({"mode": mode}))
    assert kept(folder) == set()


def once(inputs, outputs, slopes):
    return [slopes[0]]


def fivefold(inputs, outputs, slopes):
    return [5 * slopes[0]]


def test_gradients_after_canonicalisation(folder):
    """A part with a gradient of its own, taken for the same part with another."""
    x = pt.vector("x")

    def slope(gradient):
        part = OpFromGraph([x], [x**2], pullback=gradient)
        [y] = canonical([part(x).sum()])
        return pt.grad(y, x).eval({x: [3.0]})

    slopes = [slope(gradient) for gradient in (once, fivefold)]
    np.testing.assert_allclose(np.ravel(slopes), [1.0, 5.0])
    [again] = [canonical([pt.exp(x) * 1 + 0])[0] for _ in range(2)][1:]
    assert again.owner.inputs == [x]
    assert len(kept(folder)) == 1


def test_a_damaged_file_is_written_again(folder):
    """Half a file, of a disk that was full."""
    for _ in range(2):
        function = pytensor.function([X], pt.exp(X), **c_by_default())
        np.testing.assert_allclose(function(np.zeros((2, 3))), 1.0)
        [path] = folder.glob("*")
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    pytensor.function([X], pt.exp(X), **c_by_default())
    assert path.read_bytes() == whole


def test_the_oldest_graphs_go(folder, monkeypatch):
    """A folder that grows without end."""
    monkeypatch.setattr(rewriting, "MOST", 3)
    for k in range(5):
        pytensor.function([X], X + float(k), **c_by_default())
    assert len(kept(folder)) == 3


@pytest.mark.parametrize("checks", [True, False])
def test_parameters_are_checked_as_pymc_does(checks):
    """Densities outside of their support, in a model and with its checks turned off."""
    sigma = pt.scalar("sigma")
    with pm.Model(check_bounds=checks):
        density = pm.logp(pm.Normal.dist(0, sigma), 0.0)
        functions = [make([sigma], density, **c_by_default()) for make in (compiled, pm.compile)]
    assert functions[0](-1.0) == functions[1](-1.0) or np.isnan([f(-1.0) for f in functions]).all()
    assert (functions[0](-1.0) == -np.inf) == checks

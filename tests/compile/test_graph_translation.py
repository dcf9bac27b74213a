"""Graphs as functions in C++, against PyTensor's own evaluation in Python."""

import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scalar import Composite
from pytensor.tensor.basic import alloc_diag
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_nnsteps.compile import native
from pymc_nnsteps.compile.compiling import numba_by_default
from pymc_nnsteps.compile.graph_translation import CppLinker, in_cpp
from pymc_nnsteps.steps import flat, trajectories
from pymc_nnsteps.steps.flat import FlatDensity

RNG = np.random.default_rng(0)


def compiled(inputs, outputs, mode):
    return pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")


def operations(x, y, v, k, flag):
    """Results of many operations: of matrices x and y, a vector v, indices k and a truth."""
    square = x.T @ x + pt.eye(x.shape[1])
    factor = cholesky(square)
    upper = cholesky(square + 1.0).T
    yield from (x @ y, x.T @ v, v @ x, v @ v, pt.outer(v, v)[1:, ::2] @ x[::2])
    yield from (factor, solve_triangular(factor, y, lower=True))
    yield solve_triangular(upper, v[: y.shape[0]], lower=False)
    yield solve_triangular(factor.T, y, lower=False)
    yield pt.tanh(x + v[:, None]) * pt.exp(-y.T[0]) + pt.erf(x) - pt.sqr(x.T).T
    yield pt.switch((flag > 0) & (x > 0), pt.log1p(pt.abs(x)), x**3)
    yield from (x.sum(), x.sum(axis=0), x.T.sum(axis=1), x[:, ::-1].max(axis=1), x.min(), x.prod(1))
    yield from ((x > -9).all().astype("int64"), (x > 9).any(axis=0).astype("int64"))
    stacked = x[:, None, :] * v[None, : y.shape[0], None]
    yield from (stacked.sum(axis=(0, 2)), stacked.transpose(2, 0, 1), pt.diagonal(stacked, 0, 1, 2))
    yield from (pt.concatenate([x, y.T[1:]]), pt.stack([v.sum(), x[-1, 0], y[0, -1]]), x[:, -1])
    yield from pt.split(v, [2, v.shape[0] - 2], n_splits=2)
    yield from (x.T.reshape((-1,)), x.T.reshape((2, -1)))
    yield from (v[k], x[k], x[k, pt.arange(k.shape[0]) // 2], v[::-2], x[-2:0:-1, 1:])
    yield from (pt.inc_subtensor(v[1:3], v[:2]), pt.inc_subtensor(x[:, 1], v))
    yield from (pt.set_subtensor(x[1:, 0], 2.0), pt.inc_subtensor(v[k], v[: k.shape[0]]))
    yield from (pt.inc_subtensor(x[k], x[: k.shape[0]]), pt.alloc(v, 3, v.shape[0]), pt.diag(v))
    yield from (x[k[:, None] % 2, pt.stack([k, k * 0], axis=1)], x[pt.stack([k, k // 2])], x[v > 0])
    yield pt.set_subtensor(v[v > 0], v[v > 0] * 2)
    yield pt.inc_subtensor(x[k[:, None], k[None] // 2], y[:1, : k.shape[0]])
    yield pt.inc_subtensor(x[pt.stack([k, k // 2])], v[: x.shape[1]])
    holds = x > 0
    yield from (x[holds], stacked[holds[:, : y.shape[0]]], pt.inc_subtensor(x[holds], x[holds]))
    yield from (x[:, k], stacked[:, :, k], stacked[:, k[:, None], k % 2], x[:, holds[0]])
    yield from (pt.set_subtensor(x[:, k[1:]], 3.0), pt.inc_subtensor(stacked[:, :, k], stacked))
    yield from (x.astype("float32") @ y, x.T @ k[0].repeat(x.shape[0]))
    yield x.astype("float32").sum(axis=0)
    yield from (pt.cumsum(x, axis=1), pt.cumsum(stacked, axis=0), pt.cumprod(v), alloc_diag(v))
    yield from (pt.psi(x), pt.erfcx(x))
    yield from (x.shape[0] // 2 + k, (k // 3).astype("float64"), x.astype("float32") * 2)


def test_operations():
    """On arrays by rows, by columns, and parts of larger ones."""
    x, y, v = pt.dmatrix("x"), pt.dmatrix("y"), pt.dvector("v")
    k, flag = pt.lvector("k"), pt.lscalar("flag")
    results = list(operations(x, y, v, k, flag))
    inputs = [x, y, v, k, flag]
    plain = compiled(inputs, results, "FAST_COMPILE")
    functions = [compiled(inputs, results[i : i + 8], in_cpp()) for i in range(0, len(results), 8)]
    values = [RNG.normal(size=shape) for shape in ((6, 4), (4, 5), (6,))]
    given = [*values, np.array([0, 3, -1, 3]), np.array(1)]
    other = [np.asfortranarray(values[0]), values[1][:, ::1], np.repeat(values[2], 2)[::2]]
    for arguments in (given, [*other, *given[3:]]):
        found = [array for function in functions for array in function(*arguments)]
        for result, array, expected in zip(results, found, plain(*arguments), strict=True):
            assert array.dtype == expected.dtype
            rtol = 1e-5 if array.dtype == np.float32 else 1e-9
            np.testing.assert_allclose(array, expected, rtol, 1e-12, err_msg=str(result))


def test_many_arrays_in_one_loop():
    """More than NumPy's loops can have, so that PyTensor's Python has none."""
    matrix = pt.dmatrix()
    scalars = [pytensor.scalar.float64() for _ in range(40)]
    total = Elemwise(Composite(scalars, [pytensor.scalar.add(*scalars)]))(
        *map(matrix.__getitem__, range(40))
    )
    values = RNG.normal(size=(40, 3))
    [found] = compiled([matrix], [total], in_cpp())(values)
    np.testing.assert_allclose(found, values.sum(axis=0))


def test_errors():
    """What Python raises is raised here."""
    x, v, k = pt.dmatrix("x"), pt.dvector("v"), pt.lvector("k")
    for result, kind, values in [
        (x + v, ValueError, (np.ones((2, 3)), np.ones(2), np.array([0]))),
        (x @ v, ValueError, (np.ones((2, 3)), np.ones(2), np.array([0]))),
        (v[k], IndexError, (np.ones((1, 1)), np.ones(2), np.array([2]))),
        (v[k[0]], IndexError, (np.ones((1, 1)), np.ones(2), np.array([-3]))),
        (x[k[:, None], k[None, 1:]], IndexError, (np.ones((1, 1)), np.ones(2), np.array([0, 1]))),
    ]:
        with pytest.raises(kind):
            compiled([x, v, k], [result], in_cpp())(*values)


def responses():
    """A network behind all kinds of responses at once."""
    X = RNG.normal(size=(20, 3))
    classes, counts = RNG.integers(0, 3, 20), RNG.poisson(3.0, 20)
    with pm.Model() as model:
        w, level = pm.Normal("w", shape=(3, 3)), pm.HalfNormal("level")
        ordered = pm.distributions.transforms.ordered
        cuts = pm.Normal("cuts", [-1.0, 1.0], transform=ordered, initval=[-1.0, 1.0])
        f = pm.math.maximum(X @ w, 0.1 * (X @ w))
        of_one, mean = f[:, 0], pm.math.exp(f[:, 1])
        pm.Categorical("class", logit_p=f, observed=classes)
        pm.OrderedLogistic("rank", of_one, cuts, observed=classes)
        pm.OrderedProbit("other_rank", of_one, cuts, observed=classes)
        pm.NegativeBinomial("count", mu=mean, alpha=level, observed=counts)
        pm.BetaBinomial("part", mean, level, 20, observed=counts)
        pm.Beta("share", mu=pm.math.sigmoid(of_one), nu=level, observed=RNG.uniform(size=20))
        limited = pm.Normal.dist(of_one, level)
        pm.Censored("limited", limited, -1, 1, observed=np.clip(X[:, 0], -1, 1))
        pm.Truncated("cut", limited, -9, 9, observed=X[:, 0])
        pm.StudentT("y", 4.0, mu=of_one, sigma=level, observed=X[:, 1])
    return model


@pytest.mark.slow
def test_density_of_responses():
    """The density and gradient are those of PyTensor's Python."""
    network = responses()
    rvs = network.free_RVs
    point = {name: value + 0.2 for name, value in network.initial_point().items()}
    density = FlatDensity(network, rvs, None)
    assert isinstance(density.functions[0].maker.linker, CppLinker)
    found, expected = (each(each.read(point)) for each in (density, plain(network, rvs)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def model():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        w = pm.Normal("w", 0, scale, shape=3)
        X = RNG.normal(size=(20, 3))
        pm.Normal("y", pm.math.tanh(X @ w), 0.3, observed=X[:, 0])
    return model


def test_trajectories_in_cpp_and_in_python():
    """Densities and trajectories of both kinds, of the same seed; and after a pickle."""
    network = model()
    rvs = [network["w"], network["scale"]]
    point = {name: value + 0.3 for name, value in network.initial_point().items()}
    for kernel, limits in [
        (trajectories.no_u_turn, (7,)),
        (trajectories.random_length, (30,)),
    ]:
        call = kernel, trajectories.TYPES[kernel]
        density = FlatDensity(network, rvs, None, called_by=[call])
        assert isinstance(density.functions[0].maker.linker, CppLinker)
        ends = []
        for each in (density, pickle.loads(pickle.dumps(density)), plain(network, rvs)):
            located = each.read(point)
            start = each(located)
            move, target = each.given_to(kernel, located)
            rng = np.random.default_rng(5)
            stats = move(target, located.place, start, np.full(4, 30.0), 0.3, *limits, rng)
            ends.append(np.concatenate([start, located.place, stats, [rng.random()]]))
        np.testing.assert_array_equal(ends[0], ends[1])
        np.testing.assert_allclose(ends[0], ends[2], rtol=1e-9)


def plain(model, rvs):
    return FlatDensity(model, rvs, {"mode": "FAST_COMPILE"})


@pytest.mark.parametrize(
    ("function", "errors", "reason"),
    [
        (pt.linalg.det, None, "MatrixInverse"),
        (pt.sum, "code.cpp:1:2: error: too hard\nmore", f"{pytensor.config.cxx}: too hard"),
    ],
    ids=["no translation", "the compiler"],
)
def test_what_is_refused_is_left_to_numba(monkeypatch, caplog, function, errors, reason):
    """With one line of log. Here to Python in its place, which takes no time to compile."""
    monkeypatch.setattr(flat, "numba_by_default", lambda given: given | {"mode": "FAST_COMPILE"})
    if errors:
        monkeypatch.setattr(native, "_run", lambda command: errors)
    with pm.Model() as model:
        w = pm.Normal("w", shape=(3, 3))
        pm.Normal("y", function(w), RNG.random(), observed=0.5)
    with caplog.at_level("INFO", "pymc.nnsteps"):
        density = FlatDensity(model, [w], None)
    assert not isinstance(density.functions[0].maker.linker, CppLinker)
    [message] = caplog.messages
    assert message.endswith(f"which takes longer than C++: {reason}")


@pytest.mark.slow
def test_compiled_trajectories_on_what_numba_compiles():
    """A loop in Python around it, ten times as long."""
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
    density = FlatDensity(model, [w], numba_by_default())
    located = density.read(model.initial_point())
    density(located)
    move, _ = density.given_to(trajectories.random_length, located)
    assert move is trajectories.random_length.numba

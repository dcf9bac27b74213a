"""Weights that connections share: the density, the draws of their scales, and wrong input."""

import re

import numpy as np
import pytest
from scipy import stats

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(4)
X = RNG.normal(size=(7, 4))
y = RNG.normal(size=7)
IN_PYTHON = {"mode": ONCE}
KERNEL = np.array([[0, 1, -1, -1], [-1, 0, 1, -1], [-1, -1, 0, 1], [2, 2, -1, -1], [-1, 2, 2, -1]])
"""Two convolutions along the inputs: three positions of one, two of another."""
CHANNEL = np.array([0, 0, 0, 1, 1])
OUTER = np.array([[0, 1, 0, -1, -1]])
CONNECTIONS = {"ih": KERNEL, "bh1": CHANNEL, "th": CHANNEL - 1, "ho": OUTER}
PRIORS = {"ih": "0.5:2", "bh": "0.7:3", "th": "0.4:::4", "ho": "x0.6:2", "bo": 1, "noise": "0.3:3"}


def convolutional(n=7, **options):
    given = {"hidden": (5,), "connections": CONNECTIONS, "priors": PRIORS} | options
    return nns.hierarchical_mlp(X[:n], y[:n], **given)


def functions(point, x):
    """The network in plain loops over connections."""
    hidden = np.zeros((len(x), 5))
    for unit in range(5):
        u = np.full(len(x), point["bh1"][CHANNEL[unit]])
        for i in range(4):
            if KERNEL[unit, i] >= 0:
                u += x[:, i] * point["W_ih1"][KERNEL[unit, i]]
        hidden[:, unit] = np.tanh(u) + (point["th1"][0] if CHANNEL[unit] == 1 else 0)
    w = point["W_h1o"]
    return (hidden[:, 0] + hidden[:, 2]) * w[0] + hidden[:, 1] * w[1] + point["bo"]


def test_density():
    """Another weight for a connection, one that is counted twice, a scale of all five sources."""
    model = convolutional()
    shapes = {
        name: tuple(model[name].shape.eval(**IN_PYTHON)) for name in ("W_ih1", "bh1", "W_h1o")
    }
    assert shapes == {"W_ih1": (3,), "bh1": (2,), "W_h1o": (2,)}
    start = model.initial_point()
    values = {name: RNG.normal(size=np.shape(value)) for name, value in start.items()}
    point = {
        name.removesuffix("_log__"): np.exp(v) if name.endswith("_log__") else v
        for name, v in values.items()
    }

    def level(name, alpha, mean):
        tau = point[f"tau_{name}"]
        return stats.gamma.logpdf(tau, alpha / 2, scale=2 * mean / alpha)

    sds = {name: point[f"tau_{name}"] ** -0.5 for name in ("ih1", "bh1", "h1o", "noise")}
    expected = (
        level("ih1", 2, 0.5**-2)
        + level("bh1", 3, 0.7**-2)
        + level("h1o", 2, 3 * 0.6**-2)
        + level("noise", 3, 0.3**-2)
        + stats.norm.logpdf(point["W_ih1"], 0, sds["ih1"]).sum()
        + stats.norm.logpdf(point["bh1"], 0, sds["bh1"]).sum()
        + stats.t.logpdf(point["th1"], 4, 0, 0.4).sum()
        + stats.norm.logpdf(point["W_h1o"], 0, sds["h1o"]).sum()
        + stats.norm.logpdf(point["bo"], 0, 1).sum()
        + stats.norm.logpdf(y, functions(point, X), sds["noise"]).sum()
    )
    logp = model.compile_fn(model.logp(jacobian=False), inputs=model.value_vars, mode=AS_WRITTEN)
    np.testing.assert_allclose(logp(values), expected, rtol=1e-10)


def test_what_follows_from_the_model():
    """Exact conditionals of scales and outputs, draws by rejection, values at other inputs."""
    model = convolutional()
    drawn = ", ".join(variables for variables, _, _ in nns.verify(model).rows)
    assert set(drawn.split(", ")) == {"tau_ih1", "tau_bh1", "tau_h1o", "tau_noise", "W_h1o", "bo"}
    few = convolutional(3, priors=PRIORS | {"noise": 1.0})
    exact = nns.lab.rejection_sample(few, 5, random_seed=0)
    new = RNG.normal(size=(3, 4))
    drawn = exact["posterior"].ds.isel(chain=0)
    predicted = nns.predict(exact, new, model=few)
    for draw in range(5):
        point = {name: drawn[name].values[draw] for name in ("W_ih1", "bh1", "th1", "W_h1o", "bo")}
        np.testing.assert_allclose(predicted[0, draw, :, 0], functions(point, new), rtol=1e-9)


def test_every_connection_its_own_weight():
    """Without the level of units it is the model as it is without connections."""
    priors = {"ih": "0.5:2"}
    plain = convolutional(connections=None, priors=priors)
    own = convolutional(connections={"ih1": np.arange(20).reshape(5, 4)}, priors=priors)
    point = {name: RNG.normal(size=np.shape(v)) for name, v in plain.initial_point().items()}
    flat = {name: v.ravel() if name == "W_ih1" else v for name, v in point.items()}
    logps = [model.compile_logp(mode=AS_WRITTEN)(at) for model, at in ((plain, point), (own, flat))]
    np.testing.assert_allclose(*logps, rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connections": [KERNEL]}, 'must be a mapping such as {"ih": index}'),
        ({"connections": {"hi": KERNEL}}, "connections has the key 'hi'; groups of this network"),
        ({"connections": {"noise": [0]}}, "connections has the key 'noise'"),
        ({"connections": {"ih": KERNEL.T}}, "shape (5, 4), as without connections; got (4, 5)"),
        ({"connections": {"ih": KERNEL / 1.0}}, "must be integers"),
        ({"connections": {"ih": KERNEL - 1}}, "every weight from 0 to the largest"),
        ({"connections": {"ih": 2 * KERNEL}}, "every weight from 0 to the largest"),
        ({"connections": {"ih": np.full((5, 4), -1)}}, "every weight from 0 to the largest"),
        (
            {"connections": {"ih": np.ma.masked_equal(KERNEL, 0)}},
            "['ih1'] is masked; write -1 where",
        ),
        ({"connections": {"io": [[0, 0, 0, 0]]}}, "'io', a group that is left out"),
        (
            {"connections": {"ih": KERNEL}, "priors": {"ih1": "0.2:1:4"}},
            "priors['ih1'] must have an infinite alpha_unit",
        ),
        (
            {"connections": {"ih": KERNEL}, "priors": {"ah": 3}},
            "priors['ah1'] adjusts units",
        ),
    ],
)
def test_wrong_connections(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        convolutional(**({"priors": {}} | options))

"""Moves of kernels with their pre-activations, against the model's own density.

:mod:`tests.moves.interwoven_layers` has the oracle.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.activations import PiecewiseLinear
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.values import natural_values, substitute
from tests.moves.densities import built
from tests.moves.interwoven_layers import (
    Layer,
    check_acceptance,
    check_turns,
    compiled,
    matched,
)

RNG = np.random.default_rng(12)
N = 4
IMAGES = RNG.normal(size=(N, 2, 4, 5))
Y = RNG.normal(size=(N, 3))
SPREAD = np.exp(RNG.normal(size=(N, 3)) / 2)
NOISE = {"pre": 0.3, "pool": 0.2, "post": 0.4, "output": 0.5}
JUMPS = PiecewiseLinear(knots=(-0.4, 0.3), slopes=(-0.7, 0, 1.5), values=(0, 0.4, -1))


def network(*convolutions, y=Y[:, 0], **options):
    return nns.intermediate_noise_cnn(
        IMAGES, y, convolutions=convolutions, **({"noise": NOISE} | options)
    )


def pooled_with_a_remainder():
    network(nns.models.Conv2D(2, (2, 3), padding=(1, 0), pool=(2, 2)), activation=JUMPS)


def not_pooled():
    network(nns.models.Conv2D(2, (3, 2), stride=(1, 2)), y=Y, bias=False)


def outputs_with_noise_of_each_sample():
    """Written by hand, with an offset of the activations and noise of each channel."""
    patches = np.lib.stride_tricks.sliding_window_view(IMAGES[:, 0], (2, 2), (1, 2))
    W = pm.Normal("W1", 0.2, [[0.7], [1.2]], shape=(2, 4))
    mean = (patches.reshape(N, 3, 4, 4) @ W.T).transpose(0, 3, 1, 2)
    z = pm.Normal("Z2", mean, [[[0.5]], [[0.8]]], shape=(N, 2, 3, 4))
    pooled = pm.Normal("P2", z.reshape((N, 2, 3, 2, 2)).mean(-1), 0.4, shape=(N, 2, 3, 2))
    offset = np.arange(6.0).reshape(3, 2) / 9
    a = pm.Normal("X2", pt.maximum(pooled, 0) + offset, [[[0.6]], [[0.3]]], shape=(N, 2, 3, 2))
    mean = a.flatten(2) @ pm.Normal("W2", shape=(12, 3))
    pm.Normal("y", mean, SPREAD, observed=Y)


CASES = {
    outputs_with_noise_of_each_sample: "P2",
    pooled_with_a_remainder: "P2",
}


@cache
def layer_of(build):
    return Layer(built(build), CASES[build])


@cache
def draw_of(build):
    layer = layer_of(build)
    return compiled(layer.model, layer.move, layer.omegas)


@pytest.fixture(params=CASES, ids=lambda build: build.__name__)
def case(request):
    return layer_of(request.param), draw_of(request.param)


def test_a_kernel_is_accepted_at_its_probability(case):
    """Another proposal, probability or way back; patches or outputs of other positions.

    Kernels or pre-activations that stay or go alone. All other proposals meet a level of one.
    """
    check_acceptance(*case)


def test_kernels_are_moved_in_turn(case):
    """Designs, precisions or residuals of the kernel before, or of the pass before."""
    check_turns(*case, "some")


def test_outputs_see_units_in_their_order():
    """Draws of outgoing weights that take a unit for another one."""
    layer = layer_of(outputs_with_noise_of_each_sample)
    model, likelihood = layer.model, layer.move.likelihood
    [mean, _] = parameters(model["y"])
    units = layer.move.pre_activations_by_unit()
    seen = [mean, pt.dot(units.T, likelihood.rows.design.T)]
    point = layer.point | {"P2": layer.point["X2"]}
    results = substitute(seen, natural_values(model))
    function = pytensor.function(model.value_vars, results, mode=ONCE, on_unused_input="ignore")
    ours, theirs = function(*(point[v.name] for v in model.value_vars))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_explained():
    """Outgoing weights read off another design, or a step that leaves the move out."""
    rows = nns.explain(built(pooled_with_a_remainder)).rows
    how = {name: note for name, _, note in rows}
    assert "interwoven with b1, P2" in how["W1"]
    assert "also with X2 integrated out" in how["W2"]
    model = built(not_pooled)
    assert "several outputs depend on its positions" in str(nns.explain(model, details=True))
    assert "interwoven with Z2" in str(nns.explain(model, interweave=True, details=True))


def a_convolution_above():
    network(nns.models.Conv2D(2, 2), nns.models.Conv2D(2, 2))


def kernels_seen_twice():
    W = pm.Normal("W1", shape=(2, 5))
    z = pm.Normal("Z2", (IMAGES[:, 0] @ W.T).transpose(0, 2, 1), 0.5, shape=(N, 2, 4))
    pm.Normal("u", W, 1.0, observed=np.ones((2, 5)))
    a = pm.Normal("X2", abs(z), 0.5, shape=(N, 2, 4))
    pm.Normal("y", a.flatten(2) @ pm.Normal("W2", shape=8), 0.5, observed=Y[:, 0])


def channels_last():
    W = pm.Normal("W1", shape=(2, 5))
    z = pm.Normal("Z2", IMAGES[:, 0] @ W.T, 0.5, shape=(N, 4, 2))
    a = pm.Normal("X2", abs(z), 0.5, shape=(N, 4, 2))
    pm.Normal("y", a.flatten(2) @ pm.Normal("W2", shape=8), 0.5, observed=Y[:, 0])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (a_convolution_above, "Z3 has an output for each of its positions"),
        (kernels_seen_twice, "no kernels enter it alone"),
        (channels_last, "no kernels enter it alone"),
    ],
)
def test_declined(build, reason):
    """A move that would take other positions, or lose a child."""
    with pytest.raises(NotConjugate, match=reason):
        matched(built(build), "Z2")

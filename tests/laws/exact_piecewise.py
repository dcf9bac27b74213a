"""What a draw under a piecewise-linear activation claims, against the model's own log density."""

import numpy as np
import pytensor

from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.random.piecewise_normal import PiecewiseNormalRV
from tests.laws.graphs import draw_graph, logp_of, put, random_nodes


def claimed_log_density(model, conditional, point):
    """The function that the draw's random variable claims, and the check of its entries' order."""
    rng, next_rng, values = draw_graph(model, conditional)
    [node] = random_nodes(rng, next_rng, values)
    assert isinstance(node.op, PiecewiseNormalRV)
    names = list(model.value_vars)
    given = [point[value.name] for value in names]
    parameters = node.op.dist_params(node)
    function = pytensor.function(names, parameters, mode=ONCE, on_unused_input="ignore")
    mu, sigma, x, tau, knots, slopes, intercepts = (np.float64(p) for p in function(*given))
    raw = node.outputs[1].type()
    order = pytensor.function(
        [raw, *names],
        pytensor.graph.replace.graph_replace(values, {node.outputs[1]: raw}, strict=False),
        mode=ONCE,
        on_unused_input="ignore",
    )
    size = np.size(point[conditional.draws[0].name])
    [placed] = order(np.arange(float(size)), *given)
    assert placed.shape == point[conditional.draws[0].name].shape
    np.testing.assert_array_equal(placed.ravel(), np.arange(size))

    def log_density(z):
        z = np.ravel(z)
        k = np.searchsorted(knots, z)
        return (
            -0.5 * ((z - mu) / sigma) ** 2 - 0.5 * ((x - slopes[k] * z - intercepts[k]) / tau) ** 2
        )

    return log_density


def assert_exact_piecewise(model, conditional, point, seed=0):
    """Change one entry at a time, and all at once, near and far."""
    claimed = claimed_log_density(model, conditional, point)
    [z] = conditional.draws
    rng = np.random.default_rng(seed)
    shape = point[z.name].shape
    logp = logp_of(model)
    for scale in (1e-3, 1.0, 1.0, 3.0, 1e3, 1e6):
        start = scale * rng.normal(size=shape)
        reference, ours = logp(put(point, model, [z], start.ravel())), claimed(start)
        for entry in [None, *range(start.size)]:
            other = start.ravel().copy()
            if entry is None:
                other[:] = scale * rng.normal(size=start.size)
            else:
                other[entry] = scale * rng.normal()
            theirs = logp(put(point, model, [z], other)) - reference
            mine = np.sum(claimed(other) - ours)
            tolerance = 1e-10 * (1 + abs(theirs)) + 1e-14 * abs(reference)
            assert abs(mine - theirs) <= tolerance, (scale, entry, mine, theirs)

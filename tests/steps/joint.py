"""Geweke's joint distribution test: alternate a transition and a fresh draw of the data.

If the transition leaves the posterior of every data set invariant, the pair (variables, data)
keeps its joint distribution. In a model of Normal variables that is stated by residuals:
``e_v = (v - mean(v | parents)) / sd``, of all variables and the data together, are independent
standard normals. So every expectation is known exactly and no simulation from the prior is
needed.

Tested are, of each variable's residuals, ``cos(e)`` averaged over all entries and, for two random
projections ``t``, ``t`` and ``cos(t)``; and of each pair of variables the product of their first
projections. The cosine sees an error of scale as well as the square does, but is bounded, so that
its average over a stretch of the chain is nearly normal. Behind a hard decision (probit models)
the data alone cannot move, so the utilities are drawn afresh along with them.

References
----------
Geweke, J. (2004). Getting it right: joint distribution tests of posterior simulators. JASA 99.
"""

from itertools import combinations

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.tensor.random.basic import NormalRV

from tests.statistics import batch_means_z_scores, bonferroni_limit

LEVEL = 1e-4
MEAN_COSINE = np.exp(-0.5)


def joint_z_scores(step, model, data, *, transitions, seed=0, decide=None):
    """z-scores of the statistics named above, from one chain.

    Parameters
    ----------
    step : step method of all free variables of ``model``
    model : pm.Model
        Of Normal variables, and perhaps an observed decision on the last of them.
    data : str
        Name of the ``pm.Data`` container of what is observed.
    transitions : int
    seed : int
    decide : callable, optional
        The observed decision, as a function of the last free variable.

    Returns
    -------
    dict
        From the name of a statistic to its z-score.
    """
    container = model[data]
    normals = [rv for rv in model.basic_RVs if isinstance(rv.owner.op, NormalRV)]
    last = normals[-1]
    names = [rv.name for rv in normals]
    rng = np.random.default_rng(seed)
    residuals, mean_and_sd = _compile(model, normals)
    shape = container.get_value().shape if decide is None else model.eval_rv_shapes()[last.name]

    def redraw(point):
        mean, sd = mean_and_sd(*(point[name] for name in names[:-1]))
        value = (mean + sd * rng.standard_normal(shape)).astype(last.dtype)
        if decide is not None:
            point = {**point, last.name: value}
            value = decide(value)
        container.set_value(value.astype(container.dtype))
        return point

    point = {}
    for rv in normals if decide is not None else normals[:-1]:
        point[rv.name] = np.zeros(model.eval_rv_shapes()[rv.name], rv.dtype)
    for i, rv in enumerate(normals[:-1]):  # start from the joint distribution
        mean, sd = _compile(model, normals[: i + 1])[1](*(point[name] for name in names[:i]))
        noise = rng.standard_normal(point[rv.name].shape)
        point[rv.name] = (mean + sd * noise).astype(rv.dtype)
    point = {name: point[name] for name in model.initial_point()}
    step.setup_chain(np.random.default_rng(seed + 1), 0, transitions)

    history = {name: [] for name in names}
    for _ in range(transitions):
        point = redraw(point)
        point, _ = step.step(point)
        for name in point:
            history[name].append(point[name])
        if decide is None:
            history[last.name].append(container.get_value())
    arrays = [np.asarray(history[name]) for name in names]
    errors = dict(zip(names, residuals(*arrays), strict=True))
    return _z_scores({k: e.reshape(transitions, -1) for k, e in errors.items()}, seed)


def assert_joint(step, model, data, *, transitions, **options):
    """Fail if a moment of the joint distribution is off, at one in 10 000 over all moments."""
    scores = joint_z_scores(step, model, data, transitions=transitions, **options)
    limit = bonferroni_limit(len(scores), LEVEL)
    wrong = {name: round(z, 1) for name, z in scores.items() if not abs(z) < limit}
    assert not wrong, f"z-scores beyond {limit:.1f}: {wrong}"


def _z_scores(errors, seed):
    rng = np.random.default_rng(seed)
    statistics, projections = {}, {}
    for name, e in errors.items():
        statistics[f"{name}: scale"] = np.cos(e).mean(axis=1) - MEAN_COSINE
        directions = rng.standard_normal((2, e.shape[1]))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        projections[name] = t = e @ directions.T
        for i in range(2):
            statistics[f"{name}: projection {i}"] = t[:, i]
            statistics[f"{name}: scale of projection {i}"] = np.cos(t[:, i]) - MEAN_COSINE
    for a, b in combinations(errors, 2):
        statistics[f"{a} x {b}"] = projections[a][:, 0] * projections[b][:, 0]
    scores = batch_means_z_scores(np.stack(list(statistics.values()), axis=1))
    return dict(zip(statistics, scores.tolist(), strict=True))


def _compile(model, normals):
    """Residuals of many draws; mean and sd of the last variable, given those before it."""
    values = [rv.type(name=rv.name) for rv in normals]
    replacements = dict(zip(normals, values, strict=True))
    parameters = [list(rv.owner.op.dist_params(rv.owner)) for rv in normals]
    parameters = [graph_replace(p, replacements, strict=False) for p in parameters]
    residuals = [(v - m) / s for v, (m, s) in zip(values, parameters, strict=True)]
    batched = [pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in values]
    many = vectorize_graph(residuals, dict(zip(values, batched, strict=True)))
    options = {"on_unused_input": "ignore"}
    return (
        pytensor.function(batched, many, mode="FAST_COMPILE", **options),
        pytensor.function(values[:-1], parameters[-1], mode="FAST_COMPILE", **options),
    )

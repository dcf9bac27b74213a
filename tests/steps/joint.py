"""Geweke's joint distribution test: alternate a transition and a fresh draw of the data.

If the transition leaves the posterior of every data set invariant, the pair (variables, data)
keeps its joint distribution. Stated by residuals of each variable given its parents,
``e_v = (v - mean) / sd`` of a normal one and the normal quantile of ``F(v | parents)`` of others
(of a gate: of a uniform number between its values to both sides of the jump), all variables and
the data together are independent standard normals. So every expectation is
known exactly and no simulation from the prior is needed.

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
from pytensor.tensor.random.basic import (
    BernoulliRV,
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    NormalRV,
    StudentTRV,
)
from scipy import special, stats

from pymc_nnsteps.random.generalized_inverse_gaussian import GeneralizedInverseGaussianRV
from tests.statistics import batch_means_z_scores, bonferroni_limit


def inverse_gaussian(nu, delta2, lambda2):
    """The generalised one of order -1/2, whose distribution function is quick."""
    assert np.all(nu == -0.5)
    return stats.invgauss, {"mu": 1 / np.sqrt(delta2 * lambda2), "scale": delta2}


LAWS = {
    BernoulliRV: lambda p: (stats.bernoulli, {"p": p}),
    ExponentialRV: lambda scale: (stats.expon, {"scale": scale}),
    GeneralizedInverseGaussianRV: inverse_gaussian,
    GammaRV: lambda shape, scale: (stats.gamma, {"a": shape, "scale": scale}),
    HalfNormalRV: lambda loc, sigma: (stats.halfnorm, {"loc": loc, "scale": sigma}),
    InvGammaRV: lambda shape, scale: (stats.invgamma, {"a": shape, "scale": scale}),
    StudentTRV: lambda nu, mu, sigma: (stats.t, {"df": nu, "loc": mu, "scale": sigma}),
    LaplaceRV: lambda mu, b: (stats.laplace, {"loc": mu, "scale": b}),
}
"""SciPy's distributions and their parameters: to freeze one takes longer than a sweep."""

LEVEL = 1e-4
MEAN_COSINE = np.exp(-0.5)


def joint_z_scores(step, model, data, *, transitions, seed=0, decide=None):
    """z-scores of the statistics named above, from one chain.

    Parameters
    ----------
    step : step method of all free variables of ``model``
    model : pm.Model
        Of Normal variables and those of ``LAWS``, and perhaps an observed decision on the last.
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
    candidates = model.basic_RVs if decide is None else model.free_RVs
    variables = [rv for rv in candidates if type(rv.owner.op) in (NormalRV, *LAWS)]
    last = variables[-1]
    shapes = model.eval_rv_shapes()
    rng = np.random.default_rng(seed)
    given, given_many = _compile(variables)
    value_names = {rv: model.rvs_to_values[rv].name for rv in model.free_RVs}
    shape = container.get_value().shape if decide is None else shapes[last.name]

    def natural(rv, point):
        value = point[value_names[rv]]
        return value if model.rvs_to_transforms[rv] is None else np.exp(value)

    def stored(rv, value):
        return (value if model.rvs_to_transforms[rv] is None else np.log(value)).astype(rv.dtype)

    def redraw(point):
        value = _draw(rng, last, given[last](*(natural(rv, point) for rv in variables[:-1])), shape)
        if decide is not None:
            point = {**point, last.name: value.astype(last.dtype)}
            value = decide(value)
        container.set_value(value.astype(container.dtype))
        return point

    values = {}
    for i, rv in enumerate(variables):  # start from the joint distribution
        before = [values[other] for other in variables[:i]]
        values[rv] = _draw(
            rng, rv, given[rv](*before), shapes[rv.name] if rv in value_names else shape
        )
    point = {value_names[rv]: stored(rv, values[rv]) for rv in variables if rv in value_names}
    point = {name: point[name] for name in model.initial_point()}
    step.setup_chain(np.random.default_rng(seed + 1), 0, transitions)

    history = {rv: [] for rv in variables}
    for _ in range(transitions):
        point = redraw(point)
        point, _ = step.step(point)
        for rv in value_names:
            history[rv].append(natural(rv, point))
        if last not in value_names:
            history[last].append(container.get_value())
    arrays = {rv: np.asarray(values) for rv, values in history.items()}
    errors = {}
    for i, rv in enumerate(variables):
        parameters = given_many[rv](*(arrays[other] for other in variables[:i]))
        errors[rv.name] = _residuals(rng, rv, arrays[rv], parameters).reshape(transitions, -1)
    return _z_scores(errors, seed)


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


def _residuals(rng, rv, values, parameters):
    if isinstance(rv.owner.op, NormalRV):
        mean, sd = parameters
        return (values - mean) / sd
    if isinstance(rv.owner.op, BernoulliRV):
        [p] = parameters
        uniform = rng.random(values.shape)
        return special.ndtri(np.where(values, 1 - p * uniform, (1 - p) * uniform))
    law, named = LAWS[type(rv.owner.op)](*parameters)
    return special.ndtri(law.cdf(values, **named))


def _draw(rng, rv, parameters, shape):
    if isinstance(rv.owner.op, NormalRV):
        mean, sd = parameters
        return np.asarray(mean + sd * rng.standard_normal(shape), rv.dtype)
    law, named = LAWS[type(rv.owner.op)](*parameters)
    return np.asarray(law.rvs(**named, size=shape, random_state=rng), rv.dtype)


def _compile(variables):
    """Parameters of each variable given the values of those before it, of one draw or many."""
    values = [rv.type(name=rv.name) for rv in variables]
    replacements = dict(zip(variables, values, strict=True))
    batched = [pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in values]
    options = {"on_unused_input": "ignore", "mode": "FAST_COMPILE"}
    one, many = {}, {}
    for i, rv in enumerate(variables):
        parameters = graph_replace(rv.owner.op.dist_params(rv.owner), replacements, strict=False)
        one[rv] = pytensor.function(values[:i], parameters, **options)
        copies = dict(zip(values[:i], batched[:i], strict=True))
        copied = vectorize_graph(parameters, copies) if copies else parameters
        many[rv] = pytensor.function(batched[:i], copied, **options)
    return one, many

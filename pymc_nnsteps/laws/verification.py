r"""Comparison of the laws of draws, read off the draws themselves, with a model's own density.

A draw is a chain of random nodes. The last node, or all standard normals at the end, determine the
law; earlier nodes (Polya-Gamma variables, precisions of Student-t cases) are auxiliary.
With auxiliaries :math:`a`, drawn from :math:`q(a \mid v)`, and a final draw from
:math:`r(v' \mid a)`, the full conditional :math:`p` is left invariant if

.. math:: \log p(v) + \log q(a \mid v) - \log r(v \mid a) = \text{const in } v

for any :math:`a`. This difference is evaluated at random points, from the bulk of the law to far
away; :math:`p` is the product of the model's own densities of the variable and its children. The
parameters of :math:`r` are computed with NaN for the drawn variables, so a law that uses their
values is detected.
"""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc.logprob.utils import ParameterValueError
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.shapes import shapes_of
from pymc_nnsteps.kernels.compiling import without_blas_notice
from pymc_nnsteps.laws.conditional import Conditional
from pymc_nnsteps.laws.recognition import find_conditionals, recognise
from pymc_nnsteps.laws.stated_density import QUICK, Point, StatedDensity, children_of

SCALES = (0.3, 1.0, 1.0, 3.0, 30.0, 1e3)
"""Distances from the bulk of a law, in units of its scale, at which densities are compared."""

RTOL, RTOL_SINGLE = 1e-7, 1e-3
"""Relative tolerance of differences of log densities, in double and single precision."""

LEAST_LOG = float(np.log(np.finfo("float64").tiny))
"""Log density below which the model's own may be that of zero, as a probability underflows."""


def compare_laws(
    model: pm.Model, *, rtol: float | None, rng: np.random.Generator
) -> list[tuple[str, str, float]]:
    """The largest discrepancy of each block's law and the model's density, by :func:`compare`."""
    rows = []
    with without_blas_notice():
        point = _random_point(model, rng)
        shapes = shapes_of(model, point)
        for conditional in find_conditionals(model, recognise(model)[0]):
            found = 0.0
            if any(0 not in shapes[rv] for rv in conditional.draws):
                found, point = compare(model, conditional, point, rng=rng, rtol=rtol)
            names = ", ".join(map(describe, conditional.draws))
            rows.append((names, conditional.name, found))
    return rows


def _random_point(model: pm.Model, rng: np.random.Generator) -> Point:
    """Random point near the initial one; its density is finite where that of the initial one is."""
    start = model.initial_point(random_seed=int(rng.integers(2**31)))
    moved = {
        name: value + 0.3 * rng.normal(size=np.shape(value)).astype(value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in start.items()
    }
    log_densities = model.compile_logp(mode=QUICK, sum=False)
    try:
        with np.errstate(all="ignore"):
            finite = all(np.isfinite(each).all() for each in log_densities(moved))
    except ParameterValueError:
        return start
    return moved if finite else start


def compare(
    model: pm.Model,
    conditional: Conditional,
    point: Point,
    *,
    rng: np.random.Generator,
    rtol: float | None = None,
) -> tuple[float, Point]:
    """Largest discrepancy of a law and the model's density at a point, relative to the tolerance.

    Laws that differ raise an AssertionError with the variables and a child that the law misreads.
    """
    try:
        return _compare(model, conditional, point, rng, rtol)
    except AssertionError as difference:
        names = ", ".join(map(describe, conditional.draws))
        suspects = _misread(model, conditional, point, rtol)
        message = f"{names}: {difference}; {suspects}"
        raise AssertionError(message) from None


def _compare(
    model: pm.Model,
    conditional: Conditional,
    point: Point,
    rng: np.random.Generator,
    rtol: float | None,
) -> tuple[float, Point]:
    dtypes = {value.dtype for value in model.rvs_to_values.values()}
    epsilon = float(np.finfo("float32" if "float32" in dtypes else "float64").eps)
    relative = (RTOL if epsilon < 1e-8 else RTOL_SINGLE) if rtol is None else rtol
    with np.errstate(all="ignore"):
        claim = StatedDensity.of(model, conditional, point, rng)
        reference, ours = claim.both(claim.sample(rng, 0.5))
        assert np.isfinite(ours), f"the log density of its conditional is {ours} at a draw from it"
        assert np.isfinite(reference), (
            f"the model's log density is {reference} at a draw from its conditional"
        )
        worst = 0.0
        for scale in SCALES:
            there, ours_there = claim.both(claim.sample(rng, scale))
            model_difference, difference = there - reference, ours_there - ours
            underflows = model_difference == -np.inf and difference < LEAST_LOG
            if difference == model_difference or underflows:
                continue
            size = relative * (1 + abs(model_difference)) + 450 * epsilon * claim.magnitude
            error = abs(difference - model_difference) / size
            assert error <= 1, (
                f"the log density of its conditional differs by {difference} between two points, "
                f"the model's by {model_difference}"
            )
            worst = max(worst, float(error))
        return worst, claim.point_at(claim.sample(rng, 0.5))


def _misread(model: pm.Model, conditional: Conditional, point: Point, rtol: float | None) -> str:
    """First child that a law misreads when the other children are removed."""
    direct = children_of(model, conditional.draws)
    if not direct:
        return "it has no children: its prior is misread"
    if len(direct) > 1:
        for child in direct:
            others = [other for other in direct if other is not child]
            alone = _without(model, others)
            try:
                [found] = find_conditionals(alone, conditional.draws)
                _compare(alone, found, point, np.random.default_rng(0), rtol)
            except AssertionError:
                return f"child {describe(child)} is misread"
            except (NotConjugate, ValueError):
                continue
    return f"children: {', '.join(map(describe, direct))}"


def _without(model: pm.Model, others: Sequence[TensorVariable]) -> pm.Model:
    """View of a model without some of its variables."""
    view: pm.Model = object.__new__(pm.Model)
    view.__dict__.update(model.__dict__)
    view.free_RVs = [rv for rv in model.free_RVs if rv not in others]
    view.observed_RVs = [rv for rv in model.observed_RVs if rv not in others]
    return view

"""Gaussian blocks whose precision matrix is what is left of much larger numbers.

Columns that repeat each other, a dummy trap, fewer observations than entries: with little noise or
a wide prior, forming ``C^T W C + Lambda`` loses what the prior says. The law of a draw is read off
its graph and compared with one in rational numbers, as far as double precision can hold a draw: in
each direction to within the rounding of the largest one.
"""

from fractions import Fraction

import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc_nnsteps.gaussian import forms
from pymc_nnsteps.laws import find_conditionals
from pymc_nnsteps.laws.effects import match_effects
from pymc_nnsteps.laws.multivariate import match_multivariate
from tests.laws.graphs import evaluate, gaussian_law, shapes_of

RNG = np.random.default_rng(12)
G = np.repeat(np.arange(3), 3)
PAIR = RNG.normal(size=(9, 3))[:, [0, 1, 1, 2]]
DUMMIES = np.column_stack([np.ones(9), G == 0, G == 1, G == 2]).astype(float)
SPAN = RNG.normal(size=(9, 2)) @ RNG.normal(size=(2, 4))
DESIGNS = {"equal columns": PAIR, "dummy trap": DUMMIES, "span": SPAN}
Y = RNG.normal(size=(9, 3))
OWN = np.exp(RNG.normal(size=(9, 3)) / 2)

normal = pm.Normal


def seen(name, mean, sigma, response):
    normal(name, mean, sigma, observed=pm.Data(f"{name}_", response))


def few_labels(C, noise, prior):
    seen("y", C @ normal("v", 0.3, prior, shape=(4, 2)), noise, Y[:, :2])


def no_label(C, noise, prior):
    v = normal("v", 0.3 * np.arange(4), prior)
    seen("y", C @ v + 0.2, noise * OWN[:, 0], Y[:, 0])


def many_labels(C, noise, prior):
    scale = prior * np.array([1.0, 0.5, 2.0, 1.5])
    seen("y", C @ normal("v", 0.0, scale, shape=(6, 4)).T, noise, np.hstack([Y, Y[::-1]]))


def two_children(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(4, 2))
    seen("y", C @ v, noise, Y[:, :2])
    seen("u", 2 * (C[:3] @ v), noise * OWN[:3, :1], Y[:3, 1:])


def several_variables(C, noise, prior):
    a, b = normal("a", 0, prior, shape=2), normal("b", 1.0, prior / 2, shape=(2, 3))
    seen("y", a + C[:, 1:] @ b.T, noise, Y[:, :2])


def noise_of_each_label(C, noise, prior):
    seen("y", C @ normal("v", 0.3, prior, shape=(4, 3)), noise * OWN[0], Y)


def one_label_lost(C, noise, prior):
    scale = np.array([noise, 1.0, 1.0])
    seen("y", C @ normal("v", 0.3, 1.0, shape=(4, 3)), scale, Y)


def two_children_of_each_label(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(4, 3))
    seen("y", C @ v, noise * OWN[0], Y)
    seen("u", C[:2] @ v, noise, Y[:2])


def factor_of_each_label(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(4, 3))
    seen("y", (C @ v) * OWN[0] + 1, noise, Y)


def two_axes_of_labels(C, noise, prior):
    mean, scale = np.array([[[0.3]], [[2.0]]]), prior * np.array([[[1.0]], [[0.5]]])
    v = normal("v", mean, scale, shape=(2, 4, 3))
    seen("y", C @ v, noise * OWN[:2, None, :], np.stack([Y, -Y]))


def varying_slopes(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(2, 4))
    groups = np.arange(9) % 2 - 2
    seen("y", (C * v[groups]).sum(-1), noise, Y[:, 0])


def varying_slopes_and_their_sums(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(2, 4))
    seen("y", (C * v[np.arange(9) % 2]).sum(-1), noise * OWN[:, 0], Y[:, 0])
    seen("u", v @ C[:2].T, noise, Y[:2, :2])


def weights_of_each_label(C, noise, prior):
    v = normal("v", 0.3, prior * np.array([[1.0], [2.0], [0.5], [1.0]]), shape=(4, 3))
    seen("y", C @ v, noise * OWN, Y)


def gates_of_each_label(C, noise, prior):
    v = normal("v", 0.0, prior, shape=(4, 3))
    seen("y", (C @ v) * (Y > -0.5), noise, Y)


def weights_of_each_of_two_labels(C, noise, prior):
    v = normal("v", np.array([[[0.3]], [[2.0]]]), prior, shape=(2, 3, 4))
    seen("y", v @ C.T, noise * OWN.T[:2, None], np.stack([Y.T, -Y.T]))


def fewer_observations(C, noise, prior):
    rows = np.vstack([C[0], C[0], C[4]])
    y = Y[[0, 0, 1]] + noise * OWN[:3]
    seen("y", rows @ normal("v", 0.3, prior, shape=(4, 3)), noise, y)


def one_observation(C, noise, prior):
    v = normal("v", 0.3, prior * np.array([1.0, 1.0, 2.0, 0.5]), shape=(2, 4))
    seen("y", v @ C[4], noise, [0.3, 1.0])


def fewer_observations_of_each_label(C, noise, prior):
    rows = np.vstack([C[0], C[0], C[4]])
    v = normal("v", np.arange(3.0), prior * np.array([[1.0], [1.0], [2.0], [0.5]]), shape=(4, 3))
    seen("y", rows @ v, noise * OWN[:3], Y[:3])


def one_observation_of_some_labels(C, noise, prior):
    v = normal("v", 0.3, prior, shape=(3, 4))
    seen("y", (v @ C[4])[[0, 2, 2]], noise * OWN[0], [0.3, 1.0, 1.0])


def elementwise(C, noise, prior):
    seen("y", normal("v", 0.3, prior, shape=3), noise, Y)


FORMS = {
    forms.shared: [few_labels, no_label, many_labels, two_children, several_variables],
    forms.batched: [noise_of_each_label, one_label_lost, two_children_of_each_label,
                factor_of_each_label, two_axes_of_labels, varying_slopes,
                varying_slopes_and_their_sums],
    forms.labels: [weights_of_each_label, gates_of_each_label, weights_of_each_of_two_labels],
    forms.few_rows: [fewer_observations_of_each_label, one_observation_of_some_labels],
    forms.observations: [fewer_observations, one_observation],
    forms.diagonal: [elementwise],
}  # fmt: skip
CASES = [(form, build) for form, builds in FORMS.items() for build in builds]


def solved(matrix, right):
    """Solution of a linear system of rational numbers."""
    rows = [[*left, *side] for left, side in zip(matrix, right, strict=True)]
    for j in range(len(rows)):
        pivot = next(i for i in range(j, len(rows)) if rows[i][j] != 0)
        rows[j], rows[pivot] = rows[pivot], rows[j]
        rows[j] = [entry / rows[j][j] for entry in rows[j]]
        for i, row in enumerate(rows):
            if i != j and row[j] != 0:
                rows[i] = [a - row[j] * b for a, b in zip(row, rows[j], strict=True)]
    return np.array([row[len(matrix) :] for row in rows])


rational = np.vectorize(lambda x: Fraction(float(x)), otypes=[object])


class Problem:
    """A Gaussian block, and its children's means as functions of it."""

    def __init__(self, model, conditional=None):
        self.model = model
        if conditional is None:
            [conditional] = find_conditionals(model, model.free_RVs)
        self.conditional = conditional
        self.rvs = self.conditional.draws
        self.stops = np.cumsum([int(np.prod(rv.type.shape)) for rv in self.rvs])

    @property
    def size(self):
        return self.stops[-1]

    def prior(self, parameter):
        """Mean (0) or standard deviation (1) of each entry."""
        values = [evaluate([rv.owner.inputs[2 + parameter]])[0] for rv in self.rvs]
        return np.concatenate(
            [
                np.broadcast_to(v, rv.type.shape).ravel()
                for v, rv in zip(values, self.rvs, strict=True)
            ]
        )

    def at(self, child, vector):
        """Mean and standard deviation of each entry of a child."""
        parts = np.split(vector, self.stops[:-1])
        shapes = [rv.type.shape for rv in self.rvs]
        givens = {
            rv: part.reshape(shape) for rv, part, shape in zip(self.rvs, parts, shapes, strict=True)
        }
        [value] = evaluate([self.model.rvs_to_values[child]])
        return [
            np.broadcast_to(parameter, value.shape)
            for parameter in evaluate(child.owner.inputs[2:4], givens)
        ]

    def observe(self, rng, misfit):
        """Let the children be drawn from the model, with a multiple of their noise."""
        v = self.prior(0) + rng.normal(size=self.size)
        for child in self.model.observed_RVs:
            mean, sigma = self.at(child, v)
            response = mean + misfit * sigma * rng.normal(size=mean.shape)
            self.model.set_data(f"{child.name}_", response)

    def exact(self):
        """Mean and precision in rational numbers."""
        prior = 1 / rational(self.prior(1)) ** 2
        linear, precision = rational(self.prior(0)) * prior, np.diag(prior)
        for child in self.model.observed_RVs:
            start, sigma = self.at(child, np.zeros(self.size))
            [value] = evaluate([self.model.rvs_to_values[child]])
            units = [self.at(child, unit)[0] - start for unit in np.eye(self.size)]
            design = rational(np.stack([unit.ravel() for unit in units], axis=1))
            weight = 1 / rational(sigma.ravel()) ** 2
            response = rational(value.ravel()) - rational(start.ravel())
            precision = precision + design.T @ (weight[:, None] * design)
            linear = linear + design.T @ (weight * response)
        return solved(precision, linear[:, None])[:, 0], precision


def assert_exact(law, mean, precision, eps):
    """Compare directions that are independent a posteriori, in their standard deviations."""
    d = len(mean)
    # Rational Cholesky without roots: precision = L D L^T, so that D^(1/2) L^T v is white.
    lower, diagonal, rest = np.zeros((d, d), object), [], precision.copy()
    for j in range(d):
        diagonal.append(rest[j, j])
        lower[:, j] = rest[:, j] / rest[j, j]
        rest = rest - np.outer(lower[:, j], lower[:, j]) * diagonal[j]
    root = np.array([np.sqrt(float(p)) for p in diagonal])
    size = np.abs(law.mean).max() + np.abs(law.factor).max()
    rows = root[:, None] * np.abs(lower.T.astype(float))
    allowed = 1e-6 + 1e3 * eps + 50 * eps * size * rows.sum(1).max()
    assert allowed < 0.2, "this case is beyond the precision"
    white_mean = root * (lower.T @ (rational(law.mean) - mean)).astype(float)
    white_factor = root[:, None] * (lower.T @ rational(law.factor)).astype(float)
    np.testing.assert_allclose(white_mean, 0, atol=allowed)
    np.testing.assert_allclose(white_factor @ white_factor.T, np.eye(d), rtol=0, atol=allowed)


CONDITIONS = [
    ("equal columns", 1e-8, 1.0),
    ("dummy trap", 1e-8, 1.0),
]


@pytest.mark.parametrize(("design", "noise", "prior"), CONDITIONS)
@pytest.mark.parametrize(("form", "build"), CASES, ids=[build.__name__ for _, build in CASES])
def test_law_is_exact_at_any_condition(form, build, design, noise, prior, monkeypatch):
    """Equal columns whose difference has another sd than the prior's, a trap that moves too far."""
    drawn = []
    [entered] = [entry for entry in forms.FORMS if entry.draw is form]
    monkeypatch.setattr(entered, "draw", lambda *args: (drawn.append(form), form(*args))[1])
    with pm.Model() as model:
        build(DESIGNS[design], noise, prior)
    problem = Problem(model)
    problem.observe(np.random.default_rng(1), misfit=1.0)
    law = gaussian_law(model, problem.conditional, model.initial_point())
    assert drawn == [form]
    assert_exact(law, *problem.exact(), np.finfo(float).eps)


@pytest.mark.slow
def test_single_precision():
    """Digits that single precision loses long before double precision does."""
    with pytensor.config.change_flags(floatX="float32", warn_float64="ignore"):
        for build in (few_labels, many_labels, noise_of_each_label, weights_of_each_label,
                      fewer_observations_of_each_label):  # fmt: skip
            with pm.Model() as model:
                build(DUMMIES.astype("float32"), np.float32(1e-2), np.float32(1.0))
            problem = Problem(model)
            problem.observe(np.random.default_rng(1), misfit=1.0)
            law = gaussian_law(model, problem.conditional, model.initial_point())
            assert_exact(law, *problem.exact(), np.finfo("float32").eps)


@pytest.mark.parametrize(
    "build",
    [few_labels, noise_of_each_label, weights_of_each_label, fewer_observations_of_each_label],
)
def test_precision_that_overflows(build):
    """A NaN, or a zero, that is drawn without an error."""
    with pm.Model() as model:
        build(PAIR, 1e-200, 1.0)
    [conditional] = find_conditionals(model, model.free_RVs)
    refused = pytest.raises(np.linalg.LinAlgError, match="larger noise or a tighter prior")
    with refused, np.errstate(all="ignore"):
        gaussian_law(model, conditional, model.initial_point())


def crossed(weeks, noise):
    """Of groups, of weeks in an index, and a level: sums of each two are known from the prior."""
    a, b, c = normal("a", 0.3, 1.0, shape=3), normal("b", 0, 0.5, shape=2), normal("c", 0, 2.0)
    seen("y", a[G] + 0.5 * b[weeks] + c, noise * OWN[:, 0], Y[:, 0])


def slopes_and_dummies(weeks, noise):
    """Two effects of each group, of which others see sums, and a column for each week."""
    s, b = normal("s", 0, 1.0, shape=(3, 2)), normal("b", 0, 0.5, shape=2)
    x = np.column_stack([np.ones(9), np.arange(9) % 3])
    seen("y", (s[G] * x).sum(-1) + np.eye(2)[weeks] @ b, noise, Y[:, 0])


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("build", [crossed, slopes_and_dummies])
def test_effects_are_exact_with_any_noise(build, noise):
    """Effects of two kinds of groups whose sums alone are known from what is seen."""
    with pm.Model() as model:
        build(np.arange(9) % 2, noise)
    problem = Problem(model, match_effects(model, model.free_RVs, shapes_of(model)))
    problem.observe(np.random.default_rng(1), misfit=1.0)
    law = gaussian_law(model, problem.conditional, model.initial_point())
    assert_exact(law, *problem.exact(), np.finfo(float).eps)


def vector(columns, groups):
    v = pm.MvNormal("v", np.zeros(2), np.eye(2))
    normal("y", columns @ v, 1.0, observed=Y[:, 0])


def vectors_by_group(columns, groups):
    v = pm.MvNormal("v", np.zeros(2), np.eye(2), shape=(9, 2))
    normal("y", (columns * v[groups]).sum(-1), 1.0, observed=Y[:, 0])


def effects_of_groups(columns, groups):
    a, b = normal("a", shape=9), normal("b", shape=9)
    normal("y", columns[:, 0] * a[groups] + columns[:, 1] * b[groups], 1.0, observed=Y[:, 0])


@pytest.mark.parametrize("build", [vector, vectors_by_group, effects_of_groups])
@pytest.mark.parametrize("scale", [1e3, 3e7])
def test_what_is_not_drawn_again_is_refused(build, scale):
    """A direction that only the prior knows, drawn from what rounding left of its precision."""
    with pm.Model() as model:
        build(scale * np.column_stack([np.ones(9), np.full(9, 1.1)]), np.arange(9))
    law = match_effects if build is effects_of_groups else match_multivariate
    given = (model.free_RVs, shapes_of(model)) if law is match_effects else model.free_RVs
    conditional = law(model, *given)
    if scale > 1e6:
        with pytest.raises(np.linalg.LinAlgError, match="larger noise or a tighter prior"):
            gaussian_law(model, conditional, model.initial_point())
    else:
        found = gaussian_law(model, conditional, model.initial_point())
        assert np.isfinite(found.factor).all()


def test_vectors_of_groups_with_one_row_in_single_precision():
    """A direction that only the prior knows, whose precision single precision loses."""
    with pytensor.config.change_flags(floatX="float32", warn_float64="ignore"):
        with pm.Model() as model:
            columns = 1e4 * np.column_stack([np.ones(9), np.full(9, 1.1)])
            vectors_by_group(columns.astype("float32"), np.arange(9))
        law = gaussian_law(model, match_multivariate(model, *model.free_RVs), model.initial_point())
    across = np.array([1.1, -1.0]) / np.hypot(1.1, 1.0)
    covariance = law.covariance.reshape(9, 2, 9, 2)[0, :, 0]
    np.testing.assert_allclose(across @ covariance @ across, 1.0, rtol=1e-3)

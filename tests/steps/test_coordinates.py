"""Is the prior standard normal in the coordinates that are proposed in?"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import linalg

from pymc_nnsteps.steps.metropolis import scaled, whitened
from tests.steps.gaussian import MEAN, PRIORS


def affine_map(function, shape):
    """Image of zero, and the matrix of the linear part, of a function of one array."""
    n = int(np.prod(shape))
    origin = np.ravel(function(np.zeros(shape)))
    columns = [np.ravel(function(unit.reshape(shape))) - origin for unit in np.eye(n)]
    return origin, np.stack(columns, axis=1)


def compiled(model, rv, block=None):
    """Both maps of a variable, as functions of one array."""
    coordinates = whitened(model, rv, [rv] if block is None else block)
    x = pt.tensor(dtype=rv.dtype, shape=rv.type.shape)
    return [
        pytensor.function([x], each(x), mode="FAST_COMPILE")
        for each in (coordinates.to_value, coordinates.from_value)
    ]


@pytest.mark.parametrize("name", PRIORS)
def test_covariance_of_the_prior(name):
    """A forgotten mean, a variance for a scale, L^T for L, or a precision for a covariance."""
    prior = PRIORS[name]
    with pm.Model() as model:
        variables = prior.state()
    means, covariances = [], []
    for rv in variables:
        to_value, _ = compiled(model, rv)
        mean, root = affine_map(to_value, rv.shape.eval())
        means.append(mean)
        covariances.append(root @ root.T)
    np.testing.assert_allclose(np.concatenate(means), prior.mean, rtol=1e-12)
    np.testing.assert_allclose(
        linalg.block_diag(*covariances), prior.covariance, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", PRIORS)
def test_maps_are_inverses(name):
    """A solve in the place of a product: the chain would start elsewhere than at its point."""
    with pm.Model() as model:
        variables = PRIORS[name].state()
    for rv in variables:
        to_value, from_value = compiled(model, rv)
        x = np.random.default_rng(0).normal(size=rv.shape.eval())
        np.testing.assert_allclose(to_value(from_value(x)), x, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(from_value(to_value(x)), x, rtol=1e-10, atol=1e-10)


def test_standard_normals_move_along_any_axis_of_a_batch():
    """Vectors taken along the wrong axis, where the lengths would allow it."""
    covariance = np.array([[2.0, 1.2], [1.2, 1.0]])
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(2), cov=covariance, shape=(2, 2))
    to_value, _ = compiled(model, f)
    _, root = affine_map(to_value, (2, 2))
    np.testing.assert_allclose(root @ root.T, np.kron(np.eye(2), covariance), atol=1e-12)


def test_parameters_that_are_variables_of_other_steps():
    """Parameters that are drawn from their prior instead of standing for a value."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        f = pm.Normal("f", mu, sigma, shape=2)
    coordinates = whitened(model, f, [f])
    xi, m, s = pt.vector(), pt.scalar(), pt.scalar()
    value = pytensor.graph.replace.graph_replace(coordinates.to_value(xi), {mu: m, sigma: s})
    np.testing.assert_allclose(value.eval({xi: [1.0, -2.0], m: 5.0, s: 3.0}), [8, -1])


def test_dtype_is_the_variables():
    """Coordinates in double precision for a variable in single, from parameters that are."""
    with pm.Model() as model:
        f = pm.Normal("f", MEAN, 1.0, dtype="float32")
        g = pm.MvNormal("g", np.zeros(3), cov=np.eye(3), dtype="float32")
    for rv in (f, g):
        coordinates = whitened(model, rv, [rv])
        xi = rv.type()
        assert coordinates.to_value(xi).dtype == coordinates.from_value(xi).dtype == "float32"


def test_scaled():
    coordinates = scaled(pt.constant(np.array([2.0, 0.5])))
    xi = pt.vector()
    np.testing.assert_array_equal(coordinates.to_value(xi).eval({xi: [1.0, 1.0]}), [2.0, 0.5])
    np.testing.assert_array_equal(coordinates.from_value(xi).eval({xi: [1.0, 1.0]}), [0.5, 2.0])


# --- priors that are declined --------------------------------------------------------------


def test_a_prior_that_is_not_gaussian():
    """A lognormal would be moved as if it were normal."""
    with pm.Model() as model:
        rate = pm.LogNormal("rate")
    with pytest.raises(ValueError, match=r"rate has the prior LogNormal .* but this step needs"):
        whitened(model, rate, [rate])


def test_a_prior_that_is_transformed():
    """The law of the unconstrained value is not the prior's."""
    with pm.Model() as model:
        size = pm.Normal("size", default_transform=pm.distributions.transforms.log)
    with pytest.raises(ValueError, match=r"size has the prior .* with the transform LogTransform"):
        whitened(model, size, [size])


def test_a_prior_that_depends_on_its_block():
    """The joint prior is Gaussian at best; taken for a product, it is another one."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        nu = pm.Normal("nu")
        f = pm.Normal("f", pm.Deterministic("twice", 2 * (mu + nu)), shape=2)
    with pytest.raises(ValueError, match="f has a prior that depends on mu, nu, a variable"):
        whitened(model, f, [mu, nu, f])
    whitened(model, f, [f])


def test_a_prior_that_depends_on_what_moves_with_its_block():
    """The value variable of such a scale stays where it is, and the scale does not."""
    with pm.Model() as model:
        top = pm.Normal("top", 3.0)
        f = pm.Normal("f", 0, pm.Uniform("spread", 0, pm.math.exp(top)), shape=2)
    with pytest.raises(ValueError, match=r"f has a prior that depends on spread, .* moves with it"):
        whitened(model, f, [top, f])
    whitened(model, f, [f])


def test_a_shape_is_not_a_dependence():
    """The length of another variable of the block is not its value."""
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        f = pm.Normal("f", 0, 1, shape=mu.shape)
    whitened(model, f, [mu, f])

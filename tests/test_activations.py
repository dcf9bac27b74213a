import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import erf, ndtr, softmax

from pymc_nnsteps.activations import (
    ACTIVATIONS,
    LAYER_ACTIVATIONS,
    SMOOTH_ACTIVATIONS,
    Normalize,
    PiecewiseLinear,
    activation_function,
)

Z = np.array([-3.0, -1.0, -0.5, 0.0, 0.3, 1.0, 2.5])
NAMED = {
    "relu": np.maximum(Z, 0),
    "leaky_relu": np.where(Z > 0, Z, 0.01 * Z),
    "abs": np.abs(Z),
    "sign": np.sign(Z),
    "hard_tanh": np.clip(Z, -1, 1),
    "identity": Z,
}
SMOOTH = {
    "gelu": Z * ndtr(Z),
    "tanh": np.tanh(Z),
    "erf": erf(Z),
    "softplus": np.log(1 + np.exp(Z)),
    "softplus0": np.log(1 + np.exp(Z)) - np.log(2),
}
LAYER = {"softmax": softmax(Z), "normalize": Z / np.sqrt(0.01 + np.mean(Z**2))}
AS_PIECES = {
    "relu": PiecewiseLinear([0], [0, 1], [0]),
    "leaky_relu": PiecewiseLinear([0], [0.01, 1], [0, 0]),
    "abs": PiecewiseLinear([0], [-1, 1], [0]),
    "hard_tanh": PiecewiseLinear([-1, 1], [0, 1, 0], [-1, 1]),
    "identity": PiecewiseLinear([], [1], [0]),
}


def any_function(activation):
    named = ACTIVATIONS | SMOOTH_ACTIVATIONS | LAYER_ACTIVATIONS
    return activation_function(activation, named, functions=True)


def test_every_named_activation_is_tested():
    assert ACTIVATIONS.keys() == NAMED.keys()
    assert SMOOTH_ACTIVATIONS.keys() == SMOOTH.keys()
    assert LAYER_ACTIVATIONS.keys() == LAYER.keys()


@pytest.mark.parametrize("name", NAMED)
def test_named_activations(name):
    z = pt.matrix("z")
    result = activation_function(name)(z)
    assert result.ndim == 2
    np.testing.assert_array_equal(result.eval({z: Z[None]}), NAMED[name][None])


@pytest.mark.parametrize("name", [*NAMED, *SMOOTH, *LAYER])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_any_named_activation(name, dtype):
    with pytensor.config.change_flags(floatX=dtype):
        result = any_function(name)(pt.as_tensor(Z[None].astype(dtype)))
    assert result.dtype == dtype
    expected = (NAMED | SMOOTH | LAYER)[name][None]
    np.testing.assert_allclose(
        result.eval(), expected, rtol=1e-14 if dtype == "float64" else 1e-5, atol=1e-15
    )


def test_units_are_normalised_in_groups():
    u = np.arange(12.0).reshape(2, 6)
    expected = [
        np.concatenate([g / np.sqrt(0.01 + np.mean(g**2)) for g in np.split(row, 3)]) for row in u
    ]
    np.testing.assert_allclose(Normalize(3)(u).eval(), expected)


@pytest.mark.parametrize("groups", [0, 1.5, True, "2"])
def test_wrong_groups(groups):
    with pytest.raises(ValueError, match="groups must be a positive integer; got"):
        Normalize(groups)


def test_gelu_keeps_its_digits_in_the_tail():
    z = np.array([-30.0, -8.0, 40.0])
    np.testing.assert_allclose(any_function("gelu")(pt.as_tensor(z)).eval(), z * ndtr(z))


@pytest.mark.parametrize("function", [lambda z: pt.sin(z) + z, np.tanh, AS_PIECES["abs"]])
def test_functions_of_a_tensor(function):
    assert any_function(function) is function


@pytest.mark.parametrize("name", AS_PIECES)
def test_pieces_reproduce_the_named_activation(name):
    np.testing.assert_allclose(AS_PIECES[name](Z).eval(), NAMED[name])


def test_knot_belongs_to_the_piece_on_its_right():
    jump = PiecewiseLinear([0.0, 1.0], [0, 2, 0], [-1, 5, 7])
    np.testing.assert_array_equal(jump([-1.0, 0.0, 0.5, 1.0, 9.0]).eval(), [-1, 5, 6, 7, 7])


def test_values_at_knots_give_a_continuous_function():
    knots, slopes = (-2.0, 0.5, 3.0), (-1.0, 0.4, 1.2, 0.0)
    values = (1.0, 2.0, 5.0)
    function = PiecewiseLinear(knots, slopes, values)
    np.testing.assert_allclose(function(knots).eval(), values)
    below = np.nextafter(knots, -np.inf)
    np.testing.assert_allclose(function(below).eval(), values)
    assert function == PiecewiseLinear(knots, slopes, function.intercepts)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("floatx", ["float32", "float64"])
def test_piecewise_keeps_the_dtype(dtype, floatx):
    with pytensor.config.change_flags(floatX=floatx):
        assert AS_PIECES["leaky_relu"](pt.vector(dtype=dtype)).dtype == dtype
        assert AS_PIECES["leaky_relu"](pt.ivector()).dtype == floatx


@pytest.mark.parametrize("name", NAMED)
def test_named_activations_keep_float32_under_floatx_float32(name):
    with pytensor.config.change_flags(floatX="float32"):
        assert ACTIVATIONS[name](pt.matrix(dtype="float32")).dtype == "float32"


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_activations_keep_float32_under_floatx_float32(name):
    with pytensor.config.change_flags(floatX="float32"):
        assert SMOOTH_ACTIVATIONS[name](pt.matrix(dtype="float32")).dtype == "float32"


def test_piecewise_is_a_value():
    function = PiecewiseLinear(np.array([0]), [0, 1], [0])
    assert function == AS_PIECES["relu"]
    assert hash(function) == hash(AS_PIECES["relu"])
    assert pickle.loads(pickle.dumps(function)) == function
    with pytest.raises(AttributeError):
        function.knots = ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 1], [0, 1, 0], [0, 0]), "knots must be strictly increasing"),
        (([2, 1], [0, 1, 0], [0, 0]), "knots must be strictly increasing"),
        (([np.nan], [0, 1], [0]), "knots must be a flat sequence of finite numbers"),
        ((0.0, [0, 1], [0]), "knots must be a flat sequence of finite numbers"),
        ((["a"], [0, 1], [0]), "knots must be a sequence of numbers"),
        (([0], [0], [0]), "slopes must have one entry per piece, 2 for 1 knots; got 1"),
        (([0], [0, np.inf], [0]), "slopes must be a flat sequence of finite numbers"),
        (([0], [0, 1], [0, 1, 2]), "values must have 2 entries .* or 1 .*; got 3"),
        (([], [1], []), "values must have 1 entries"),
        (([0], [0, 1], [np.nan]), "values must be a flat sequence of finite numbers"),
        (([-1, 1], [0, 2, 0], [-1, 1]), r"values at the knots imply the inner slopes \[1.0\]"),
    ],
)
def test_wrong_pieces(arguments, message):
    with pytest.raises(ValueError, match=message):
        PiecewiseLinear(*arguments)


@pytest.mark.parametrize("unknown", ["tanh", "gelu", "ReLU", np.tanh, None])
def test_unknown_activation_lists_the_known_ones(unknown):
    with pytest.raises(ValueError, match="activation must be one of") as caught:
        activation_function(unknown)
    assert all(name in str(caught.value) for name in NAMED)
    assert not any(f'"{name}"' in str(caught.value) for name in SMOOTH)


@pytest.mark.parametrize("unknown", ["GELU", None, 3])
def test_unknown_activation_lists_all_names(unknown):
    with pytest.raises(ValueError, match="activation must be one of") as caught:
        any_function(unknown)
    assert all(name in str(caught.value) for name in NAMED | SMOOTH | LAYER)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: z.sum(axis=1), "activation must return a tensor .* 2 axes of float64 .* 1 of"),
        (lambda z: z > 0, "activation must return a tensor .* returned 2 of bool"),
        (lambda z: 1.0, "activation must return a PyTensor tensor; .* returned a float"),
        (lambda z: None, "activation must return a PyTensor tensor; .* returned a NoneType"),
    ],
)
def test_functions_that_are_no_activation(function, message):
    with pytest.raises(ValueError, match=message) as caught:
        any_function(function)
    assert str(caught.value).endswith(".")

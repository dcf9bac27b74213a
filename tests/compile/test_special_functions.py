"""Functions of numbers in C++, at points where they are hard."""

import numpy as np
import pymc.distributions.dist_math as of_pymc
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special

from pymc_nnsteps.compile.graph_translation import in_cpp
from pymc_nnsteps.compile.native import SPECIAL
from tests.modes import AS_WRITTEN

NUMBERS = np.array(
    [
        *(0.0, -0.0, 1.0, 0.3, 2.5, -0.5, -1.0, -2.5, 1e-8, 1e-300, 33.3, 700.0, 1e10, 1e300),
        *(np.inf, -np.inf, np.nan, 1 - 1e-12, -30.0),
    ]
)
EPS = np.finfo(float).eps
TWO = ("gammainc", "gammaincc", "gammainccinv", "gammaincinv", "ive", "jv", "kve", "owens_t")
N_ARGUMENTS = {"betainc": 3, "betaincinv": 3, "hyp2f1": 4} | dict.fromkeys(TWO, 2)


def function_of(name):
    """PyTensor's or PyMC's; their oldest versions lack one."""
    return getattr(pt, name, None) or getattr(of_pymc, name, None)


def assert_as_in_python(inputs, results, given, rtol):
    """Results of one length are as PyTensor's Python computes them."""
    found, expected = (
        pytensor.function(inputs, pt.stack(results), mode=mode)(*given)
        for mode in (in_cpp(), AS_WRITTEN)
    )
    for result, array, right in zip(results, found, expected, strict=True):
        np.testing.assert_allclose(array, right, rtol, err_msg=str(result))


def test_functions_of_scipy():
    """They are SciPy's to the last digits, of integers too."""
    x, y, k = pt.dvector("x"), pt.dvector("y"), pt.lvector("k")
    share = pt.abs(x) / (1 + pt.abs(x))
    arguments = {1: [x], 2: [x, y], 3: [x, y, share], 4: [x, y, y + 0.5, 0.3]}
    results = [
        function(*arguments[N_ARGUMENTS.get(name, 1)])
        for name in SPECIAL
        if (function := function_of(name)) is not None
    ]
    results += [function_of(name)(k) for name in ("psi", "gamma", "sigmoid", "softplus", "i0")]
    results.append(pt.round(x, mode="half_to_even"))
    given = [np.ravel(each) for each in np.meshgrid(NUMBERS, NUMBERS)]
    given.append(np.resize([0, 1, 7, -2, 40], given[0].size))
    assert_as_in_python([x, y, k], results, given, 4 * EPS)


def test_derivatives_of_the_digamma_function():
    """SciPy's to some units in the last place; it has those of order zero too."""
    x, n = pt.dvector("x"), pt.lvector("n")
    results = [pt.tri_gamma(x), pt.polygamma(n, x), pt.polygamma(2, x)]
    orders, numbers = map(np.ravel, np.meshgrid([0, 1, 2, 3, 7], NUMBERS))
    function = pytensor.function([x, n], results, mode=in_cpp())
    for array, order in zip(function(numbers, orders), (1, orders, 2), strict=True):
        np.testing.assert_allclose(array, special.polygamma(order, numbers), 1e-13)


def test_numbers_of_several_types():
    """Floor division of floats is NumPy's, and float32 + int64 is in double precision."""
    x, y, k = pt.dvector("x"), pt.fvector("y"), pt.lvector("k")
    quotients = [x // np.array(0.1), k // x, y / k]
    results = [*quotients, y + k, y * k, pt.switch(k > 1, y, x), pt.dot(y, x) + x]
    given = np.array([1.0, -1.0, 0.7]), np.float32([33.3, 0.1, -7.7]), np.array([1000, 7, 1])
    assert_as_in_python([x, y, k], results, given, EPS)


def test_minus_an_unsigned_integer():
    """PyTensor's own rewrite of it fails, and prints so where errors are not raised."""
    k = pt.lvector("k")
    with pytensor.config.change_flags(on_opt_error="raise"):
        function = pytensor.function([k], (-k.astype("uint8")).astype("float64"), mode=in_cpp())
    np.testing.assert_array_equal(function(np.array([0, 1, 255])), [0, 255, 1])


@pytest.mark.parametrize("is_in_cpp", [True, False], ids=["C++", "Python"])
def test_what_is_promised_of_digits(is_in_cpp):
    """Errors are those of rounding arguments, which ``log(1 - x)`` near one multiplies."""
    z = pt.dvector("z")
    x = pt.sigmoid(z)
    mode = in_cpp() if is_in_cpp else AS_WRITTEN
    values = np.linspace(-30, 35, 400)
    [found] = pytensor.function([z], [pt.log(1 - x)], mode=mode)(values)
    right = -np.logaddexp(0, values)
    of_rounding = EPS * (1 + np.exp(values))
    assert np.all(np.abs(found - right) <= 2 * of_rounding + 2 * EPS * np.abs(right))

"""``Prior``: its notation, its numbers, and the scaling of Neal's eq. 26."""

import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t as student_t

import pymc_nnsteps as nns
from pymc_nnsteps import Prior

INF = math.inf
ALPHAS = list(itertools.product([INF, 0.5], [INF, 3], [INF, 4]))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.05", (0.05, INF, INF, INF)),
        ("0.05:0.5", (0.05, 0.5, INF, INF)),
        ("2:1:3", (2, 1, 3, INF)),
        ("2:1:3:4", (2, 1, 3, 4)),
        ("2::3", (2, INF, 3, INF)),
        ("2:::4", (2, INF, INF, 4)),
        ("2:1::4", (2, 1, INF, 4)),
        ("2::3:4", (2, INF, 3, 4)),
        ("2:::", (2, INF, INF, INF)),
        ("2:inf:3", (2, INF, 3, INF)),
        ("1e-3:.5", (0.001, 0.5, INF, INF)),
    ],
)
@pytest.mark.parametrize("scale", [False, True])
def test_notation(text, numbers, scale):
    """A number read into the wrong level, an empty one that is not infinite, an ``x`` ignored."""
    parsed = Prior.parse("x" * scale + text)
    levels = parsed.width, parsed.alpha_common, parsed.alpha_unit, parsed.alpha_weight
    assert levels == numbers
    assert parsed.scale is scale
    assert parsed == Prior(*numbers, scale=scale)


@pytest.mark.parametrize("alphas", ALPHAS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("width", [2, 0.05, 1 / 3, 1e-7, 12345])
def test_round_trip(alphas, scale, width):
    """A level that is left out in print, or moves."""
    prior = Prior(width, *alphas, scale=scale)
    assert Prior.parse(str(prior)) == prior
    assert str(prior).count(":") == max((k for k in (1, 2, 3) if alphas[k - 1] < INF), default=0)


def test_defaults_value_and_hash():
    assert Prior(2) == Prior(2.0, INF, INF, INF, scale=False) == Prior.parse("2")
    assert Prior(2) != Prior(2, scale=True)
    assert len({Prior(1, 2), Prior.parse("1:2"), Prior(1, alpha_unit=2)}) == 2
    assert Prior(np.float32(0.5), np.int64(2)) == Prior(0.5, 2)
    assert pickle.loads(pickle.dumps(Prior(1, 2))) == Prior(1, 2)
    with pytest.raises(AttributeError):
        Prior(1).width = 2


@pytest.mark.parametrize("alphas", ALPHAS)
@pytest.mark.parametrize("n_sources", [1, 7])
def test_mean_precision_without_scale(alphas, n_sources):
    assert Prior(0.2, *alphas).mean_precision(n_sources) == pytest.approx(25, rel=1e-14)


@pytest.mark.parametrize("alpha_common", [INF, 0.5])
@pytest.mark.parametrize("n_sources", [1, 2, 3, 10])
@pytest.mark.parametrize(
    ("alpha", "factor"),
    [
        (INF, lambda n: n),
        (4, lambda n: 2 * n),
        (2.5, lambda n: 5 * n),
        (2, lambda n: n * np.log(n) if n > 2 else n),
        (1, lambda n: n**2),
        (0.5, lambda n: n**4),
    ],
)
def test_mean_precision_with_scale(alpha_common, n_sources, alpha, factor):
    """Eq. 26; ``alpha`` is that of the weights, or of the units where weights are normal."""
    expected = pytest.approx(factor(n_sources) / 0.3**2, rel=1e-14)
    by_unit = Prior(0.3, alpha_common, alpha, INF, scale=True)
    by_weight = Prior(0.3, alpha_common, INF, alpha, scale=True)
    assert by_unit.mean_precision(n_sources) == expected
    assert by_weight.mean_precision(n_sources) == expected
    if alpha < INF:
        for other in (0.7, 2, 6):
            both = Prior(0.3, alpha_common, other, alpha, scale=True)
            assert both.mean_precision(n_sources) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "a", "0", "-1:2", "1:-2", "1:0", "nan", "1:nan", "inf", "1:a", "1:2:b", ":1"),
        *("1:2:3:c", "1:2:3:4:5", "xx1", "1x", "1;2", "1, 2", "x:1"),
        *(None, 3, 2.0, ["1"], b"1", Prior(1)),
    ],
)
def test_bad_notation(text):
    with pytest.raises(ValueError, match=r"A prior is written .*; got ") as caught:
        Prior.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["width", "alpha_common", "alpha_unit", "alpha_weight"])
@pytest.mark.parametrize("value", [0, -1, math.nan, -INF, True, "1", None, [1.0], 1j])
def test_bad_numbers(name, value):
    """Also: a message that names another argument."""
    with pytest.raises(ValueError, match=f"^{name} must be a positive number; got ") as caught:
        Prior(**{"width": 1.0, name: value})
    assert str(caught.value).endswith(".")


def test_infinite_width():
    with pytest.raises(ValueError, match=r"^width must be finite\.$"):
        Prior(INF)


@pytest.mark.parametrize("value", [1, 0, "x", None, np.True_])
def test_scale_is_a_bool(value):
    with pytest.raises(ValueError, match=r"^scale must be True or False; got .*\.$"):
        Prior(1, scale=value)


def theirs(distribution, **parameters):
    """A ``pymc_extras.prior.Prior``, by what is read of it."""
    return SimpleNamespace(
        distribution=distribution, parameters=parameters, dims=(), transform=None
    )


def test_priors_of_pymc_extras():
    """The law of the weights is the one that is stated, whatever the parts are called."""
    learnt = theirs("Normal", tau=theirs("Gamma", alpha=1.5, beta=0.25))
    tails = theirs("StudentT", sigma=0.3, nu=4.0)
    X = np.arange(6.0).reshape(3, 2) / 5
    priors = {"ih1": learnt, "h1o": tails}
    model = nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), priors=priors)
    alpha, scale = (
        each.eval() for each in model["tau_ih1"].owner.op.dist_params(model["tau_ih1"].owner)
    )
    np.testing.assert_allclose((alpha, 1 / scale), (1.5, 0.25))
    point = model.initial_point()
    found = model.compile_logp([model["W_h1o"]])(point | {"W_h1o": np.array([[0.1, -0.7]])})
    np.testing.assert_allclose(found, student_t(4, scale=0.3).logpdf([0.1, -0.7]).sum())
    for other in (
        theirs("Normal", mu=1, sigma=0.5),
        theirs("Normal", sigma=theirs("HalfNormal")),
        theirs("Laplace", b=1),
        SimpleNamespace(**vars(learnt) | {"dims": ("unit",)}),
    ):
        with pytest.raises(
            ValueError, match=r"priors\['ih1'\] is not a prior: a prior of pymc_extras must"
        ):
            nns.hierarchical_mlp(X, X[:, 0], hidden=(2,), priors={"ih1": other})

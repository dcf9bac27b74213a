import numpy as np
import pymc as pm
import pytest
from scipy.stats import norm

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from tests.modes import AS_WRITTEN

N_OBS = 6
IN_PYTHON = {"mode": ONCE}
CASES = {
    "stride, padding, remainder": (
        (2, 7, 6),
        [nns.models.Conv2D(3, (3, 2), stride=(2, 1), padding=(1, 0), pool=(2, 3))],
        (),
    ),
    "two in a row, hidden": (
        (1, 6, 6),
        [nns.models.Conv2D(2, 3, padding=1, pool=2), nns.models.Conv2D(3, 2)],
        (4,),
    ),
}


def images(shape, seed=0):
    return np.random.default_rng(seed).normal(size=(N_OBS, *shape))


def convolved(x, W, stride, padding):
    """The definition, pixel by pixel."""
    (py, px), (sy, sx), (ky, kx) = padding, stride, W.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    height, width = (x.shape[2] - ky) // sy + 1, (x.shape[3] - kx) // sx + 1
    out = np.empty((len(x), len(W), height, width))
    for i in range(height):
        for j in range(width):
            seen = x[:, :, i * sy : i * sy + ky, j * sx : j * sx + kx]
            out[:, :, i, j] = np.einsum("ncyx,acyx->na", seen, W)
    return out


def pooled(z, pool):
    (py, px), (height, width) = pool, z.shape[2:]
    out = np.empty((*z.shape[:2], height // py, width // px))
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            out[:, :, i, j] = z[:, :, i * py : (i + 1) * py, j * px : (j + 1) * px].mean((2, 3))
    return out


def layers(x, convolutions, hidden, value):
    """Name, mean and kind of each latent layer, given the values of those before."""
    layer = 1
    for made in convolutions:
        mean = convolved(x, value[f"W{layer}"], made.stride, made.padding)
        mean += value[f"b{layer}"][:, None, None]
        yield f"Z{layer + 1}", mean, "pre"
        z = value.get(f"Z{layer + 1}", mean)
        if made.pool != (1, 1):
            mean = pooled(z, made.pool)
            yield f"P{layer + 1}", mean, "pool"
            z = value.get(f"P{layer + 1}", mean)
        yield f"X{layer + 1}", abs(z), "post"
        x = value.get(f"X{layer + 1}", abs(z))
        layer += 1
    x = x.reshape(len(x), -1)
    for _ in hidden:
        mean = x @ value[f"W{layer}"].T + value[f"b{layer}"]
        yield f"Z{layer + 1}", mean, "pre"
        z = value.get(f"Z{layer + 1}", mean)
        yield f"X{layer + 1}", abs(z), "post"
        x = value.get(f"X{layer + 1}", abs(z))
        layer += 1
    yield "y", (x @ value[f"W{layer}"].T + value[f"b{layer}"])[:, 0], "output"


@pytest.fixture(scope="module", params=CASES)
def network(request):
    image, convolutions, hidden = CASES[request.param]
    X, y = images(image), np.random.default_rng(1).normal(size=N_OBS)
    noise = {"pre": 0.3, "pool": 0.2, "post": 0.7, "output": 0.4}
    model = nns.intermediate_noise_cnn(
        X[:, 0] if image[0] == 1 else X,
        y,
        convolutions=convolutions,
        hidden=hidden,
        activation="abs",
        noise=noise,
    )
    return model, X, y, noise, convolutions, hidden


def test_logp_is_the_joint_density(network):
    model, X, y, noise, convolutions, hidden = network
    rng = np.random.default_rng(2)
    point = {name: rng.normal(size=v.shape) for name, v in model.initial_point().items()}
    expected = 0.0
    for name, value in point.items():
        if name[0] in "Wb":
            fan_in = point["W" + name[1:]][0].size
            expected += norm.logpdf(value, 0, fan_in**-0.5).sum()
    for name, mean, kind in layers(X, convolutions, hidden, point):
        value = y if name == "y" else point[name]
        expected += norm.logpdf(value, mean, noise[kind] ** 0.5).sum()
    np.testing.assert_allclose(model.compile_logp(mode=AS_WRITTEN)(point), expected, rtol=1e-11)


def test_predict_and_predictive_draws(network):
    model, X, _, _, convolutions, hidden = network
    new = images(X.shape[1:], seed=3)[:4]
    given = new if "channel" in model.named_vars_to_dims["inputs"] else new[:, 0]
    with model:
        prior = pm.sample_prior_predictive(5, random_seed=0, compile_kwargs=IN_PYTHON)
        names = [v.name for v in model.free_RVs if v.name[0] in "Wb"]
        weights = prior["prior"].to_dataset()[names]
    f = nns.predict(weights, given, model=model)
    for draw in range(5):
        value = {name: weights[name].values[0, draw] for name in names}
        *_, (_, expected, _) = layers(new, convolutions, hidden, value)
        np.testing.assert_allclose(f.values[0, draw, :, 0], expected, rtol=1e-10)
    with model:
        old = model["inputs"].get_value()
        pm.set_data({"inputs": given})
        drawn = pm.sample_posterior_predictive(
            weights, predictions=True, progressbar=False, random_seed=1, compile_kwargs=IN_PYTHON
        )
        pm.set_data({"inputs": old})
    assert drawn["predictions"]["y"].shape == (1, 5, 4)


def test_names_and_dims():
    _, convolutions, hidden = CASES["two in a row, hidden"]
    model = nns.intermediate_noise_cnn(
        images((6, 6)),
        ["cat", "dog", "owl"] * 2,
        convolutions=convolutions,
        hidden=hidden,
        likelihood="multinomial_probit",
        noise={"pre": 0, "pool": 0.2, "post": [0.1, 0, 0.1], "output": 1},
    )
    shapes = {"W1": (2, 1, 3, 3), "P2": (6, 2, 3, 3), "X2": (6, 2, 3, 3), "W2": (3, 2, 2, 2)}
    assert {n: v.shape for n, v in model.initial_point().items() if n in shapes} == shapes
    assert [v.name for v in model.deterministics] == ["Z2", "Z3", "X3", "Z4"]
    dims = model.named_vars_to_dims
    assert dims["inputs"] == ("obs", "height", "width")
    assert dims["W2"] == ("channel2", "channel1", "kernel_height2", "kernel_width2")
    assert dims["Z2"] == ("obs", "channel1", "height1", "width1")
    assert dims["X2"] == ("obs", "channel1", "pooled_height1", "pooled_width1")
    assert dims["X3"] == ("obs", "channel2", "height2", "width2")
    assert (dims["W3"], dims["W4"]) == (("hidden3", "pixel"), ("output", "hidden3"))
    assert tuple(model.coords["output"]) == ("cat", "dog", "owl")


BAD = [
    (
        {"convolutions": [nns.models.Conv2D(2, 3), nns.models.Conv2D(2, (2, 4))]},
        r"convolutions\[1\] has a kernel of 2 x 4, but is applied to 2 x 3 pixels; make the kernel "
        "smaller or the padding larger",
    ),
    (
        {"convolutions": [nns.models.Conv2D(2, 3, pool=3)]},
        r"convolutions\[0\] has a pool of 3 x 3, but is applied to 2 x 3 pixels; make the pool "
        "smaller",
    ),
    ({"convolutions": nns.models.Conv2D(2, 3)}, "convolutions must be a sequence of Conv2D"),
    ({"X": np.zeros((6, 20))}, r"X must hold images.*got shape \(6, 20\)"),
    ({"X": np.full((6, 4, 5), np.nan)}, "X has 120 NaN"),
    ({"noise": {"pre": 1, "post": 1, "output": 1}}, 'the keys "pre", "pool", "post" and "output"'),
    ({"noise": {"pre": 1, "pool": [1, 2], "post": 1, "output": 1}}, "one per pooled convolution"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_wrong_arguments_get_a_sentence(arguments, message):
    given = {
        "X": images((4, 5)),
        "y": np.arange(6.0),
        "convolutions": [nns.models.Conv2D(2, 2, pool=2)],
        **arguments,
    }
    with pytest.raises(ValueError, match=message), pm.Model() as model:
        nns.intermediate_noise_cnn(**given)
    assert not model.named_vars


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels must be a positive integer; got 0"),
        ({"kernel": (2, 3, 1)}, r"kernel must be a positive integer or a pair.*\(2, 3, 1\)"),
        ({"stride": 0.5}, "stride must be a positive integer"),
        ({"padding": -1}, "padding must be a non-negative integer"),
    ],
)
def test_wrong_convolutions_get_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        nns.models.Conv2D(**{"channels": 2, "kernel": 3, **arguments})

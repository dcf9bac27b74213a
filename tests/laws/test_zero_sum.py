"""Effects whose prior fixes their sum at zero, and scales of them, against the model's density."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.distributions.multivariate import ZeroSumNormalRV

import pymc_nnsteps as nns
from pymc_nnsteps.compile.compiling import ONCE
from pymc_nnsteps.laws import scales
from tests.laws.graphs import draw_graph, point_of, sweep_of

RNG = np.random.default_rng(7)
GROUP = np.arange(9) % 4
X, Y = RNG.normal(size=(9, 5)), RNG.normal(size=9)


def sums_of_zero():
    with pm.Model(coords={"group": range(4)}) as model:
        s, tau = pm.HalfNormal("s", 0.8), pm.Gamma("tau", 2, 1)
        a = pm.ZeroSumNormal("a", 2 * s, dims="group")
        b = pm.ZeroSumNormal("b", 1 / tau**0.5, shape=5)
        pm.Normal("y", a[GROUP] + X @ b, 0.5, observed=Y)
        pm.Bernoulli("of a", logit_p=a[GROUP] - 0.3, observed=Y > 0)
        pm.Normal("whole a", 0.7 * a, 1.3, dims="group", observed=Y[:4])
        rows, both = pm.HalfCauchy("rows", 1, shape=2), pm.Exponential("both", 1)
        pm.ZeroSumNormal("c", rows[:, None], shape=(2, 3))
        pm.ZeroSumNormal("d", both, shape=(2, 4, 3), n_zerosum_axes=2)
    return model


def test_laws_are_those_of_the_model(monkeypatch):
    """One entry less is free than there are: of a vector, of each row, along two axes at once."""
    zero_sum, root = "Gaussian, by groups", "root of a generalised inverse Gaussian"
    found = {name: law for name, law, _ in nns.verify(sums_of_zero(), random_seed=0).rows}
    assert found == {
        "s": root,
        "tau": "generalised inverse Gaussian",
        "a": zero_sum,
        "b": "Gaussian",
        "rows": f"{root}, by a mixture",
        "both": f"{root}, by a mixture",
    }
    right = scales.CHILDREN[ZeroSumNormalRV]
    all_free = replace(right, order=lambda z, sigma, lengths: z * 0 + 1)
    monkeypatch.setitem(scales.CHILDREN, ZeroSumNormalRV, all_free)
    with pytest.raises(AssertionError, match="s: the log density of its conditional differs"):
        nns.verify(sums_of_zero(), random_seed=0)


def effects_beside_a_layer():
    z = pm.Normal("z", X[:, :2] @ pm.Normal("W", shape=(2, 2)), 0.6)
    a, c = pm.ZeroSumNormal("a", pm.HalfNormal("s"), shape=4), pm.ZeroSumNormal("c", 2.0, shape=3)
    m = pm.ZeroSumNormal("m", 1.5, shape=(4, 3), n_zerosum_axes=2)
    mean = a[GROUP] + c[GROUP % 3] + m[GROUP, GROUP % 3] + z @ pm.Normal("v", shape=2)
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y)


def test_drawn_sums_are_zero():
    """Given the layer beside the effects, and with it integrated out."""
    with pm.Model() as model:
        effects_beside_a_layer()
    joint = [draw for draw in sweep_of(model) if {model[name] for name in "acm"} <= set(draw.draws)]
    assert [bool(draw.integrates_out) for draw in joint] == [True, False]
    names, point = list(model.value_vars), point_of(model, RNG)
    for draw in joint:
        rng, next_rng, values = draw_graph(model, draw)
        outputs = [next_rng, *values]
        function = pytensor.function([rng, *names], outputs, mode=ONCE, on_unused_input="ignore")
        _, *drawn = function(np.random.default_rng(1), *(point[v.name] for v in names))
        for rv, value in zip(draw.draws, drawn, strict=True):
            for axis in range(value.ndim) if rv.name in "acm" else ():
                np.testing.assert_allclose(value.sum(axis), 0, atol=1e-13)


def test_laws_of_matrices_in_single_precision():
    """Sums are zero to the last digits only, and no law is taken for one in all directions."""
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        z = pm.ZeroSumNormal("z", pm.HalfNormal("s"), shape=(4, 3), n_zerosum_axes=2)
        u = pm.ZeroSumNormal("u", 0.8, shape=(2, 4))
        mean = z[GROUP, GROUP % 3] + u[GROUP % 2, GROUP] + X @ pm.Normal("beta", shape=5)
        pm.Bernoulli("y", logit_p=mean, observed=Y > 0)
        found = {name: law for name, law, _ in nns.verify(model, random_seed=0).rows}
    assert found["z"] == found["u"] == "Gaussian, by groups"


def no_contrast():
    return pm.ZeroSumNormal("a", shape=(4, 1))[:, 0]


def with_potential():
    a = pm.ZeroSumNormal("a", shape=4)
    pm.Potential("cubes", -(abs(a) ** 3).sum())
    return a


def positive():
    return pm.ZeroSumNormal("a", shape=4, default_transform=pm.distributions.transforms.log)


def not_linear():
    return pm.math.exp(pm.ZeroSumNormal("a", shape=4))


@pytest.mark.parametrize(
    ("effects", "reason"),
    [
        (no_contrast, "a has a single entry along an axis that sums to zero"),
        (with_potential, "the potential cubes depends on it"),
        (positive, "the transform"),
        (not_linear, "not affine in it"),
    ],
)
def test_what_is_not_of_this_form_is_left(effects, reason):
    with pm.Model() as model:
        pm.Normal("y", effects()[GROUP], 0.5, observed=Y)
    [row] = nns.explain(model).rows
    assert row[1] is None
    assert reason in row[2]

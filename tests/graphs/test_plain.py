"""Models of named dimensions in plain tensors: the same densities, laws, draws, and data."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr

import pymc_nnsteps as nns

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(8, 2)), RNG.normal(size=8)
COORDS = {"row": range(8), "column": ["a", "b"], "unit": range(3), "group": list("uvw")}


def all_kinds():
    """Every transform, a product of each kind, indices, a potential, and axes out of order."""
    with pm.Model(coords=COORDS) as model:
        x = pmd.Data("x", X, dims=("row", "column"))
        group = pmd.Data("group_of", np.arange(8) % 3, dims="row")
        w = pmd.Normal("w", 0, 1, dims=("column", "unit"))
        share = pmd.Beta("share", 2, 3, dims="group")
        width = pmd.Uniform("width", 0.5, 2.0)
        parts = pmd.Dirichlet("parts", pmd.as_xtensor(np.ones(3), dims="unit"), core_dims="unit")
        around = pmd.ZeroSumNormal("around", core_dims="group")
        h = pmd.Deterministic("h", pmd.math.tanh(x.dot(w, dim="column")), dims=("unit", "row"))
        pmd.Potential("more", -(w**2).sum())
        mean = h.dot(parts, dim="unit") + (share + around).isel(group=group)
        scale = pmd.HalfNormal("scale", width)
        pmd.Normal("y", mean, scale, observed=pmd.as_xtensor(Y, dims="row"))
    return model


def network(kind, data):
    """A network with a latent layer, stated by ``pm`` and by ``pymc.dims``."""
    with pm.Model(coords=COORDS) as model:
        x, y = data("inputs", X, dims=("row", "column")), data("targets", Y, dims=("row",))
        w = kind.Normal("w", 0, 1, dims=("column", "unit"))
        noise = kind.InverseGamma("noise", 3, 1)
        tau = kind.Gamma("tau", 2, 2)
        v = kind.Normal("v", 0, 1 / kind.math.sqrt(tau), dims="unit")
        z = kind.Normal("Z", x @ w if kind is pm else x.dot(w, dim="column"), 0.5)
        mean = z @ v if kind is pm else z.dot(v, dim="unit")
        kind.Normal("y", kind.Deterministic("f", mean), kind.math.sqrt(noise), observed=y)
    return model


def test_densities_are_the_same():
    """At any point, of the same variables: a product transposed, an axis or a transform lost."""
    named = all_kinds()
    plain = nns.models.plain_model(named)
    assert nns.models.plain_model(plain) is plain
    start = named.initial_point()
    assert {n: np.shape(v) for n, v in plain.initial_point().items()} == {
        n: np.shape(v) for n, v in start.items()
    }
    others, values = [
        [
            each.compile_logp(),
            each.compile_fn(
                each.replace_rvs_by_values([each["h"]]),
                inputs=each.value_vars,
                on_unused_input="ignore",
            ),
        ]
        for each in (plain, named)
    ]
    for _ in range(3):
        point = {name: RNG.normal(size=np.shape(value)) for name, value in start.items()}
        for found, expected in zip(others, values, strict=True):
            np.testing.assert_allclose(found(point), expected(point), rtol=1e-12)
    assert plain.named_vars_to_dims == named.named_vars_to_dims
    assert plain.coords == named.coords


@pytest.mark.parametrize("outputs", [None, 2])
def test_blocks_of_named_inputs(outputs):
    """Rows and outputs keep their names; would catch columns taken for rows."""
    models = []
    for kind in (pmd, pm):
        with pm.Model(coords=COORDS) as model:
            x = kind.Data("x", X, dims=("row", "column"))
            f = nns.blocks.hierarchical(x, hidden=(2,), outputs=outputs)
            if kind is pmd:
                assert f.type.dims == ("row", "f::output")[: f.ndim]
                f = f * kind.as_xtensor(Y, dims="row")
            else:
                f = (f.T * Y).T
            kind.Potential("more", f.sum())
        models.append(model)
    dims = [{"more": (), **each.named_vars_to_dims} for each in models]
    assert dims[0] == dims[1]
    plain = nns.models.plain_model(models[0])
    start = {name: RNG.normal(size=v.shape) for name, v in plain.initial_point().items()}
    densities = [each.compile_logp(mode="FAST_COMPILE")(start) for each in (plain, models[1])]
    np.testing.assert_allclose(*densities)
    assert nns.verify(models[0]).rows


def test_laws_draws_and_data_are_the_same():
    named, by_hand = network(pmd, pmd.Data), network(pm, pm.Data)
    plain = nns.models.plain_model(named)
    assert str(nns.explain(plain)) == str(nns.explain(by_hand))
    step = nns.Gibbs(["w", "Z", "v", "tau", "noise"], model=plain)
    options = {"tune": 5, "chains": 1, "cores": 1, "progressbar": False, "random_seed": 1}
    idata = pm.sample(5, model=plain, step=step, quiet=True, **options)
    assert idata.posterior["w"].dims == ("chain", "draw", "column", "unit")

    predicted = [nns.predict(idata, X[:2] + 1, model=each) for each in (named, by_hand)]
    xr.testing.assert_allclose(*predicted, rtol=1e-12)
    density = [
        nns.log_likelihood(idata, model=each).log_likelihood["y"] for each in (named, by_hand)
    ]
    np.testing.assert_allclose(*density, rtol=1e-10)

    other = {"inputs": X[::-1] + 3, "targets": Y + 1}
    for each in (named, by_hand):
        pm.set_data(other, model=each)
    point = by_hand.initial_point()
    found = plain.compile_logp()(point)
    np.testing.assert_allclose(found, by_hand.compile_logp()(point), rtol=1e-12)


def test_what_has_no_plain_form_is_named():
    with pm.Model() as model:
        pmd.Normal("w", 0, 1, transform=pmd.distributions.transforms.log_transform)
    with pytest.raises(ValueError, match="w has a transform of its own, which has no form of pl"):
        nns.models.plain_model(model)

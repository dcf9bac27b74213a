"""``verify``: every law of a model against its density, and errors that it has to find."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import StudentTRV

import pymc_nnsteps as nns
from pymc_nnsteps.laws import conditional, gaussian, scales
from pymc_nnsteps.laws.gaussian import BinaryObservation

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 3))
Y = X @ [1.0, 0.5, -0.5]
LABELS = np.array([0, 1, 2, 2, 1, 0])

NETWORKS = {
    "classes": lambda: nns.intermediate_noise_mlp(
        X, LABELS, hidden=(2,), likelihood="multinomial_probit"
    ),
    "gates": lambda: nns.bow_tie(X, Y, hidden=(2,)),
}


@pytest.mark.parametrize("name", ["classes", "gates"])
def test_networks(name):
    """Every variable, those that are drawn after auxiliary ones included."""
    model = NETWORKS[name]()
    found = nns.verify(model, random_seed=4)
    verified = {variable for names, _, _ in found.rows for variable in names.split(", ")}
    explained = {row[0] for row in nns.explain(model).rows if row[1] is not None}
    assert verified == explained
    assert all(0 < difference < 0.01 for _, _, difference in found.rows)
    assert all(name in str(found) for name in explained)


def several_children():
    """Scales whose children are read in different ways."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        nu = pm.Gamma("nu", 3, 1)
        w = pm.Normal("w", 0, 1, shape=3)
        pm.Normal("u", 0, tau=pt.concatenate([tau * pt.ones(3), [0.01]]), observed=Y[:4])
        pm.StudentT("t", nu=4, mu=0.3, lam=tau * nu, observed=Y)
        pm.Normal("y", X @ w + 0.7, tau=nu, observed=Y)
        pm.Bernoulli("b", logit_p=X @ w - 0.4, observed=Y > 0)
    return model


def test_laws_of_a_model_with_all_kinds_of_children():
    assert len(nns.verify(several_children(), random_seed=0).rows) == 3


def _constant_entries_counted(patch):
    """What joined scales were read as once."""
    read = conditional.monomial

    def without_where(*given):
        return replace(read(*given), where=None)

    patch.setattr(conditional, "monomial", without_where)


def _dropped(kind):
    def plant(patch):
        observe = gaussian.observe

        def without_offset(model, child, rvs):
            seen = observe(model, child, rvs)
            return replace(seen, offset=None) if isinstance(seen, kind) else seen

        patch.setattr(gaussian, "observe", without_offset)

    return plant


def _degree_of_freedom_lost(patch):
    role = scales.CHILDREN[StudentTRV]

    def mixing(z, alpha, mu, s):
        return role.mixing(z, alpha - 1, mu, s)

    patch.setitem(scales.CHILDREN, StudentTRV, replace(role, mixing=mixing))


PLANTED = {
    "entries that do not depend on it": (_constant_entries_counted, "tau", "u"),
    "the offset of a mean": (_dropped(gaussian.Observation), "w", "y"),
    "the offset of a logit": (_dropped(BinaryObservation), "w", "b"),
    "the law of an auxiliary variable": (_degree_of_freedom_lost, "tau", "t"),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_wrong_law_is_named_with_its_child(error, monkeypatch):
    plant, variable, child = PLANTED[error]
    model = several_children()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=rf"(?s)^{variable}: .* child {child} is misread$"):
        nns.verify(model, random_seed=0)


def test_a_model_of_which_nothing_is_drawn():
    with pm.Model() as model:
        pm.Laplace("a", 0, 1)
    assert nns.verify(model).rows == ()


def test_parameters_that_may_not_be_negative():
    """At a random point the scale, which has no transform, is."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", default_transform=None, initval=1e-3)
        pm.Normal("y", pm.Normal("mu"), s, observed=Y)
    for seed in range(4):
        assert len(nns.verify(model, random_seed=seed).rows) == 2


@pytest.mark.slow
def test_many_variables():
    """More log densities than are added at once in Python."""
    with pm.Model() as model:
        means = [pm.Normal(f"m{i}") for i in range(33)]
        pm.Normal("y", means[0], 1.0, observed=Y)
    assert len(nns.verify(model, random_seed=0).rows) == 33


def test_variables_of_size_0():
    with pm.Model() as model:
        w = pm.Normal("w", shape=0)
        v = pm.Normal("v", shape=2)
        pm.Normal("u", w, 1.0, observed=np.zeros(0))
        pm.Normal("y", v, 1.0, observed=Y[:2])
    differences = {names: found for names, _, found in nns.verify(model, random_seed=0).rows}
    assert differences["w"] == 0 < differences["v"] < 1


def test_single_precision(monkeypatch):
    """Rounding passes, a wrong law does not."""
    with pytensor.config.change_flags(floatX="float32"):
        model = several_children()
        assert all(found < 0.1 for *_, found in nns.verify(model, random_seed=0).rows)
        _degree_of_freedom_lost(monkeypatch)
        with pytest.raises(AssertionError, match=r"^tau"):
            nns.verify(several_children(), random_seed=0)

"""No law is drawn from where something else than its Ops bears on it."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.transforms import Interval, Ordered, log
from pytensor.tensor.random.basic import NormalRV

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws import conditional
from pymc_nnsteps.laws.recognition import match, recognise
from tests.graphs.foreign import Inheriting, NoisyBernoulli, Tempered
from tests.zoo import ZOO


def children_of_mu(observe):
    with pm.Model() as model:
        observe(pm.Normal("mu"))
    return model


FOREIGN = {
    "tempered": lambda mu: Tempered("y", mu, 1, observed=np.zeros(30)),
    "inheriting": lambda mu: Inheriting("y", mu, 1, observed=np.zeros(30)),
    "noisy labels": lambda mu: NoisyBernoulli("y", logit_p=mu, observed=[0, 1]),
    "scale": lambda mu: Tempered("y", 0, pm.math.exp(mu), observed=np.zeros(3)),
    "one of two": lambda mu: (
        pm.Normal("x", mu, observed=[1.0]),
        Tempered("y", mu, 1, observed=[2.0]),
    ),
}


@pytest.mark.parametrize("observe", FOREIGN.values(), ids=FOREIGN)
def test_children_of_other_laws(observe):
    """Right would be sd 0.499 of the mean of 30 tempered observations, Gibbs drew sd 0.157."""
    model = children_of_mu(observe)
    with pytest.raises(NotConjugate, match=r"child y is .* with a density that is not PyMC's"):
        match(model, model["mu"])


@pytest.mark.parametrize("prior", [Tempered, Inheriting])
def test_priors_of_other_laws(prior):
    with pm.Model() as model:
        mu = prior("mu", 0, 1)
        pm.Normal("y", mu, observed=[1.0])
    with pytest.raises(NotConjugate, match=r"its prior is .* with a density that is not PyMC's"):
        match(model, mu)


def test_data_that_are_transformed():
    """PyMC takes 0.5 for the logarithm of what was seen."""
    model = children_of_mu(lambda mu: pm.Normal("y", mu, transform=log, observed=[0.5]))
    with pytest.raises(NotConjugate, match="the data of child y are transformed"):
        match(model, model["mu"])


def test_a_law_of_other_children_is_for_its_reason_only():
    """Where a recogniser would draw nevertheless."""
    model = children_of_mu(lambda mu: pm.Poisson("y", pm.math.exp(mu), observed=[1]))
    law = conditional.Law(0, "none", {NormalRV}, {NormalRV}, lambda model, rv: None)
    with pytest.raises(NotConjugate, match="child y is Poisson"):
        law.recognise(model, model["mu"])


def test_laws_are_asked_by_priority(monkeypatch):
    """Whatever their files are called; two of one priority would be asked as they come."""
    model = children_of_mu(lambda mu: pm.Normal("y", mu, observed=[1.0]))
    law = match(model, model["mu"])
    monkeypatch.setattr(conditional, "_TABLE", conditional._TABLE[::-1])
    priorities = [each.priority for each in conditional.laws_of(model, model["mu"])]
    assert len(priorities) > 1
    assert priorities == sorted(priorities)
    assert match(model, model["mu"]).name == law.name
    with pytest.raises(ValueError, match="priority 100 is that of another law"):
        conditional.recognises(100, "Gaussian", {NormalRV}, {NormalRV})


def test_the_page_of_laws_lists_all():
    page = conditional.as_markdown()
    assert page.count("\n") == 2 + len(conditional._TABLE)
    for law in conditional._TABLE:
        assert f"| {law.name} |" in page
    assert "| Beta | Bernoulli, Binomial, Geometric, NegativeBinomial | Beta |" in page


BEARING = {
    "interval": (Interval(0.25, 0.5), "the transform Interval constrains it"),
    "order": (Ordered(), "the transform Ordered constrains it"),
}


def other_laws():
    """Those that no network needs."""
    with pm.Model() as model:
        pm.Binomial("y", 5, pm.Beta("p", 1, 1), observed=[2, 3])
        pm.Categorical("c", pm.Dirichlet("shares", np.ones(3)), observed=[0, 2])
        tau = pm.Wishart("tau", nu=4, V=np.eye(2))
        pm.MvNormal("v", pm.MvNormal("mean", np.zeros(2), np.eye(2)), tau=tau, observed=[[1, 0.0]])
        walk = pm.GaussianRandomWalk("walk", init_dist=pm.Normal.dist(), steps=2)
        pm.Normal("seen", walk, pm.Uniform("s", 0, 5), observed=[0.0, 1, 2])
        for number, prior in enumerate((pm.HalfNormal, pm.HalfCauchy, pm.Exponential)):
            pm.Normal(f"x{number}", 0, prior(f"s{number}", 1), observed=[1.0])
    return model


@pytest.mark.parametrize("build", [*ZOO.values(), other_laws], ids=[*ZOO, "other_laws"])
def test_every_law_is_declined_where_more_bears_on_it(build):
    """A potential, and transforms that cut its support off."""
    model = build()
    found, _ = recognise(model)
    assert build is not other_laws or list(found) == model.free_RVs
    for rv in found:
        transform = model.rvs_to_transforms[rv]
        for other, reason in BEARING.values():
            model.rvs_to_transforms[rv] = other
            with pytest.raises(NotConjugate, match=reason):
                match(model, rv)
        model.rvs_to_transforms[rv] = transform
        model.potentials.append(pm.math.sum(rv))
        with pytest.raises(NotConjugate, match=r"the potential .* depends on it"):
            match(model, rv)
        model.potentials.clear()
        match(model, rv)

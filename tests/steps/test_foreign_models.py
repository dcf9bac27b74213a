"""Models that are none of this package's are sampled as if it had not been imported."""

import pymc as pm
import pytest
from pymc.sampling import mcmc
from pymc.step_methods import STEP_METHODS

import pymc_nnsteps as nns
from pymc_nnsteps.steps import networks
from tests.cases import quick
from tests.foreign_zoo import FOREIGN

PYMC = [step for step in STEP_METHODS if not step.__module__.startswith("pymc_nnsteps")]

QUICK = (
    "regression",
    "partly_observed_vector",
    "zero_inflated_poisson",
    "partly_observed_zero_inflated_poisson",
    "partly_observed_normal_mixture",
    "partly_observed_censored",
    "partly_observed_truncated",
    "partly_observed_random_walk",
    "partly_observed_hurdle_poisson",
    "partly_observed_custom_by_dist",
    "dirichlet_multinomial",
    "mixture_by_latent_categories",
    "coregionalised_gp",
    "simulator",
    "intervened",
    "dims_effects",
)


def steps(model, methods, *, has_grad):
    """The step that PyMC takes for each variable, as ``assign_step_methods`` chooses it."""
    with model:
        return {
            rv.name: max(methods, key=lambda step, rv=rv: step._competence(rv, has_grad)).__name__
            for rv in model.free_RVs
        }


@pytest.mark.parametrize("name", quick(FOREIGN, QUICK))
def test_steps_are_those_of_pymc_alone(name):
    """Without this package, be there gradients or not; and what ``explain`` says of the model."""
    model = FOREIGN[name]()
    for has_grad in (True, False):
        assert steps(model, STEP_METHODS, has_grad=has_grad) == steps(
            model, PYMC, has_grad=has_grad
        )
    explanation = nns.explain(model)
    names = [rv.name for rv in model.free_RVs]
    assert [row[0] for row in explanation.rows] == names
    assert [row[0] for row in explanation.beside] == names
    assert "Unknown" not in str(explanation)


@pytest.mark.parametrize(
    "name", ["partly_observed_vector", "partly_observed_zero_inflated_poisson"]
)
def test_pymc_assigns_steps(name):
    model = FOREIGN[name]()
    _, selected = mcmc.assign_step_methods(model)
    assert set(selected) <= set(PYMC)


@pytest.mark.slow
def test_pymc_samples():
    with FOREIGN["partly_observed_vector"]():
        idata = pm.sample(
            3,
            tune=3,
            chains=1,
            cores=1,
            progressbar=False,
            compute_convergence_checks=False,
            random_seed=1,
        )
    assert idata.posterior.sizes["draw"] == 3


def test_a_model_that_cannot_be_read_is_left_to_pymc(monkeypatch):
    """An error in reading: told once, with where it was; every variable is left alone."""

    def fail(model):
        raise ZeroDivisionError("not so")

    model = nns.intermediate_noise_mlp([[0.0], [1.0]], [0.0, 1.0], hidden=(2,))
    monkeypatch.setattr(networks, "_latent_networks", fail)
    with pytest.warns(UserWarning, match="ZeroDivisionError at variable W1: not so") as caught:
        found = steps(model, STEP_METHODS, has_grad=True)
    assert len(caught) == 1
    assert "please report" in str(caught[0].message)
    assert set(found.values()) == {"NUTS"}

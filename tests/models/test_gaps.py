"""Missing targets: PyMC's own imputation in the models of builders."""

import numpy as np
import pymc as pm
import pytest

import pymc_nnsteps as nns
from tests.modes import AS_WRITTEN

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))
WHOLE = RNG.normal(size=(9, 2))
GAPS = RNG.random(WHOLE.shape) < 0.3
BUILDERS = {
    "noise": lambda y: nns.intermediate_noise_mlp(X, y, hidden=(2,)),
    "images": lambda y: nns.intermediate_noise_cnn(
        X[:, None, :, None], y, convolutions=[nns.models.Conv2D(1, (2, 1))]
    ),
    "hierarchical": lambda y: nns.hierarchical_mlp(X, y, hidden=(2,), priors={"noise": "1:2:3"}),
    "student": lambda y: nns.hierarchical_mlp(X, y, hidden=(2,), likelihood="student_t"),
    "bow tie": lambda y: nns.bow_tie(X, y, hidden=(2,)),
    "wide": lambda y: nns.wide_mlp(X, y, hidden=(2,), reparametrize=False),
}
pytestmark = pytest.mark.filterwarnings("ignore:Data in:pymc.exceptions.ImputationWarning")


@pytest.mark.parametrize(
    ("name", "n_outputs"), [*((name, 2) for name in BUILDERS), ("noise", None), ("bow tie", None)]
)
def test_density_is_that_of_the_whole(name, n_outputs):
    """At any values of the missing targets, up to the priors that the data set the scale of."""
    columns = 0 if n_outputs is None else slice(None)
    whole, gaps = WHOLE[:, columns], GAPS[:, columns]
    model = BUILDERS[name](np.where(gaps, np.nan, whole))
    assert model["y_unobserved"] in model.free_RVs
    assert model.named_vars_to_dims["y"] == ("obs", "output")[: whole.ndim]
    start = model.initial_point(1)
    point = {k: v if v.dtype.kind == "i" else v + 0.1 for k, v in start.items()}

    def density(model, point):
        total = model.compile_logp(model.observed_RVs, mode=AS_WRITTEN)(point)
        imputed = [rv for rv in model.free_RVs if rv.name == "y_unobserved"]
        return total + sum(model.compile_logp(rv, mode=AS_WRITTEN)(point) for rv in imputed)

    point["y_unobserved"] = whole[gaps]
    given = {k: v for k, v in point.items() if k != "y_unobserved"}
    expected = density(BUILDERS[name](whole), given)
    assert np.isfinite(expected)
    np.testing.assert_allclose(density(model, point), expected, rtol=1e-12)


def test_gibbs_draws_missing_targets():
    model = BUILDERS["noise"](np.where(GAPS, np.nan, WHOLE))
    assert all(conditional is not None for _, conditional, _ in nns.explain(model).rows)
    with model:
        idata = pm.sample_prior_predictive(
            2, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
        )
    assert idata["prior"]["y_unobserved"].shape == (1, 2, GAPS.sum())


def test_missing_targets_leave_weights_to_hmc():
    explanation = str(
        nns.explain(BUILDERS["hierarchical"](np.where(GAPS, np.nan, WHOLE)), details=True)
    )
    assert "pm.sample gives W_ih1, bh1, W_h1o, bo to HMC" in explanation

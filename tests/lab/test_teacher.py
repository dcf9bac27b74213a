"""The teacher's state is a draw from the student's posterior, and all starts have a density."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.lab import teacher
from pymc_nnsteps.lab.thermalization import compiled
from tests.cases import quick
from tests.statistics import assert_moments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))


def regressions(x, y):
    """A thousand regressions through zero at once: ``w ~ N(0, 1)``, ``y ~ N(w x, 1)``."""
    with pm.Model() as model:
        w = pm.Normal("w", shape=(1000, 1))
        pm.Normal("y", w * pm.Data("inputs", x), 1, observed=pm.Data("targets", y))
    return model


def standardised():
    x = np.linspace(-1, 1, 6)
    lab = nns.lab.teacher_student(regressions, x, targets=np.zeros((1000, 6)), random_seed=1)
    precision = 1 + x @ x
    w = lab.teacher["w"].values[0, 0, :, 0]
    return (w - lab.targets @ x / precision) * np.sqrt(precision)


def test_teacher_is_a_posterior_draw(monkeypatch):
    """Its law given the targets is the posterior, and is not if data come from another one."""
    assert_moments(standardised(), 0, 1)
    draw = teacher._joint_draw
    another = {}

    def of_another(model, seed):
        another.update(draw(model, seed + 1))
        return draw(model, seed) | {"y": another["y"]}

    monkeypatch.setattr(teacher, "_joint_draw", of_another)
    with pytest.raises(AssertionError):
        assert_moments(standardised(), 0, 1)


def probit(X, y):
    return nns.intermediate_noise_mlp(X, y, hidden=(3,), noise=0.1, likelihood="probit")


def multinomial(X, y):
    y = pd.Categorical(y, categories=range(3))
    return nns.intermediate_noise_mlp(
        X, y, hidden=(3,), noise=0.1, likelihood="multinomial_probit", start="prior"
    )


def feedforward(X, y):
    noise = {"pre": 0.1, "post": 0, "output": 0.1}
    return nns.intermediate_noise_mlp(X, y, hidden=(3,), noise=noise)


def hierarchical(X, y):
    return nns.hierarchical_mlp(X, y, hidden=(3,))


def wide(X, y):
    return nns.wide_mlp(X, y, hidden=(8,))


CASES = {
    "probit": (probit, np.arange(20) % 2),
    "multinomial probit": (multinomial, np.arange(20) % 3),
    "feed-forward": (feedforward, None),
    "hierarchical": (hierarchical, None),
    "wide": (wide, None),
}


@pytest.mark.parametrize("name", quick(CASES, {"probit", "feed-forward", "wide"}))
def test_networks(name):
    """Every start has a density, and the teacher computes what its informed start does."""
    build, targets = CASES[name]
    lab = nns.lab.teacher_student(build, X, targets=targets, n_prior=2, random_seed=1)
    assert list(lab.starts) == ["informed", "zero", "prior 1", "prior 2"]
    weights = "W_ih1" if name == "hierarchical" else "W1"
    functions = {
        "error": lab.test_error(X),
        "score": lab.score(weights),
        "likelihood": lab.log_likelihood(),
        "density": lab.model.logp(),
    }
    evaluate = compiled(lab.model, functions)
    errors = {}
    for start, point in lab.starts.items():
        values = evaluate(point)
        assert np.isfinite(values).all()
        errors[start] = values[0]
    assert errors.pop("informed") == pytest.approx(0, abs=1e-12)
    assert min(errors.values()) > 1e-4


def test_starts():
    """Zero weights; latent layers that follow from the weights."""
    lab = nns.lab.teacher_student(
        lambda X, y: nns.intermediate_noise_mlp(X, y, hidden=(50,), noise=1e-4), X, random_seed=1
    )
    assert all((value == 0).all() for value in lab.starts["zero"].values())
    for start in ("informed", "prior"):
        point = lab.starts[start]
        pre = point["Z2"] - X @ point["W1"].T - point["b1"]
        post = point["X2"] - np.maximum(point["Z2"], 0)
        for noise in (pre, post):
            assert_moments(noise.ravel(), 0, 1e-4)
    residuals = lab.targets - lab.starts["prior"]["X2"] @ lab.starts["prior"]["W2"][0]
    assert residuals.std() > 0.1


def test_several_observed_variables_and_seeds():
    def build(X, y):
        with pm.Model() as model:
            s = pm.HalfNormal("s")
            pm.Normal("a", 0, s, observed=y["a"])
            pm.Poisson("b", s, observed=y["b"])
        return model

    targets = {"a": np.zeros(3), "b": np.ones(4, int)}
    labs = [nns.lab.teacher_student(build, X, targets=targets, random_seed=s) for s in (1, 1, 2)]
    assert {name: v.shape for name, v in labs[0].targets.items()} == {"a": (3,), "b": (4,)}
    assert np.log(labs[0].teacher["s"].item()) == pytest.approx(
        labs[0].starts["informed"]["s_log__"]
    )
    s = [lab.teacher["s"].item() for lab in labs]
    assert s[0] == s[1] != s[2]


def plain(X, y, scale=1.0):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("w", 0, scale), observed=y)
    return model


def with_potential(X, y):
    model = plain(X, y)
    with model:
        pm.Potential("extra", model["w"])
    return model


def nothing_observed(X, y):
    with pm.Model() as model:
        pm.Normal("w")
    return model


def renamed(X, y):
    with plain(X, y) as model:
        pm.Normal(f"v{y[0]:.3f}")
    return model


def two(X, y):
    with plain(X, y) as model:
        pm.Normal("z", model["w"], observed=y)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (with_potential, "extra is a pm.Potential, from which no data can be drawn"),
        (nothing_observed, "build must return a model with free and with observed variables"),
        (lambda X, y: plain(X, y - y.mean()), "observe the targets as they are; y is observed"),
        (lambda X, y: plain(X, y, y.std()), "same priors whatever the targets; the log density"),
        (lambda X, y: nns.bow_tie(X, y, hidden=(2,)), "same priors whatever the targets"),
        (renamed, "same variables whatever the targets"),
        (two, "build observes y, z; pass targets as a mapping"),
    ],
)
def test_models_that_have_no_teacher(build, message):
    with pytest.raises(ValueError, match=message):
        nns.lab.teacher_student(build, X, random_seed=1)
    with pytest.raises(ValueError, match="n_prior must be a positive integer"):
        nns.lab.teacher_student(build, X, n_prior=0)


def test_a_start_without_density():
    def build(X, y):
        with pm.Model() as model:
            a = pm.Uniform("a", -2, 1)
            pm.Bernoulli("y", pm.math.gt(abs(a + 0.5), 0.1) * 1.0, observed=y)
        return model

    with pytest.raises(ValueError, match="The support point of the model has density zero"):
        nns.lab.teacher_student(build, X, targets=np.ones(20, int), random_seed=0)


def test_a_model_in_the_place_of_what_builds_it():
    model = nns.hierarchical_mlp(X, X[:, 0], hidden=(2,))
    with pytest.raises(ValueError, match=r"^build must be a function of inputs .*; got Model"):
        nns.lab.teacher_student(model, X)
    with pytest.raises(ValueError, match=r"^build must be .*; it returned NoneType"):
        nns.lab.teacher_student(lambda X, y: None, X)

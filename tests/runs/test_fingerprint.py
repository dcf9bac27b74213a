"""What tells runs apart: each thing that makes a run another one, and none that does not."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import CompoundStep

import pymc_nnsteps as nns
from pymc_nnsteps.runs.fingerprint import Fingerprint, steps_in_words
from pymc_nnsteps.runs.tasks import QUICK
from tests.zoo import ZOO

X = np.linspace(-1, 2, 12).reshape(4, 3)


def network(
    data=X, offset=0.5, activation=abs, sd=1.0, labels="abc", observed=1.0, scale=pm.HalfNormal
):
    with pm.Model(coords={"feature": list(labels)}) as model:
        inputs = pm.Data("inputs", data)
        w = pm.Normal("w", 0, sd, dims="feature")
        s = scale("s", 1)
        mean = pm.Deterministic("mean", activation(inputs @ w))
        pm.Normal("y", mean + offset, s, observed=np.full(4, observed))
        pm.Potential("p", -((w - offset) ** 2).sum())
    return model


@pytest.fixture(scope="module")
def began():
    return Fingerprint.of(network())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": X[::-1]}, "data container inputs;"),
        ({"data": X.astype("float32")}, "data container inputs;"),
        ({"offset": 0.25}, "constants of y, constants of p"),
        ({"sd": 2.0}, "constants of w"),
        ({"observed": 2.0}, "constants of y"),
        ({"labels": "acb"}, "coordinate feature"),
        ({"activation": lambda x: x}, "log density of y, values of mean"),
        ({"activation": lambda x: -abs(x)}, "log density of y, values of mean"),
        ({"scale": pm.HalfCauchy}, "constants of s"),
        ({"scale": pm.Normal}, r"variable s \(float64 of 0 axes, Log.*, now .*, NoneType\), const"),
    ],
)
def test_what_makes_another_run_is_named(began, change, named):
    other = Fingerprint.of(network(**change))
    with pytest.raises(ValueError, match=f"here holds a run that differs in {named}"):
        began.require_same("here", other)


def test_the_same_model_made_anew(began):
    began.require_same("here", Fingerprint.of(network()))
    began.require_same("here", Fingerprint.loads(began.dumps()))


def of_the_zoo():
    return {name: Fingerprint.of(ZOO[name]()).dumps() for name in list(ZOO)[::5]}


@pytest.mark.slow
def test_models_are_the_same_in_another_process():
    """Where sets have another order."""
    code = (
        "import json; from tests.runs.test_fingerprint import of_the_zoo; "
        "print(json.dumps(of_the_zoo()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    there = json.loads(done.stdout)
    for name, text in of_the_zoo().items():
        Fingerprint.loads(there[name]).require_same(name, Fingerprint.loads(text))


def test_other_versions(began):
    """Refused where laws may be others; of those that round otherwise a warning."""
    old = replace(began, versions={**began.versions, "pymc": "6.3.0", "numpy": "2.0.0"})
    with pytest.raises(
        ValueError, match=r"here was started with pymc 6\.3\.0 \(here 6[^,]*: a run"
    ):
        old.require_same("here", began)
    old = replace(began, versions={**began.versions, "numpy": "2.0.0"})
    with pytest.warns(UserWarning, match=r"here was started with numpy 2\.0\.0 \(here"):
        old.require_versions("here")


def test_steps_are_told_by_their_options():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=2)
    quick = {"model": model, "compile_kwargs": {"mode": QUICK}}

    def words(scaling=1.0, beta=0.5):
        metropolis = pm.Metropolis([b], S=np.array([1.0, scaling]), **quick)
        return steps_in_words(CompoundStep([nns.PCN([a], beta=beta, **quick), metropolis]))

    assert words() == words()
    assert "beta=0.5" in words()["step of a"]
    assert words(beta=0.25)["step of a"] != words()["step of a"]
    assert words(scaling=2.0)["step of b"] != words()["step of b"]

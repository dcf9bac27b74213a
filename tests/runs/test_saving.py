"""A model and its draws in a file: all of both in another process, and the file whole or not there.

Draws are from the prior, or by PCN, which compiles nothing: what matters is that they are the same.
"""

import errno
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from zipfile import ZipFile

import numpy as np
import pandas as pd
import polars as pl
import pymc as pm
import pytensor
import pytest
import xarray as xr

import pymc_nnsteps as nns
from pymc_nnsteps.models.parts.context import call_of
from pymc_nnsteps.runs import saving
from pymc_nnsteps.runs.arguments import restored, written
from pymc_nnsteps.runs.fingerprint import Fingerprint

RNG = np.random.default_rng(1)
X = RNG.normal(size=(12, 2))
TABLE = pd.DataFrame(X, columns=["size", "age"], index=list("abcdefghijkl"))
Y = pd.Series(np.abs(X[:, 0]), index=TABLE.index)
X_NEW = RNG.normal(size=(3, 2))
QUIET = {"compute_convergence_checks": False, "progressbar": False}


def any_draws(model, chains=2, draws=3):
    """A posterior of nothing, which has the dimensions and labels of one."""
    rng, stored = np.random.default_rng(2), nns.without_latents(model)
    values = {
        rv.name: rng.uniform(0.5, 1, size=(chains, draws, *rv.shape.eval()))
        for rv in model.free_RVs
        if rv.name in stored
    }
    dims = {name: list(model.named_vars_to_dims.get(name, ())) for name in values}
    coords = {dim: list(own) for dim, own in model.coords.items() if own is not None}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {
                    name: (
                        [
                            "chain",
                            "draw",
                            *(dims[name] or [f"{name}{n}" for n in range(each.ndim - 2)]),
                        ],
                        each,
                    )
                    for name, each in values.items()
                },
                {dim: own for dim, own in coords.items() if any(dim in d for d in dims.values())},
            )
        }
    )


def by_hand():
    with pm.Model(coords={"feature": ["size", "age"]}) as model:
        inputs = pm.Data("inputs", X)
        w = pm.Normal("w", 0, 1, dims="feature")
        pm.Normal("y", np.exp(1) * pm.math.tanh(inputs @ w), 0.1, observed=X[:, 0], shape=12)
    return model


def with_other_data():
    """A builder's, of other rows now than at first."""
    with pm.Model(coords={"obs": range(12)}):
        model = nns.wide_mlp(TABLE, Y, hidden=(3,), reparametrize=False)
    other = {"inputs": X[:4] + 1, "targets": X[:4, 1]}
    pm.set_data(other, model=model, coords={"obs": list("wxyz")})
    return model


def with_priors():
    labels = pd.Categorical(["no", "yes", "no"] * 4, categories=["yes", "no", "never"])
    priors = {"ih1": nns.Prior(0.5, alpha_common=2), "ho": nns.Prior.parse("x1:2")}
    return nns.hierarchical_mlp(TABLE, labels, hidden=(2,), likelihood="categorical", priors=priors)


MODELS = {"by_hand": by_hand, "with_other_data": with_other_data, "with_priors": with_priors}

ELSEWHERE = """
import sys, pickle, numpy as np, pymc_nnsteps as nns
folder, X_new = sys.argv[1], np.array(eval(sys.argv[2]))
found = {}
for name in ("by_hand", "with_other_data", "with_priors"):
    model, idata = nns.load(f"{folder}/{name}", trust=name == "by_hand")
    output = {"kind": "response", "random_seed": 1} if name == "by_hand" else {}
    found[name] = nns.predict(idata, X_new, model=model, progressbar=False, **output)
    found[name, "data"] = {data.name: data.get_value() for data in model.data_vars}, model.coords
run = nns.load(f"{folder}/run_model")
quiet = {"compute_convergence_checks": False, "progressbar": False}
found["run"] = nns.runs.extend(f"{folder}/run", 4, model=run.model, **quiet).posterior
model, idata = nns.load(f"{folder}/run", trust=True)
found["store"] = idata.posterior, nns.predict(idata, X_new, model=model, progressbar=False)
pickle.dump(found, open(f"{folder}/found", "wb"))
"""


@pytest.mark.filterwarnings("ignore:X has a scale")
def test_in_another_process(tmp_path):
    expected = {}
    for name, build in MODELS.items():
        model = build()
        idata = any_draws(model)
        output = {"kind": "response", "random_seed": 1} if name == "by_hand" else {}
        expected[name] = nns.predict(idata, X_NEW, model=model, progressbar=False, **output)
        data = {each.name: each.get_value() for each in model.data_vars}
        expected[name, "data"] = data, model.coords
        nns.save(tmp_path / name, idata, model)
    model = nns.wide_mlp(TABLE, Y, hidden=(3,), reparametrize=False)
    run = {"step": nns.PCN(model=model), "tune": 2, "chains": 2, "random_seed": 1, **QUIET}
    idata = nns.runs.sample_distributed(model, store=tmp_path / "run", draws=5, **run)
    nns.save(tmp_path / "run_model", idata, model)
    whole = nns.runs.sample_distributed(model, store=tmp_path / "whole", draws=9, **run)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, tmp_path, repr(X_NEW.tolist())],
        check=True,
        timeout=300,
    )
    found = pickle.loads((tmp_path / "found").read_bytes())
    for name in MODELS:
        xr.testing.assert_identical(found[name], expected[name])
        np.testing.assert_equal(found[name, "data"], expected[name, "data"])
    for draws in (found["run"], found["store"][0]):
        xr.testing.assert_equal(draws.to_dataset(), whole.posterior.to_dataset())
    predicted = nns.predict(whole, X_NEW, model=model, progressbar=False)
    xr.testing.assert_identical(found["store"][1], predicted)


def test_groups_come_back_as_they_were(tmp_path):
    model = by_hand()
    idata = any_draws(model)
    rows = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["site", "year"])
    strange = xr.Dataset(
        {
            "flag": ("obs", [True, False]),
            "single": ("obs", np.array([0.1, np.nan], "float32")),
            "when": ("obs", np.array(["2020-01-01", "NaT"], "M8[ns]")),
            "words": ("obs", np.array(["a", None], object), {"units": "days"}),
            "empty": (("obs", "none"), np.zeros((2, 0), "int8")),
        },
        xr.Coordinates.from_pandas_multiindex(rows, "obs"),
        {"none": None, "yes": True, "dict": {"a": [1, 2.5]}, "array": np.arange(2)},
    )
    idata["more/nested"] = xr.DataTree(strange)
    idata.attrs["of"] = "all"
    nns.save(tmp_path / "fit", idata, model)
    found = nns.load(tmp_path / "fit", trust=True).idata
    xr.testing.assert_identical(found, idata)
    assert [v.dtype for v in found["more/nested"].values()] == [v.dtype for v in strange.values()]
    assert np.load(tmp_path / "fit")["posterior/w"].shape == (2, 3, 2)

    idata.posterior.attrs["call"] = print
    idata.posterior["calls"] = ("chain", np.array([print, len]))
    with pytest.warns(
        UserWarning, match=r"posterior\['calls'\], posterior\.attrs\['call'\] cannot"
    ):
        nns.save(tmp_path / "fit", idata, model, overwrite=True)
    assert list(nns.load(tmp_path / "fit", trust=True).idata.posterior) == ["w"]


def added(model):
    with model:
        pm.Potential("more", -model["W1"].sum())
    return model


def changed_in_place():
    rows = X.copy()
    model = nns.bow_tie(rows, X[:, 0], hidden=(3,))
    rows[0] = 7
    return model


@pytest.mark.parametrize(
    ("build", "as_numbers"),
    [
        (lambda: nns.wide_mlp(pl.DataFrame({"a": X[:, 0]}), pl.Series(X[:, 0]), hidden=()), True),
        (lambda: nns.bow_tie(X, np.where(X > 0, X, np.nan), shrinkage="laplace"), True),
        (lambda: nns.intermediate_noise_cnn(
            X.reshape(3, 4, 2), [0.0, 1.0, 0.5], convolutions=(nns.models.Conv2D(2, (2, 2)),)
        ), True),
        (lambda: nns.wide_mlp(X, X[:, 0], activation=lambda z: z * z), False),
        (lambda: added(nns.wide_mlp(X, X[:, 0], hidden=(3,))), False),
        (changed_in_place, False),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_a_call_that_makes_the_same_model(build, as_numbers, tmp_path):
    """And any other model as a pickle, which has to be asked for."""
    model = build()
    nns.save(tmp_path / "fit", any_draws(model), model)
    if not as_numbers:
        with pytest.raises(ValueError, match="is a pickle, which can run any code: pass trust=Tr"):
            nns.load(tmp_path / "fit")
    found = nns.load(tmp_path / "fit", trust=not as_numbers).model
    assert not Fingerprint.of(model).differences(Fingerprint.of(found))
    assert (call_of(found) is not None) == as_numbers


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame(
            {
                "kind": pd.Categorical(["x", None], categories=["y", "x"]),
                "text": ["q", None],
                "count": pd.array([1, None], dtype="Int64"),
                "flag": [True, False],
            },
            index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]),
        ),
        pd.Series([0.1, np.nan], index=pd.date_range("2020", periods=2), name="of"),
    ],
)
def test_tables_as_text_and_arrays(value):
    arrays = {}
    found = restored(written(value, arrays), arrays)
    assert found.equals(value)
    assert found.index.equals(value.index)


@pytest.fixture
def kept(tmp_path):
    model = by_hand()
    nns.save(tmp_path / "fit", any_draws(model), model)
    return model, tmp_path / "fit"


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda file: file.unlink(), FileNotFoundError, "fit does not exist; give a file"),
        (lambda file: file.write_text("draws"), ValueError, "fit is not a file of nns.save"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), ValueError, "or is incomplete"),
        (lambda file: file.write_bytes(_flipped(file.read_bytes())), ValueError, "is incomplete"),
        (lambda file: ZipFile(file, "w").close(), ValueError, "not a file of nns.save"),
    ],
)  # fmt: skip
def test_damaged_files(kept, damage, error, message):
    damage(kept[1])
    with pytest.raises(error, match=message):
        nns.load(kept[1], trust=True)


def _flipped(data):
    """One bit of the draws."""
    place = data.index(b"posterior/w.npy") + 200
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_file_is_replaced_at_once_and_on_request(kept, monkeypatch):
    model, file = kept
    before = file.read_bytes()
    with pytest.raises(ValueError, match="fit exists already; pass overwrite=True to replace it"):
        nns.save(file, any_draws(model), model)
    draws = any_draws(model)["posterior"].to_dataset()
    with pytest.raises(ValueError, match="idata has no variable of the model; pass the model that"):
        nns.save(file, draws.rename({name: f"other_{name}" for name in draws.data_vars}), model)
    with pytest.raises(ValueError, match="is a folder; give the name of a file in it"):
        nns.save(file.parent, any_draws(model), model)
    with pytest.raises(OSError, match=r"fit/in cannot be written .*; the draws are still in mem"):
        nns.save(file / "in", any_draws(model), model)

    with pytest.raises(ValueError, match="path must be the name of a file on a disk; got 's3://b"):
        nns.save("s3://bucket/fit", any_draws(model), model)
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"model has a part that cannot be saved \(cannot pickle"):
        nns.save(file.parent / "other", any_draws(model), model)
    del model.lock

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ZipFile, "writestr", full)
        with pytest.raises(
            OSError, match=r"cannot be written \(No space left on device\); the dra"
        ):
            nns.save(file, any_draws(model, draws=9), model, overwrite=True)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
    nns.save(file, any_draws(model, draws=9), model, overwrite=True)
    assert nns.load(file, trust=True).idata.posterior.sizes["draw"] == 9


def test_other_versions(kept, monkeypatch, tmp_path):
    """Pickles need their own; calls need the builder to make the same model."""
    _, pickled = kept
    model = nns.wide_mlp(X, X[:, 0], hidden=(3,))
    nns.save(tmp_path / "call", any_draws(model), model)
    here = Fingerprint.of

    def elsewhere(model):
        found = here(model)
        return replace(found, graphs=found.graphs | {"log density of y": "other"})

    then = {"pymc": "6.0.0"}
    loads = Fingerprint.loads
    monkeypatch.setattr(
        Fingerprint,
        "loads",
        lambda text: replace(found := loads(text), versions=found.versions | then),
    )
    with pytest.raises(
        ValueError, match=r"written with pymc 6\.0\.0 \(here .*, and only these are"
    ):
        nns.load(pickled, trust=True)
    nns.load(tmp_path / "call")
    monkeypatch.setattr(Fingerprint, "of", elsewhere)
    with pytest.warns(UserWarning, match="here wide_mlp makes a model that differs in log density"):
        nns.load(tmp_path / "call")
    other = nns.wide_mlp(X, X[:, 0], hidden=(4,), reparametrize=False)
    monkeypatch.setattr(Fingerprint, "of", lambda _: here(other))
    with pytest.raises(ValueError, match=r"pymc 6.0.0 .*; here wide_mlp makes a model that"):
        nns.load(tmp_path / "call")
    monkeypatch.setattr(Fingerprint, "of", elsewhere)
    then.clear()
    with pytest.raises(
        ValueError, match="call; here wide_mlp makes a model that differs in log de"
    ):
        nns.load(tmp_path / "call")
    monkeypatch.setattr(Fingerprint, "of", here)
    monkeypatch.setattr(saving, "BUILDERS", {})
    with pytest.raises(ValueError, match="there is no wide_mlp here; install that version"):
        nns.load(tmp_path / "call")
    with (
        pytensor.config.change_flags(floatX="float32"),
        pytest.raises(
            ValueError, match=r"floatX float64 \(here float32\); set pytensor.config.floatX"
        ),
    ):
        nns.load(tmp_path / "call")


def test_single_precision(tmp_path):
    with pytensor.config.change_flags(floatX="float32"):
        model = nns.wide_mlp(X, X[:, 0], hidden=(3,))
        single = any_draws(model).posterior.to_dataset().astype("float32")
        nns.save(tmp_path / "fit", single, model)
        found = nns.load(tmp_path / "fit")
    assert found.idata.posterior["W1"].dtype == found.model["W1"].dtype == "float32"

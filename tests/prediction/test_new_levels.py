"""New levels of embedded columns are drawn as the known ones are."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_nnsteps as nns
from pymc_nnsteps.prediction import new_groups
from tests.planting import plant
from tests.prediction.draws import made_up

RNG = np.random.default_rng(0)
N_DRAWS = 2000
TABLE = pd.DataFrame(
    {
        "km": RNG.normal(size=12),
        "depot": ["north", "south", "west"] * 4,
        "kind": ["van", "lorry"] * 6,
    }
)
NEW = pd.DataFrame(
    {
        "km": [0.5, -1.0, 0.5, -1.0, 0.5, -1.0, 0.5, -1.0, 0.5],
        "depot": ["east", "south", "up", "down", "left", "east", "south", "up", "east"],
        "kind": ["van", "van", "bus", "van", "tram", "van", "bus", "bus", "bus"],
    }
)


def linear(width=1):
    with pm.Model() as model:
        x = nns.blocks.table(TABLE, embed={"depot": width, "kind": width})
        w = pm.Normal("w", shape=1 + 2 * width)
        pm.Normal("y", x @ w, 0.1, observed=np.zeros(12), shape=x.shape[0])
    return model


def standardised(model, posterior):
    """What depots and kinds add, less that of known ones, for embeddings of width one."""
    f = nns.predict(posterior, NEW, model=model, sample_new_groups=True, random_seed=1)
    w = posterior["w"].values[0]
    of_kind = posterior["kind::E"].values[0, :, [1, 1, 0, 1, 0, 1, 0, 0, 0], 0].T
    return (f.values[0, ..., 0] - w[:, :1] * NEW["km"].values), w[:, 1:2], w[:, 2:] * of_kind


def check_law():
    model = linear()
    posterior = made_up(model, N_DRAWS, scale=3.0)
    added, w, of_kind = standardised(model, posterior)
    east, down = ((added - of_kind)[:, [0, 3]] / w).T
    for moment, error in ((east.mean(), 1), (east @ down / N_DRAWS, 1), (east.var() - 1, 2**0.5)):
        assert abs(moment) < 4 * error / N_DRAWS**0.5


def test_rows_of_new_levels_have_the_law_of_the_others():
    check_law()


def test_rows_of_known_levels_in_place_of_new_ones_are_seen(monkeypatch):
    def known(right, posterior, model, matrix, n, rng):
        return posterior[matrix.name].values[0]

    plant(monkeypatch, new_groups, "new_entries", known)
    with pytest.raises(AssertionError):
        check_law()


@pytest.mark.parametrize("kind", ["function", "response"])
def test_rows_of_one_level_have_one_row_of_the_matrix(kind):
    """More new levels than known ones, alone and together with those of another column."""
    model = linear(width=2)
    posterior = made_up(model, 50)
    options = {"model": model, "kind": kind, "random_seed": 1}
    f = nns.predict(posterior, NEW, sample_new_groups=True, **options).values[0, ..., 0]
    known = NEW.assign(depot="south", kind="van")
    before = nns.predict(posterior, known, **options).values[0, ..., 0]
    w = posterior["w"].values[0]
    without_km = f - w[:, :1] * NEW["km"].values
    accuracy = {"atol": 1e-10 if kind == "function" else 1.0}
    np.testing.assert_allclose(without_km[:, 0], without_km[:, 5], **accuracy)  # east, van
    np.testing.assert_allclose(without_km[:, 2], without_km[:, 7], **accuracy)  # up, bus
    np.testing.assert_allclose(f[:, 1], before[:, 1], **accuracy)
    of_east, of_south = without_km[:, [0, 8]], without_km[:, [1, 6]]  # van, bus
    np.testing.assert_allclose(*(of_east - of_south).T, atol=2 * accuracy["atol"])
    of_depots = without_km[:, [0, 3]]
    assert np.abs(np.diff(of_depots, axis=1)).mean() > 0.1


def test_new_levels_without_an_embedding_are_refused():
    model = nns.hierarchical_mlp(TABLE, TABLE["km"], hidden=(2,), embed={"depot": 2})
    posterior = made_up(model)
    new = TABLE[:3].assign(depot="east")
    assert nns.predict(posterior, new, model=model, sample_new_groups=True).shape == (1, 2, 3, 1)
    with pytest.raises(ValueError, match=r"'east' in the column 'depot'.* sample_new_groups=True"):
        nns.predict(posterior, new, model=model)
    with pytest.raises(ValueError, match="'bus' in the column 'kind', but the model knows only"):
        nns.predict(posterior, new.assign(kind="bus"), model=model, sample_new_groups=True)

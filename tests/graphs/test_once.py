import gc
import weakref

import pymc as pm
import pytensor
from pymc.distributions.transforms import log

from pymc_nnsteps.graphs.once import once_per_model
from pymc_nnsteps.graphs.search import children


def count():
    """A reader that counts its calls."""
    calls = []

    @once_per_model
    def names(model, suffix):
        calls.append(suffix)
        return [rv.name + suffix for rv in model.basic_RVs]

    return names, calls


def test_a_model_is_read_again_once_it_has_changed():
    """What was read of other variables, transforms, lengths or numbers, or for another argument."""
    names, calls = count()
    with pm.Model(coords={"unit": range(2)}) as model:
        a = pm.Normal("a", dims="unit")
        assert names(model, "!") == names(model, "!") == ["a!"]
        assert names(model, "?") == ["a?"]
        assert calls == ["!", "?"]
        assert children(model, a) == ()
        b = pm.Normal("b", a, dims="unit")
        assert names(model, "!") == ["a!", "b!"]
        assert children(model, a) == (b,)
        model.set_dim("unit", 3, range(3))
        names(model, "!")
        with pytensor.config.change_flags(floatX="float32"):
            names(model, "!")
        model.rvs_to_transforms[a] = log
        names(model, "!")
    assert calls == ["!", "?", "!", "!", "!", "!"]


def test_what_is_remembered_keeps_no_model():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a, observed=0.0)
    children(model, a)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None

import pytest

from pymc_nnsteps.diagnostics import draws, teacher, thermalization
from pymc_nnsteps.prediction import blocks, responses


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    for module in (blocks, draws, responses, teacher, thermalization):
        monkeypatch.setattr(module, "c_by_default", lambda: {"mode": "FAST_COMPILE"})

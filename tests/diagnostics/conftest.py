import pytest

from pymc_nnsteps.diagnostics import draws
from pymc_nnsteps.prediction import blocks


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    for module in (blocks, draws):
        monkeypatch.setattr(module, "c_by_default", lambda: {"mode": "FAST_COMPILE"})

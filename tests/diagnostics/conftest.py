import pytest

from pymc_nnsteps.diagnostics import draws, plots
from pymc_nnsteps.prediction import blocks


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    for module in (blocks, draws, plots):
        monkeypatch.setattr(module, "c_by_default", lambda: {"mode": "FAST_COMPILE"})

"""HMC beside Gibbs on the original software's regression case: time per step, effective draws.

The data and the figures of the original are those of ``tests/original_software.py``. Of each
setting: effective draws per second of CPU time, tuning left out, of function values at abs(x) <= 2
and of the logarithms of scales, over chains that start in the main mode; leapfrog steps per
effective function value; time per leapfrog step, with all that surrounds it, and of the gradient
alone.
"""

import json
import time
from dataclasses import dataclass

import arviz as az
import numpy as np

import pymc_nnsteps as nns
from tests import original_software as original

N_CHAINS, TUNE, GRADIENTS = 2, 500, 1_000_000
SETTINGS = [{"longest": 1000}, {"longest": 200}, {"longest": None}]
SCALES = list(original.MAIN_MODE)
WEIGHTS = [*original.PARAMETERS.values(), "bo"]


@dataclass(frozen=True)
class Chain:
    """Function values and log scales of the draws; what they took."""

    functions: np.ndarray
    scales: np.ndarray
    n_leapfrog: int
    n_diverging: int
    cpu_seconds: float


def run(model, hmc, gibbs, functions, seed) -> Chain:
    """One chain from typical scales, and weights at random to match."""
    point = model.initial_point()
    for name, value in original.start(model, seed).items():
        key = model.rvs_to_values[model[name]].name
        point[key] = np.log(value) if key != name else value
    for step, rng in zip((hmc, gibbs), np.random.default_rng(seed).spawn(2), strict=True):
        step.setup_chain(rng, TUNE, 0)
    for _ in range(TUNE):
        point, _ = hmc.step(point)
        point, _ = gibbs.step(point)
    hmc.stop_tuning()
    gibbs.stop_tuning()
    values, scales, n_leapfrog, stats = [], [], 0, {}
    spent = 0.0
    while n_leapfrog < GRADIENTS:
        began = time.process_time()
        point, [stats] = hmc.step(point)
        point, _ = gibbs.step(point)
        spent += time.process_time() - began
        n_leapfrog += stats["n_leapfrog"]
        values.append(functions(point))
        scales.append([-0.5 * point[f"{name}_log__"] for name in SCALES])
    return Chain(np.array(values), np.array(scales), n_leapfrog, stats["n_diverging"], spent)


def network(x: np.ndarray):
    """Outputs at these inputs, of a point."""

    def functions(point):
        hidden = np.tanh(x[:, None] * point["W_ih1"][:, 0] + point["bh1"])
        return hidden @ point["W_h1o"].ravel() + point["bo"]

    return functions


def main() -> None:
    model = original.rdata()
    listed = json.loads((original.FOLDER / "rdata_reference.json").read_text())
    x = np.array([case["x"] for case in listed["f"] if abs(case["x"]) <= 2])
    gibbs = nns.Gibbs(SCALES, model=model)
    for setting in SETTINGS:
        hmc = nns.HMC(WEIGHTS, model=model, **setting)
        chains = [run(model, hmc, gibbs, network(x), seed) for seed in range(N_CHAINS)]
        cpu = sum(chain.cpu_seconds for chain in chains)
        steps = sum(chain.n_leapfrog for chain in chains)
        n_draws = min(len(chain.functions) for chain in chains)
        f = np.array([chain.functions[:n_draws] for chain in chains])
        scales = np.array([chain.scales[:n_draws] for chain in chains])
        effective = [float(az.ess(f[..., i])) for i in range(len(x))]
        per_second = {
            name: round(float(az.ess(scales[..., i])) / cpu, 2) for i, name in enumerate(SCALES)
        }
        located = hmc._density.read(model.initial_point())
        began = time.process_time()
        for _ in range(2_000):
            hmc._density(located)
        gradient = (time.process_time() - began) / 2_000
        print(
            f"{setting}: function values {np.median(effective) / cpu:.1f} per second "
            f"({steps / np.median(effective):.0f} leapfrog steps each), scales {per_second}; "
            f"{1e6 * cpu / steps:.1f} us per leapfrog step, {1e6 * gradient:.1f} the gradient "
            f"called from Python; {sum(chain.n_diverging for chain in chains)} "
            "trajectories diverged",
            flush=True,
        )

"""Has a chain arrived? Teachers, students, and the three figures of the thermalisation paper.

The experiments of Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural
Networks* (arXiv 2306.02729), by ``nns.lab.teacher_student`` and ``nns.lab.thermalize``: a teacher
network is drawn from the prior, and with its weights and latent layers one draw from the posterior
is known. A chain from there is in equilibrium; others have arrived when they cannot be told from
it.

    python examples/thermalization.py            # reduced: three minutes of CPU time
    python examples/thermalization.py --full     # the paper's sizes: half a day
    python examples/thermalization.py --full --figures 1 --share 0.1
    python examples/thermalization.py --full --figures 2 --share 0.01

The last two take the paper's sizes, and a tenth or a hundredth of the sweeps.
``docs/reproduced.md`` shows what came of them.

What is done is kept in the output folder: a run that was interrupted goes on from there
(``nns.lab.experiments``). Chains run beside each other on a local Dask cluster.

Written to the output folder (``thermalization``, or ``thermalization_full``, beside this script):

- ``figure1.png``: noise-free test error, score of the first weights (whose posterior mean is zero)
  and mean R-hat of function values, of chains by plain Gibbs from the teacher, from zero and from
  the prior.
- ``figure2.png``: test error against CPU time, tuning included, from zero and (dashed) from the
  teacher: on data of a network with intermediate noise, and on data of one without. NUTS stands
  for the paper's HMC. On the second kind of data Gibbs samples a posterior that is not that of the
  data, with noise on each layer.
- ``figure3.png``: 25, 50, 75 and 95 % quantiles of R-hat over test inputs. It stays above one where
  a block is not much longer than the time over which draws are correlated.
- ``records1.csv``, ``records2.csv``, ``rhat.csv``: the numbers in these figures.
- ``merging.csv``: when each chain merged with the one from the teacher, by the rule of
  ``nns.lab.thermalize``. Runs of fewer than 64 sweeps are too short to tell.

Where the reduced figures differ from the paper's: networks are smaller (10-3-1 and 300 inputs for
50-10-1 and 2084) and have more noise (variance 1e-2 for 1e-4), so that chains arrive after hundreds
of sweeps and not after 1e5; R-hat is that of all chains of figure 1, in blocks of 50 records that
are 10 sweeps apart, not 100. Of both settings: NUTS adapts its mass matrix and the number of its
steps, for which the paper's HMC has fixed values, and MALA its step size; and interwoven moves,
which the paper does not have, are shown beside the plain sweep. Random streams are others.
"""

import argparse
import logging
import pickle
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from distributed import Client
from matplotlib.figure import Figure

import pymc_nnsteps as nns

SEED = 1
WEIGHTS = ["W1", "b1", "W2", "b2"]
BLOCK = 50
FEWEST_SWEEPS = 64
"""The shortest run that tells whether chains have merged."""
COLORS = {"Gibbs": "C0", "Gibbs, interwoven": "C1", "NUTS": "C2", "MALA": "C3"}
NOISY, CLASSICAL = "intermediate noise", "no intermediate noise"


@dataclass(frozen=True)
class Setting:
    """Sizes of an experiment: of the network, and of the chains."""

    n_obs: int
    n_features: int
    hidden: int
    noise: float
    sweeps: int
    every: int
    budgets: dict[str, int]
    """Calls of each step for figure 2; of NUTS and MALA the first half adapt them."""


REDUCED = Setting(
    300, 10, 3, 1e-2, 20_000, 10,
    {"Gibbs": 20_000, "Gibbs, interwoven": 6000, "NUTS": 300, "MALA": 30_000},
)  # fmt: skip
FULL = Setting(
    2084, 50, 10, 1e-4, 1_000_000, 100,
    {"Gibbs": 1_000_000, "Gibbs, interwoven": 100_000, "NUTS": 4000, "MALA": 2_000_000},
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One run of ``thermalize``."""

    data: str
    sampler: str
    posterior: str

    @property
    def name(self) -> str:
        """What the job is called in files and tables."""
        return f"{self.data}, {self.sampler}, {self.posterior}"


FIGURE_1 = Job(NOISY, "Gibbs", "figure 1")
FIGURE_2 = [
    *(Job(NOISY, sampler, NOISY) for sampler in COLORS),
    *(Job(CLASSICAL, sampler, NOISY) for sampler in ("Gibbs", "Gibbs, interwoven")),
    *(Job(CLASSICAL, sampler, CLASSICAL) for sampler in ("NUTS", "MALA")),
]
FIGURES = {1: [FIGURE_1], 2: FIGURE_2}


def main() -> None:
    arguments = parse_arguments()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    setting = shortened(FULL if arguments.full else REDUCED, arguments.share)
    jobs = [job for figure in arguments.figures for job in FIGURES[figure]]
    with Client(n_workers=arguments.processes, threads_per_worker=1) as client:
        nns.lab.experiments(
            partial(work, setting, folder),
            [asdict(job) for job in jobs],
            store=folder / "jobs",
            client=client,
        )
    runs = {job: pickle.loads(result_file(job, folder).read_bytes()) for job in jobs}
    long_runs = {job: run for job, run in runs.items() if run.records["sweep"][-1] >= FEWEST_SWEEPS}
    for job, found in long_runs.items():
        print(f"\n{job.name}\n{found}")
    pd.concat({job.name: run.table for job, run in long_runs.items()}, names=["run"]).to_csv(
        folder / "merging.csv"
    )
    if FIGURE_1 in runs:
        report_first(runs[FIGURE_1], setting, folder)
    if set(FIGURE_2) <= set(runs):
        report_second(runs, folder)
    print(f"\nfigures and tables are in {folder}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the paper's sizes, half a day")
    parser.add_argument(
        "--figures", type=int, nargs="+", choices=list(FIGURES), default=list(FIGURES),
        help="1 is also for figure 3",
    )  # fmt: skip
    parser.add_argument("--share", type=float, default=1, help="of the sweeps of each chain")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, help="folder; beside this script if not given")
    arguments = parser.parse_args()
    if arguments.output is None:
        name = "thermalization_full" if arguments.full else "thermalization"
        arguments.output = Path(__file__).resolve().with_name(name)
    return arguments


def shortened(setting: Setting, share: float) -> Setting:
    """The same with a share of the sweeps."""
    budgets = {name: round(share * calls) for name, calls in setting.budgets.items()}
    return replace(setting, sweeps=round(share * setting.sweeps), budgets=budgets)


def laboratory(data: str, setting: Setting) -> tuple[Any, np.ndarray]:
    """Teacher and student of one kind of data, and test inputs."""
    rng = np.random.default_rng(SEED)
    X, X_test = rng.normal(size=(2, setting.n_obs, setting.n_features))
    return nns.lab.teacher_student(network(data, setting), X, n_prior=2, random_seed=SEED), X_test


def network(posterior: str, setting: Setting) -> Callable[[Any, Any], pm.Model]:
    noise: Any = setting.noise
    if posterior == CLASSICAL:
        noise = {"pre": 0, "post": 0, "output": setting.noise}

    def build(X: Any, y: Any) -> pm.Model:
        return nns.intermediate_noise_mlp(X, y, hidden=(setting.hidden,), noise=noise)

    return build


def work(setting: Setting, folder: Path, **job: str) -> dict[str, float]:
    """Run a job, keep what it found in a file, and say what it took."""
    found = run(Job(**job), setting, folder)
    result_file(Job(**job), folder).write_bytes(pickle.dumps(found))
    return {"cpu_seconds": float(found.records["seconds"][:, -1].sum())}


def result_file(job: Job, folder: Path) -> Path:
    return folder / f"{job.name}.pickle"


def run(job: Job, setting: Setting, folder: Path) -> Any:
    """Run the chains of a job, or what is left of it."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "PyTensor could not link")
    lab, X_test = laboratory(job.data, setting)
    starts = lab.starts
    if job.posterior not in (job.data, "figure 1"):
        inputs = lab.model["inputs"].get_value()
        lab = replace(lab, model=network(job.posterior, setting)(inputs, lab.targets))
        starts = {
            "informed": without_noise(lab, inputs),
            "zero": lab.model.initial_point(),
        }
    functions: dict[str, Any] = {"test error": lab.test_error(X_test)}
    options: dict[str, Any] = {"model": lab.model, "random_seed": SEED, "progressbar": False}
    options["path"] = folder / f"{job.name}.run"
    if job == FIGURE_1:
        functions["score"] = lab.score("W1", scale=setting.noise)
        functions |= {name: lab.model[name] for name in WEIGHTS}
        even = np.arange(setting.every, setting.sweeps + 1, setting.every)
        early = np.unique(np.geomspace(1, setting.sweeps, 200).astype(int))
        return nns.lab.thermalize(
            starts,
            functions,
            sweeps=setting.sweeps,
            step=nns.Gibbs(model=lab.model, interweave=False),
            records=np.union1d(early, even),
            **options,
        )
    starts = {name: starts[name] for name in ("informed", "zero")}
    calls = setting.budgets[job.sampler]
    tune = 0 if job.sampler == "Gibbs" else calls // 2
    return nns.lab.thermalize(
        starts, functions, sweeps=calls, tune=tune, step=step(job.sampler, lab.model), **options
    )


def step(sampler: str, model: pm.Model) -> Any:
    if sampler == "NUTS":
        return pm.NUTS(model.value_vars, model=model)
    if sampler == "MALA":
        return nns.MALA(model=model)
    return nns.Gibbs(model=model, interweave=sampler != "Gibbs")


def without_noise(lab: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """The teacher's weights, and the layers that follow from them where there is no noise."""
    point = {name: lab.teacher[name].values[0, 0] for name in WEIGHTS}
    pre = X @ point["W1"].T + point["b1"]
    layers = {"Z2": pre, "X2": np.maximum(pre, 0)}
    values = point | layers
    return {name: values[name] for name in lab.model.initial_point()}


def report_first(first: Any, setting: Setting, folder: Path) -> None:
    """Write the tables and draw figures 1 and 3."""
    shown = first.records[["seconds", "test error", "score"]]
    shown.to_dataframe().to_csv(folder / "records1.csv")
    rhat = rhat_of(first, setting)
    table = rhat["quantiles"].to_pandas().T.add_prefix("quantile ")
    table.assign(mean=rhat["mean"]).rename_axis("sweep").to_csv(folder / "rhat.csv")
    figure_1(first, rhat).savefig(folder / "figure1.png", dpi=150)
    plot = nns.lab.plot_rhat_over_time(rhat)
    axes = plot.get_target("rhat", {})
    axes.set(xlabel="sweep", xscale="log")
    axes.axhline(1, color="black", lw=0.8)
    plot.savefig(folder / "figure3.png", dpi=150)


def report_second(runs: dict[Job, Any], folder: Path) -> None:
    """Write the table and draw figure 2."""
    others = {job.name: runs[job].records.to_dataframe() for job in FIGURE_2}
    pd.concat(others, names=["run"]).to_csv(folder / "records2.csv")
    figure_2(runs).savefig(folder / "figure2.png", dpi=150)


def rhat_of(run: Any, setting: Setting) -> xr.Dataset:
    """R-hat of function values at test inputs, from weights at even intervals."""
    lab, X_test = laboratory(NOISY, setting)
    even = np.arange(setting.every, setting.sweeps + 1, setting.every)
    weights = run.records[WEIGHTS].sel(sweep=even).rename(sweep="draw")
    return nns.lab.rhat_over_time(weights, X_test, block=BLOCK, model=lab.model)


def figure_1(run: Any, rhat: xr.Dataset) -> Figure:
    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    for start, of_start in run.records.groupby("chain", squeeze=False):
        chain = of_start.isel(chain=0)
        axes[0].plot(chain["sweep"], chain["test error"], lw=0.8, label=start)
        score = chain["score"].rolling(sweep=BLOCK, min_periods=1).mean()
        axes[1].plot(chain["sweep"], score, lw=0.8, alpha=0.7)
    axes[0].set(ylabel="noise-free test error", yscale="log")
    axes[0].legend()
    axes[1].axhline(0, color="black", lw=0.8)
    axes[1].set(ylabel="score of W1, mean of 50 records")
    axes[2].plot(rhat["block"], rhat["mean"], marker=".")
    axes[2].axhline(1, color="black", lw=0.8)
    axes[2].set(ylabel="mean R-hat of function values")
    for ax in axes:
        ax.set(xlabel="sweep", xscale="log")
    return figure


def figure_2(runs: dict[Job, Any]) -> Figure:
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    for ax, data in zip(figure.subplots(1, 2, sharey=True), (NOISY, CLASSICAL), strict=True):
        for job in FIGURE_2:
            if job.data != data:
                continue
            records = runs[job].records
            for start, style in {"zero": "-", "informed": ":"}.items():
                chain = records.sel(chain=start)
                smooth = chain["test error"].rolling(sweep=9, min_periods=1).median()
                label = job.sampler if start == "zero" else None
                color = COLORS[job.sampler]
                ax.plot(chain["seconds"], smooth, style, color=color, lw=1, label=label)
        ax.set(xlabel="CPU seconds", xscale="log", yscale="log", title=f"data with {data}")
    figure.axes[0].set(ylabel="noise-free test error", ylim=(1e-4, None))
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        title="from zero (dotted: from the teacher)",
        loc="outside lower center",
        ncols=len(COLORS),
    )
    return figure


if __name__ == "__main__":
    mpl.use("Agg")
    main()

"""Chains from several starts, watched at log-spaced sweeps until they agree, and their plot."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.initial_point import PointType
from pymc.progress_bar import create_simple_progress
from pymc.sampling.mcmc import assign_step_methods, instantiate_steppers
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import integer_from_zero, positive_integer, require_choice
from pymc_nnsteps.compile.compiling import c_by_default
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.diagnostics.draws import Tabulated
from pymc_nnsteps.diagnostics.plots import draw_large
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.search import draws_at_random, model_or_context
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.lab.merging import merging
from pymc_nnsteps.runs.fingerprint import (
    Fingerprint,
    RunFile,
    steps_in_words,
    writing,
)
from pymc_nnsteps.runs.run import Checkpoint, begun, restore, state_of
from pymc_nnsteps.steps.assignment import Step
from pymc_nnsteps.steps.compiled import PointFunction

SAVE_EVERY = 20.0
"""Seconds between copies of the state in a file."""

_log = logging.getLogger("pymc.nnsteps")


@dataclass(frozen=True, repr=False)
class Thermalization(Tabulated):
    """Test functions of chains from several starts, printed as a table of merging times.

    Attributes
    ----------
    records : Dataset, dims (chain, sweep, ...)
        The test functions at the recorded sweeps, ``chain`` labelled by the starts, and
        ``seconds``, the CPU time that each chain had taken.
    reference : str
        The start with which the others are compared.
    """

    records: xr.Dataset
    reference: str

    formats: ClassVar[Mapping[str, str]] = {
        "state": "{}",
        "merged": "{:.0f}",
        "apart": "{:.0f}",
        "difference": "{:.3g}",
        "error": "{:.2g}",
    }

    @property
    def functions(self) -> list[str]:
        """Names of the scalar test functions."""
        return [
            str(name)
            for name, values in self.records.items()
            if values.dims == ("chain", "sweep") and name != "seconds"
        ]

    @property
    @override
    def table(self) -> pd.DataFrame:
        """One row per start and scalar test function; see :func:`thermalize`."""
        starts = [name for name in self.records["chain"].values if name != self.reference]
        sweeps = self.records["sweep"].values
        rows = {
            (start, name): merging(
                sweeps,
                self.records[name].sel(chain=start).values,
                self.records[name].sel(chain=self.reference).values,
            )
            for start in starts
            for name in self.functions
        }
        index = pd.MultiIndex.from_tuples(rows, names=["start", "function"])
        return pd.DataFrame(list(rows.values()), index=index, columns=list(self.formats))


@one_thread
def thermalize(
    starts: Mapping[str, PointType],
    functions: Mapping[str, TensorVariable],
    *,
    sweeps: int,
    step: Step | Sequence[Step] | None = None,
    tune: int = 0,
    records: int | Sequence[int] = 64,
    reference: str = "informed",
    model: pm.Model | None = None,
    random_seed: int = 0,
    path: str | Path | None = None,
    progressbar: bool = True,
) -> Thermalization:
    """Run chains from several starts and find when each merges with the informed one.

    Test functions are evaluated at log-spaced sweeps; draws are not stored.

    Parameters
    ----------
    starts : mapping from str to dict
        Points at which chains start, by name: values of the model's transformed variables, such as
        ``.starts`` of :func:`~pymc_nnsteps.lab.teacher_student`.
    functions : mapping from str to TensorVariable
        Test functions: expressions of the model's variables. Functions with several values are
        recorded but not compared.
    sweeps : int
        Number of calls of the step, including those of ``tune``.
    step : step or sequence of steps, optional
        As for ``pm.sample``, which assigns steps to all other variables.
    tune : int
        Number of initial calls during which steps adapt. During these the chain from equilibrium is
        not exactly in equilibrium.
    records : int or sequence of int
        Records per doubling of the sweeps: 64 means every sweep up to the 128th, every second up to
        the 256th, and so on. Or the sweeps at which to record.
    reference : str
        Name of the start that is a draw from the posterior.
    model : pm.Model, optional
        Taken from the context if not given.
    random_seed : int
    path : str or Path, optional
        File that keeps the state of the run. If it exists, the run continues where it stopped as if
        it had not been interrupted, also for more ``sweeps`` than before. It is a pickle: open only
        your own.
    progressbar : bool

    Returns
    -------
    Thermalization
        ``.records`` has test functions and CPU seconds, without compilation. Prints as a table with
        one row per start and test function, by the rule in the notes:

        - ``state``: "merged"; or, for a chain that is apart, "stuck" if its own mean did not change
          between the last two windows, and "moving" if it did or agrees in the last one only;
        - ``merged``: the sweep after which the chains agree; it is known to the window before,
          which is from ``apart`` to this sweep;
        - ``difference`` and its ``error``: of the mean after that, or in the last window.

        An interrupt returns what has been recorded so far.

    Raises
    ------
    ValueError
        If an argument is invalid, if a start has other variables than the model or no density, if a
        test function is infinite or NaN, or if the file is damaged or of another run: other data,
        functions, starts, steps or versions.
    RuntimeError
        If another process writes to ``path``.

    Notes
    -----
    The ``N`` sweeps are cut into windows ``(N/2, N], (N/4, N/2], ...`` of at least 16 records. In
    each the difference between the means of the two chains is compared with its Monte Carlo error:
    the square root of two times that of the informed chain, from ArviZ's effective sample size in
    this window, because a chain in equilibrium has the same distribution. Chains have merged after
    the first window such that in all later ones, two or more, and over all of these together, the
    difference is at most 4 standard errors. So at least the last three quarters of the run agree,
    and the time is known to a factor of two. Errors are too small, and chains seem to differ, where
    a window is shorter than some 10 autocorrelation times: a chain is declared merged too late
    rather than too early. Agreement within the errors does not exclude a smaller difference, and
    the informed chain may itself have visited only a part of the posterior.

    References
    ----------
    Piccioli, Troiani and Zdeborova, *Gibbs Sampling the Posterior of Neural Networks*
    (arXiv 2306.02729), Section II.

    Examples
    --------
    >>> import numpy as np, pymc_nnsteps as nns
    >>> def build(X, y):
    ...     return nns.intermediate_noise_mlp(X, y, hidden=(), noise=0.1)
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> lab = nns.lab.teacher_student(build, X, random_seed=1)
    >>> run = nns.lab.thermalize(
    ...     lab.starts,
    ...     {"error": lab.test_error(X)},
    ...     sweeps=200,
    ...     step=nns.Gibbs(model=lab.model),
    ...     model=lab.model,
    ...     progressbar=False,
    ... )
    >>> run.table["state"].tolist()
    ['merged', 'merged']
    >>> nns.lab.plot_thermalization(run, backend="none").viz["lines"]["error"].sizes
    Frozen({'chain': 3})
    """
    model = model_or_context(model)
    sweeps, recorded = _schedule(sweeps, records)
    tune = integer_from_zero("tune", tune)
    _require_starts(model, starts, reference)
    evaluate = compiled(model, functions)
    steps = _steps(model, step)
    settings = {"tune": tune, "random_seed": random_seed, **steps_in_words(steps)}
    fresh = state_of(steps)
    seeds = np.random.SeedSequence(random_seed).spawn(len(starts))
    generators = map(np.random.default_rng, seeds)
    chains = begun(steps, starts.values(), generators, tune, sweeps - tune)
    _advanced(steps, tune, chains[0], 1)  # Numba compiles now, in no chain's time
    progress = create_simple_progress(progressbar=progressbar)
    with nullcontext() if path is None else writing(path):
        record = None
        if path is not None:
            record = _record(path, model, starts, functions, settings)
        run = (record and record.read()) or _Run(chains)
        done, saved = run.chains[0].done, time.monotonic()
        try:
            with progress:
                task = progress.add_task("Thermalization", completed=done, total=sweeps)
                for sweep in recorded[np.searchsorted(recorded, done, side="right") :]:
                    moved = [_advanced(steps, tune, chain, int(sweep)) for chain in run.chains]
                    values = [evaluate(chain.point) for chain in moved]
                    _require_finite(functions, starts, values, int(sweep))
                    run.chains = moved
                    run.records.append((int(sweep), [chain.seconds for chain in moved], values))
                    progress.update(task, completed=int(sweep))
                    if record and time.monotonic() - saved > SAVE_EVERY:
                        record.write(run)
                        saved = time.monotonic()
        except KeyboardInterrupt:
            if not run.records:
                raise
            how = "with path= a run can continue" if record is None else "the same call continues"
            _log.info("Interrupted after %d of %d sweeps; %s.", run.chains[0].done, sweeps, how)
        finally:
            restore(steps, fresh)
        if record:
            record.write(run)
    return Thermalization(_as_dataset(run, list(functions), list(starts), sweeps), reference)


Record = tuple[int, list[float], list[list[NDArray[Any]]]]
"""Sweep, CPU seconds of each chain, values of each chain and test function."""


@dataclass
class _Run:
    """All that is needed to go on."""

    chains: list[Checkpoint]
    records: list[Record] = field(default_factory=list)


def _advanced(step: Any, tune: int, chain: Checkpoint, until: int) -> Checkpoint:
    """A chain after so many sweeps of a step, which takes over its state."""
    restore(step, chain.state)
    point, start = chain.point, time.process_time()
    for sweep in range(chain.done, until):
        if sweep == tune:
            step.stop_tuning()
        point, _ = step.step(point)
    seconds = chain.seconds + time.process_time() - start
    return Checkpoint(until, point, state_of(step), seconds)


def _schedule(sweeps: object, records: object) -> tuple[int, NDArray[np.integer]]:
    """Number of sweeps, and those to record at."""
    sweeps = positive_integer("sweeps", sweeps)
    if isinstance(records, int | np.integer):
        every = np.arange(1, sweeps + 1)
        doublings = np.ceil(np.log2(every / (2 * positive_integer("records", records))))
        spacing = 2 ** np.maximum(doublings, 0).astype(int)
        return sweeps, every[(every % spacing == 0) | (every == sweeps)]
    recorded = np.asarray(records)
    increasing = recorded.ndim == 1 and recorded.size > 0 and bool((np.diff(recorded) > 0).all())
    if recorded.dtype.kind not in "iu" or not increasing or recorded[0] < 1:
        raise ValueError(
            f"records must be a positive integer, or increasing sweeps from 1 on; got {records!r}."
        )
    if recorded[-1] > sweeps:
        raise ValueError(f"records must not be later than sweeps={sweeps}; got {recorded[-1]}.")
    return sweeps, recorded


def _require_starts(model: pm.Model, starts: Mapping[str, PointType], reference: str) -> None:
    if reference not in starts or len(starts) < 2:
        raise ValueError(
            f"starts must have {reference!r}, the reference, and others to compare with it; got "
            f"{list(starts)}."
        )
    shapes = {name: np.shape(value) for name, value in model.initial_point().items()}
    for name, point in starts.items():
        found = {value: np.shape(array) for value, array in point.items()}
        if found != shapes:
            wrong = sorted({key for key, _ in found.items() ^ shapes.items()})
            raise ValueError(
                f"starts[{name!r}] must have the values of the model's variables, {shapes}; "
                f"it differs in {', '.join(wrong)}."
            )


def _steps(model: pm.Model, step: Step | Sequence[Step] | None) -> Step:
    """Steps for all variables, chosen by PyMC where none is given, as one."""
    given = list(step) if isinstance(step, Sequence) else [] if step is None else [step]
    if not all(isinstance(each, BlockedStep | CompoundStep) for each in given):
        raise ValueError(f"step must be a step method, a list of these, or None; got {step!r}.")
    steps = instantiate_steppers(model, *assign_step_methods(model, given))
    return CompoundStep(steps) if isinstance(steps, list) else steps


def compiled(
    model: pm.Model, functions: Mapping[str, TensorVariable]
) -> Callable[[PointType], list[NDArray[Any]]]:
    """Test functions of a point, in one compiled function."""
    if not functions:
        raise ValueError("functions must have at least one test function, by its name.")
    for name, expression in functions.items():
        if name in ("chain", "sweep", "seconds"):
            raise ValueError(f"functions must not be called {name!r}, which the records have.")
        if not isinstance(expression, Variable):
            raise ValueError(
                f"functions[{name!r}] must be an expression of the model's variables; got "
                f"{expression!r}."
            )
    natural = substitute(functions.values(), natural_values(model))
    outputs = [pt.as_tensor(output, allow_xtensor_conversion=True) for output in natural]
    for name, output in zip(functions, outputs, strict=True):
        leaves = set(graph_inputs([output])).difference(model.value_vars)
        strange = [leaf for leaf in leaves if not isinstance(leaf, Constant | SharedVariable)]
        drawn = [each for each in ancestors([output]) if draws_at_random(each)]
        if strange or drawn:
            raise ValueError(
                f"functions[{name!r}] depends on {describe((strange or drawn)[0])}, which is not "
                "a variable of the model."
            )
    function = PointFunction(model, (), outputs, c_by_default())
    return lambda point: [np.array(output) for output in function.at(point)]


def _require_finite(
    functions: Collection[str],
    starts: Collection[str],
    values: list[list[NDArray[Any]]],
    sweep: int,
) -> None:
    for start, row in zip(starts, values, strict=True):
        for name, value in zip(functions, row, strict=True):
            if not np.isfinite(value).all():
                raise ValueError(
                    f"functions[{name!r}] is infinite or NaN at sweep {sweep} of the chain "
                    f"{start!r}; compare something else, or another step."
                )


def _record(
    path: str | Path,
    model: pm.Model,
    starts: Mapping[str, PointType],
    functions: Mapping[str, TensorVariable],
    settings: Mapping[str, Any],
) -> RunFile:
    """File that keeps the run, with its fingerprint."""
    words = {"starts": list(starts), "test functions": list(functions), **settings}
    words |= {f"start {name}": point for name, point in starts.items()}
    expressions = {f"test function {name}": each for name, each in functions.items()}
    return RunFile(Path(path), Fingerprint.of(model, words, expressions))


def _as_dataset(run: _Run, functions: list[str], starts: list[str], sweeps: int) -> xr.Dataset:
    kept = [record for record in run.records if record[0] <= sweeps]
    data: dict[str, Any] = {
        "seconds": (("chain", "sweep"), np.array([seconds for _, seconds, _ in kept]).T)
    }
    for position, name in enumerate(functions):
        rows = [[values[position] for values in record] for _, _, record in kept]
        array: NDArray[Any] = np.moveaxis(np.array(rows), 0, 1)
        own = (f"{name}_dim_{axis}" for axis in range(array.ndim - 2))
        data[name] = ("chain", "sweep", *own), array
    return xr.Dataset(data, {"chain": starts, "sweep": [sweep for sweep, _, _ in kept]})


Axis = Literal["sweep", "seconds"]


def plot_thermalization(
    run: Thermalization,
    *,
    against: Axis = "sweep",
    backend: str = "matplotlib",
    **options: Any,
) -> Any:
    """Plot test functions of informed and uninformed chains, one panel per function.

    Parameters
    ----------
    run : Thermalization
        Result of :func:`~pymc_nnsteps.lab.thermalize`.
    against : {"sweep", "seconds"}
        Horizontal axis: sweeps or CPU time.
    backend : str
    **options
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Raises
    ------
    ValueError
        If ``against`` is not one of these.

    Examples
    --------
    See :func:`~pymc_nnsteps.lab.thermalize`.
    """
    from arviz_plots import visuals
    from arviz_plots.plot_collection import PlotCollection

    require_choice("against", against, get_args(Axis))
    functions = run.records[run.functions]
    options.setdefault("aes", {"color": ["chain"]})
    options.setdefault("cols", ["__variable__"])
    draw_large(options, backend, len(functions))
    plot = PlotCollection.wrap(functions, **options)
    text = "CPU seconds" if against == "seconds" else "sweep"
    plot.map(visuals.line_xy, "lines", x=run.records[against], alpha=0.8)
    panel: dict[str, Any] = {"ignore_aes": "all", "store_artist": False}
    for name, values in functions.items():
        panel["data"] = functions[[name]]
        plot.map(visuals.set_xscale, scale="log", **panel)
        if (values > 0).all():
            plot.map(visuals.set_yscale, scale="log", **panel)
        plot.map(visuals.labelled_x, text=text, **panel)
        plot.map(visuals.labelled_y, text=name, **panel)
    plot.add_legend("chain")
    return plot

"""Variational fits of bow-tie networks."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count, repeat
from typing import Any, Literal, get_args

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pymc.progress_bar import create_simple_progress

from pymc_nnsteps.arguments import (
    finite_number,
    positive_integer,
    positive_number,
    require_choice,
    require_finite,
)
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.tables import numbers, require_same_rows
from pymc_nnsteps.variational.approximation import (
    Approximation,
    Ensemble,
    RandomSeed,
    read_inputs,
)
from pymc_nnsteps.variational.ascent import (
    Batch,
    Fitted,
    LayerStart,
    Report,
    Schedule,
    ascend,
    random_batches,
    shared_law,
)
from pymc_nnsteps.variational.reading import Reading, read_model, require_density

Method = Literal["cavi", "svi"]
PAIRS = "batches must give pairs of inputs and targets"

Run = Callable[..., Fitted]
"""A fit, from its start, its generator, and whom to tell of its progress."""


@one_thread
def fit(
    model: pm.Model | None = None,
    method: Method = "cavi",
    *,
    start: LayerStart | Sequence[LayerStart] = "laplace",
    starts: int = 1,
    ensemble: bool = False,
    zeta: float = 0.1,
    em: bool = False,
    sweeps: int = 500,
    tolerance: float = 1e-5,
    batch_size: int = 100,
    batches: Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
    n_obs: int | None = None,
    forgetting: float = 0.75,
    delay: float = 100.0,
    local_sweeps: int = 40,
    cores: int = 1,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
) -> Approximation | Ensemble:
    r"""Approximate the posterior of a bow-tie network by coordinate ascent.

    The approximation is a product of distributions of the activations of each row, the gates, the
    weights of each layer, the noise variances and the scales. The best such factors belong to known
    families. A fit takes seconds where sampling takes minutes. The start decides which optimum is
    found. The spread is that of one mode: intervals of weights are too short, while the width of
    predictive intervals comes mostly from the noise.

    Parameters
    ----------
    model : pm.Model, optional
        A network of :func:`~pymc_nnsteps.bow_tie` with its gates as variables, or one written in
        the same operations; taken from the context if not given. Hyperparameters and data are read
        from its graph.
    method : {"cavi", "svi"}
        ``"cavi"`` sweeps over all rows. ``"svi"`` takes a step for each batch of rows, for some
        10 000 rows and more.
    start : {"laplace", "spike_slab"} or sequence of these
        Distribution of the initial hidden weights. If several are given, the fits use them in turn.
    starts : int
        Number of fits. The one with the highest evidence is kept, unless ``ensemble`` keeps all.
    ensemble : bool
        Whether to keep all fits, as a mixture.
    zeta : float
        Weights of the mixture are proportional to ``exp(zeta * elbo)``.
    em : bool
        Whether to fit a hyperparameter of the global scales too (``delta`` of inverse gamma
        distributions, ``lambda`` of others), by maximising the evidence after each sweep.
    sweeps : int
        Maximal number of sweeps, or of batches.
    tolerance : float
        A fit by sweeps stops after three relative changes of the evidence below this.
    batch_size : int
        With ``method="svi"``: number of rows of a batch drawn from the model's data.
    batches : iterable of (array, array), optional
        With ``method="svi"``: inputs and targets of successive batches, in random order and as
        often as they are to be used. The data need not fit in memory. The model is then built from
        some of the rows, which determine its hyperparameters.
    n_obs : int, optional
        Total number of rows from which ``batches`` come.
    forgetting : float
        Exponent ``k`` of the step size ``(1 + t / delay)**-k`` at batch t, above 1/2 and at most 1.
    delay : float
        Number of batches after which the step size has fallen from 1 to ``2**-forgetting``. The sum
        of the step sizes is about the number of sweeps over all rows that fit as closely. Use a
        smaller value for batches of few rows; the paper uses 1.
    local_sweeps : int
        Maximal number of updates of the gates and activations of a batch before the step.
    cores : int
        Number of processes that share the fits.
    random_seed : int or Generator, optional
    progressbar : bool

    Returns
    -------
    Approximation or Ensemble
        With ``sample``, ``predict``, ``initvals``; an approximation also has ``elbo``, ``mean``,
        ``sd``, ``select`` and ``selection_path``.

    Raises
    ------
    NotConjugate
        If the model is not recognised as a bow-tie network; the message gives the reason.
    ValueError
        If an argument is invalid.

    References
    ----------
    Sheinkman and Wade, *Variational Bayesian Bow tie Neural Networks with Shrinkage*,
    arXiv 2411.11132, Section 3 and Algorithms 1 to 4.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> model = nns.bow_tie(X, np.abs(X[:, 0]), hidden=(5,))
    >>> approximation = nns.fit(model, starts=3, random_seed=1, progressbar=False)
    >>> idata = approximation.sample(200, random_seed=1)
    >>> nns.predict(idata, X[:5], model=model).sizes
    Frozen({'chain': 1, 'draw': 200, 'obs': 5, 'output': 1})
    >>> sorted(approximation.predict(X[:5]).data_vars)
    ['lower', 'mean', 'sd', 'upper']
    """
    model = model_to_read(model)
    require_choice("method", method, get_args(Method))
    kinds: list[Any] = [start] if isinstance(start, str) else list(start)
    for kind in kinds or [None]:
        require_choice("start", kind, get_args(LayerStart))
    starts = positive_integer("starts", starts)
    schedule = Schedule(
        positive_integer("sweeps", sweeps),
        positive_number("tolerance", tolerance),
        em,
        positive_number("forgetting", forgetting, at_most=1.0),
        positive_number("delay", delay),
        positive_integer("local_sweeps", local_sweeps),
    )
    if schedule.forgetting <= 0.5:
        raise ValueError(f"forgetting must be above 1/2 for steps to converge; got {forgetting}.")
    if finite_number("zeta", zeta) < 0:
        raise ValueError(f"zeta must be a number from 0 upwards; got {zeta!r}.")
    reading = read_model(model)
    require_density(model, reading)
    if em:
        shared_law(reading.network)
    _require_batches(method, batches, n_obs)
    n_rows = len(reading.inputs)
    size = min(positive_integer("batch_size", batch_size), n_rows)
    n_rows = n_rows if n_obs is None else positive_integer("n_obs", n_obs)
    run = partial(_fitted, reading, schedule, method, batches, size, n_rows)
    if batches is not None and starts > 1:
        raise ValueError("starts must be 1 with batches, which one fit uses up; call fit again.")
    seeds = np.random.default_rng(random_seed).spawn(starts)
    plan = [(kinds[number % len(kinds)], rng) for number, rng in enumerate(seeds)]
    cores = min(positive_integer("cores", cores), starts)
    found = _fits(run, plan, cores, schedule.sweeps, progressbar)
    members = tuple(Approximation(reading, fitted) for fitted in found)
    together = Ensemble(members, float(zeta))
    return together if ensemble else together.best


def _require_batches(method: Method, batches: object, n_obs: int | None) -> None:
    """Check that batches are given where they mean something, with the number of all rows."""
    if method == "cavi" and (batches is not None or n_obs is not None):
        raise ValueError('batches and n_obs are for method="svi"; leave them out.')
    if batches is not None and not isinstance(batches, Iterable):
        raise ValueError(f"{PAIRS}; got {type(batches).__name__}.")
    if (batches is None) != (n_obs is None):
        raise ValueError("batches and n_obs, the number of all rows, must be given together.")


def _fitted(
    reading: Reading,
    schedule: Schedule,
    method: Method,
    given: Iterable[tuple[ArrayLike, ArrayLike]] | None,
    batch_size: int,
    n_obs: int,
    start: LayerStart,
    rng: np.random.Generator,
    report: Report | None = None,
) -> Fitted:
    """A fit by sweeps, or by steps for batches: those given, or random ones of the model's data."""
    report = report or (lambda evidence: None)
    x, y = reading.inputs, reading.targets
    batches: Iterable[Batch]
    if method == "cavi":
        batches, schedule = repeat((x, y)), replace(schedule, forgetting=0.0, local_sweeps=1)
    else:
        batches, schedule = random_batches(x, y, batch_size, rng), replace(schedule, tolerance=0.0)
    if given is not None:
        batches = (_checked(reading, batch) for batch in given)
    return ascend(reading.network, batches, n_obs, start, schedule, rng, report)


def _checked(reading: Reading, batch: object) -> Batch:
    """Numbers of a batch, of the network's widths."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"{PAIRS}; got {type(batch).__name__}.")
    X, y = batch
    _, inputs = read_inputs(reading, X, "inputs of batches")
    require_same_rows(X, y, names=("inputs of batches", "targets of batches"))
    targets = numbers("targets of batches", y, ("obs", "output")).values.astype(float)
    targets = targets[:, None] if targets.ndim == 1 else targets
    n_outputs = reading.targets.shape[1]
    if targets.shape != (len(inputs), n_outputs) or not len(inputs):
        raise ValueError(
            f"{PAIRS}, of the same rows, targets with {n_outputs} columns; got shapes "
            f"{np.shape(X)} and {np.shape(y)}."
        )
    require_finite("targets of batches", targets)
    return inputs, targets


def _fits(
    run: Run,
    plan: Sequence[tuple[LayerStart, np.random.Generator]],
    cores: int,
    sweeps: int,
    progressbar: bool,
) -> list[Fitted]:
    """Fits side by side, or one after the other with a bar that shows the evidence."""
    if cores > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(cores, mp_context=context) as pool:
            return list(pool.map(run, *zip(*plan, strict=True)))
    found, progress = [], create_simple_progress(progressbar=progressbar)
    with progress:
        for number, (kind, rng) in enumerate(plan, 1):
            title = f"Fit {number} of {len(plan)}"
            task = progress.add_task(title, completed=0, total=sweeps)
            report = partial(_report, progress, task, title, count(1))
            found.append(run(kind, rng, report))
    return found


def _report(progress: Any, task: Any, title: str, done: Iterator[int], evidence: float) -> None:
    shown = f"{title}, ELBO {evidence:.2f}"
    progress.update(task, completed=next(done), description=shown)

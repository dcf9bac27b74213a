r"""Places near the data at which chains of a network begin.

Weights are trained on the misfit of the rows, for each chain from other random weights,

.. math:: \frac{1}{n} \sum_i \ell(y_i, f(x_i)),

by Adam on random batches of rows, while matrices of weights decay (AdamW): networks with smaller
weights predict better. The misfit :math:`\ell` is :math:`-\log p(y_i \mid f(x_i))`. Unless weights
to the noise are to be trained, it is half the square of what the location of a Normal or Student-t
response misses. The posterior is left as it is: only where chains begin changes.

References
----------
Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv 1412.6980 (2014), Algorithm 1.
Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, arXiv 1711.05101 (2017),
Algorithm 2.
Sommer et al., *Microcanonical Langevin Ensembles*, arXiv 2502.06335 (2025): chains that begin at
trained networks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV, StudentTRV
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.arguments import finite_number, positive_integer, positive_number, require_bool
from pymc_nnsteps.compile.compiling import c_by_default, without_bookkeeping
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import describe, has_prior
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import parameters
from pymc_nnsteps.graphs.values import natural_values, substitute
from pymc_nnsteps.steps.compiled import Compiled
from pymc_nnsteps.steps.flat import unflattened
from pymc_nnsteps.steps.network_curvature import network_curvature
from pymc_nnsteps.steps.target import gradient_of, log_density
from pymc_nnsteps.steps.terms import ByRow, by_row

LOCATIONS = {NormalRV: 0, StudentTRV: 1}
"""Where the location stands among the parameters of a response."""

MOMENTS = (0.9, 0.999)
"""Decay of the running means of slopes and of their squares."""

BIAS = 0.3
"""Standard deviation that what is no matrix begins with."""

Arrays = list[np.ndarray]


@one_thread
def trained_starts(
    model: pm.Model | None = None,
    *,
    chains: int = 4,
    epochs: int = 100,
    batch: int = 256,
    rate: float = 0.01,
    decay: float = 0.05,
    noise: bool = False,
    random_seed: int | np.random.Generator | None = None,
) -> list[dict[str, np.ndarray]]:
    """Initial values of a network's weights, trained separately for each chain.

    With thousands of rows, chains that start from these values need fewer draws. The posterior does
    not change.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given. Its inputs and targets are ``pm.Data``, as in models of
        builders.
    chains : int
    epochs : int
        Number of passes over all rows.
    batch : int
        Number of rows per step of the optimiser; all, if there are fewer.
    rate : float
        Initial learning rate; it falls to zero along a cosine.
    decay : float
        Weight decay of matrices of weights in one step, as a multiple of the learning rate.
    noise : bool
        Whether to train the weights of the noise too, so that rows with little noise count more.
        This helped rectified units with Student-t responses; tanh units with Normal noise had
        larger errors.
    random_seed : int, Generator or None

    Returns
    -------
    list of dict
        ``initvals`` for ``pm.sample`` with the same number of ``chains``: weights and biases by
        name. Scales, and without ``noise=True`` the weights of the noise, start at the model's
        initial values.

    Raises
    ------
    ValueError
        If an argument is not positive (``decay`` may be zero), if the model has no observed rows of
        data that are functions of a network's weights, or if targets are missing.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> model = nns.hierarchical_mlp(X, np.sin(X[:, 0]), hidden=(8,))
    >>> starts = nns.trained_starts(model, chains=2, epochs=10, random_seed=1)
    >>> list(starts[0]), starts[0]["W_ih1"].shape
    (['W_ih1', 'bh1', 'W_h1o', 'bo'], (8, 2))
    """
    model = model_to_read(model)
    chains, epochs = positive_integer("chains", chains), positive_integer("epochs", epochs)
    batch, rate = positive_integer("batch", batch), positive_number("rate", rate)
    if (decay := finite_number("decay", decay)) < 0:
        raise ValueError(f"decay must not be negative; got {decay}.")
    require_bool("noise", noise)
    found = by_row(model, model.observed_RVs)
    total = _total(model, found, noise=noise)
    weights = _trained(model, total)
    slopes = _slopes(model, weights, found, total)
    n_rows = len(next(iter(found.containers)).get_value(borrow=True))
    starts = []
    for rng in np.random.default_rng(random_seed).spawn(chains):
        batches = _batches(rng, n_rows, min(batch, n_rows), epochs)
        values = adam(slopes, _random(rng, model, weights), list(batches), rate, decay)
        starts.append({str(rv.name): v for rv, v in zip(weights, values, strict=True)})
    return starts


def adam(
    slopes: Callable[..., Sequence[np.ndarray]],
    values: Sequence[np.ndarray],
    batches: Sequence[np.ndarray],
    rate: float,
    decay: float,
) -> Arrays:
    """Values after a step of AdamW for each batch, given the gradient at ``(*values, rows)``."""
    given = [np.asarray(value) for value in values]
    flat = np.concatenate([value.ravel() for value in given])
    pull = np.concatenate([np.full(v.size, decay * (v.ndim > 1), flat.dtype) for v in given])
    of_means, of_squares = MOMENTS
    mean, square = np.zeros_like(flat), np.zeros_like(flat)
    for n, rows in enumerate(batches, 1):
        slope = np.concatenate([np.ravel(each) for each in slopes(*unflattened(flat, given), rows)])
        mean += (1 - of_means) * (slope - mean)
        square += (1 - of_squares) * (slope**2 - square)
        step = mean / (1 - of_means**n) / (np.sqrt(square / (1 - of_squares**n)) + 1e-8)
        flat -= rate * (1 + math.cos(math.pi * n / len(batches))) / 2 * (step + pull * flat)
    return unflattened(flat, given)


def _trained(model: pm.Model, total: TensorVariable) -> list[TensorVariable]:
    """Weights of the network that the misfit depends on."""
    try:
        known = network_curvature(model, model.free_RVs).likelihoods
    except NotConjugate as reason:
        raise ValueError(f"trained_starts needs a network that can be read: {reason}.") from reason
    used = set(ancestors([total]))
    weights = [rv for rv in model.free_RVs if rv in known and model.rvs_to_values[rv] in used]
    if not weights:
        raise ValueError(
            "trained_starts needs observed rows, each a function of its own row of pm.Data and of "
            f"a network's weights; {_why_untrained(model)}."
        )
    return weights


def _why_untrained(model: pm.Model) -> str:
    """Why no weights are trained, of the first observed variable."""
    if not model.observed_RVs:
        return "this model observes nothing"
    if gaps := [rv for rv in model.free_RVs if rv.name.endswith("_missing")]:
        return f"{describe(gaps[0])} are missing inputs; leave out their rows, or pass no starts"
    [rv, *_] = model.observed_RVs
    if not _has_data(model.rvs_to_values[rv]):
        return f"those of {describe(rv)} are not pm.Data, or have missing values"
    direct = ancestors(parameters(rv), blockers=model.free_RVs)
    if noisy := [each for each in direct if each in model.free_RVs and _has_data(each)]:
        return f"between them and {describe(rv)} is {describe(noisy[0])}, a layer with noise"
    return f"those of {describe(rv)} also depend on other rows, or on values outside pm.Data"


def _has_data(variable: Any) -> bool:
    return any(isinstance(leaf, TensorSharedVariable) for leaf in ancestors([variable]))


def _total(model: pm.Model, found: ByRow, *, noise: bool) -> TensorVariable:
    """Sum of the misfits of all rows, with or without what the noise makes of them."""
    return pt.add(0.0, *(_misfit(model, rv, noise=noise) for rv in found.factors))


def _misfit(model: pm.Model, rv: TensorVariable, *, noise: bool) -> TensorVariable:
    """Sum of misfits of the rows of an observed variable."""
    for law, place in LOCATIONS.items():
        if not noise and has_prior(model, rv, law):
            [location] = substitute([parameters(rv)[place]], natural_values(model))
            return pt.sqr(model.rvs_to_values[rv] - location).sum() / 2
    return -log_density(model, [rv])


@without_bookkeeping()
def _slopes(
    model: pm.Model, weights: Sequence[TensorVariable], found: ByRow, total: TensorVariable
) -> Callable[..., Sequence[np.ndarray]]:
    """Gradient of the mean misfit of some rows, all else at the model's initial point."""
    values = [model.rvs_to_values[rv] for rv in weights]
    rows = pt.lvector("rows")
    point = model.initial_point()
    fixed: dict[Any, Any] = {
        v: pt.constant(point[v.name], dtype=v.dtype) for v in model.value_vars if v not in values
    }
    cut = {data: data[rows] for data in found.containers}  # type: ignore[index]
    [of_weights] = substitute([total], fixed)
    [of_rows] = substitute([of_weights], cut)
    slopes = gradient_of(of_rows / rows.shape[0], values, values)
    typed = [slope.astype(v.dtype) for slope, v in zip(slopes, values, strict=True)]
    return Compiled([*values, rows], typed, c_by_default(None))


def _batches(rng: np.random.Generator, n_rows: int, size: int, epochs: int) -> Iterator[np.ndarray]:
    """Rows in a new order in each epoch, in whole batches."""
    for _ in range(epochs):
        order = rng.permutation(n_rows)
        for first in range(0, n_rows - size + 1, size):
            yield order[first : first + size]


def _random(rng: np.random.Generator, model: pm.Model, weights: Sequence[TensorVariable]) -> Arrays:
    """Normal weights of variance one over their number in a row; :data:`BIAS` for biases."""
    point: Mapping[str, np.ndarray] = model.initial_point()
    found = []
    for rv in weights:
        like = point[model.rvs_to_values[rv].name]
        sd = like.shape[-1] ** -0.5 if like.ndim > 1 else BIAS
        found.append(np.asarray(sd * rng.standard_normal(like.shape), dtype=like.dtype))
    return found

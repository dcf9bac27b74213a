"""The log likelihood of each row, to compare models and to weigh chains that disagree."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor.sharedvar import TensorSharedVariable

from pymc_nnsteps.arguments import positive_integer
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import depends_on
from pymc_nnsteps.network.network import responses_of
from pymc_nnsteps.prediction.blocks import tracked
from pymc_nnsteps.prediction.forward import NoisyPass, noisy_pass, read_inputs
from pymc_nnsteps.prediction.imputation import with_missing
from pymc_nnsteps.prediction.integration import Integrator
from pymc_nnsteps.prediction.new_groups import require_entries
from pymc_nnsteps.prediction.new_inputs import input_container
from pymc_nnsteps.prediction.posterior import (
    SAMPLES,
    others_of,
    posterior_with_draws,
    stored_draws,
    thinned,
)
from pymc_nnsteps.prediction.row_data import own_rows, rows_of

LOGS = "log_likelihood"
"""Name of the group of log likelihoods."""

ERRORS = "log_likelihood_error"
"""Name of the group of standard errors."""


@one_thread
def log_likelihood(
    idata: Any,
    model: pm.Model | None = None,
    *,
    inputs: str | None = None,
    var_names: str | Sequence[str] | None = None,
    num_samples: int | None = None,
    noise_draws: int = 100,
    random_seed: Any = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Log likelihood of each row given the weights, with its latent variables integrated out.

    The latent variables of a row are pre- and post-activations, gates and utilities. With these
    integrated out, ``az.loo`` and ``az.compare`` tell how well a model predicts an unseen row.
    Given latent variables that were fitted to the row, its likelihood would be meaningless. Group
    effects do not belong to a row: the likelihood is that of a further row of a known group. Other
    observed variables are given, and entries of these that PyMC imputes are parameters.

    The result is exact for networks whose hidden layers have no noise, and for noise that enters
    the observed variable's mean (or its utility) linearly: that of post-activations before the last
    layer. Other noise is drawn ``noise_draws`` times for each row and draw of the weights, by
    importance sampling near values that the row's target favours, which gives an unbiased estimate
    of the likelihood.

    Parameters
    ----------
    idata : DataTree or Dataset
        Result of ``pm.sample``, or its posterior. Latent layers need not be stored.
    model : pm.Model, optional
        The model that was sampled; taken from the context if not given. The rows are those that its
        data containers currently hold, such as held-out rows after ``pm.set_data``.
    inputs : str, optional
        As for :func:`~pymc_nnsteps.predict`.
    var_names : str or sequence of str, optional
        Observed variables, among those that depend on the inputs; all of them by default.
    num_samples : int, optional
        Number of draws to use from all chains together, evenly spaced in each; all by default.
    noise_draws : int
        Number of draws of the noise for each row and draw of the weights, where any are needed.
    random_seed : int, Generator or None
        Seed of these draws.
    progressbar : bool
        Whether to show a progress bar if the computation takes more than three seconds.

    Returns
    -------
    DataTree
        The contents of ``idata`` (of the posterior, the draws that were used) and two groups with
        dims (chain, draw, obs): ``log_likelihood``, and ``log_likelihood_error`` with standard
        errors of the logarithms, zero where they are exact. On average the logarithm of an estimate
        is too small by half its squared error. The error is infinite where few of the draws have
        weight, as for targets far from the network's predictions: the estimate may be far too
        small, and more ``noise_draws`` are needed. The columns of a row count together. Rows whose
        targets are all missing are left out, because ``az.loo`` rejects a likelihood that is the
        same in all draws. Each observed variable that depends on the inputs has its own likelihood
        (``az.loo(..., var_name="y")``), and its own rows if targets are missing, or if it is
        observed at some rows only, such as ``f[:40]``.

    Raises
    ------
    ValueError
        If the model has latent variables that are neither Normal, Bernoulli nor mixtures of
        normals, if it cannot be shown that the log density of each row depends on this row alone,
        if several observed variables share latent variables, if a name in ``var_names`` is unknown,
        or if the posterior lacks a required variable.

    References
    ----------
    Vehtari, Gelman and Gabry, *Practical Bayesian Model Evaluation using Leave-One-Out
    Cross-Validation and WAIC*, Statistics and Computing 27 (2017); Merkle, Furr and Rabe-Hesketh,
    *Bayesian Comparison of Latent Variable Models*, Psychometrika 84 (2019).

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1)
    >>> with model:
    ...     idata = pm.sample(
    ...         20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=["W1", "b1", "W2", "b2"],
    ...     )
    >>> idata = nns.log_likelihood(idata, model)
    >>> idata["log_likelihood"]["y"].sizes
    Frozen({'chain': 1, 'draw': 20, 'obs': 30})
    """
    posterior = thinned(posterior_with_draws(idata), num_samples)
    model = model_to_read(model)
    names = [var_names] if isinstance(var_names, str) else var_names
    container = input_container("idata", model, inputs, [*(names or []), None][0])
    noise_draws = positive_integer("noise_draws", noise_draws)
    rng = np.random.default_rng(random_seed)
    networks = _networks(model, container, names)
    integrators = [_integrator(model, each, container, noise_draws, rng) for each in networks]
    found = {
        str(network.y.name): _of_rows(network, integrator, posterior, model, container, progressbar)
        for network, integrator in zip(networks, integrators, strict=True)
    }
    are_some = any(each.numbers is not None for each in networks)
    if len(found) > 1 and (are_some or not all(each.observed.all() for each in integrators)):
        found = {
            name: rows.rename({dim: f"{name}_{dim.removeprefix(f'{name}_')}"})
            for name, rows in found.items()
            for dim in map(str, rows[LOGS].dims[len(SAMPLES) :])
        }
    groups = dict(others_of(idata), posterior=posterior)
    for group in (LOGS, ERRORS):
        groups[group] = xr.Dataset({name: rows[group] for name, rows in found.items()})
    groups[LOGS].attrs = {
        "latent_variables": "integrated out",
        "noise_draws": 0 if all(each.is_exact for each in integrators) else noise_draws,
        "largest_standard_error": max(
            float(rows[ERRORS].max()) if rows[ERRORS].size else 0.0 for rows in found.values()
        ),
    }
    return xr.DataTree.from_dict(groups)


def _networks(
    model: pm.Model, container: TensorSharedVariable, names: Sequence[str] | None
) -> list[NoisyPass]:
    """The law of each observed variable that depends on the inputs, or of those named."""
    whole, made, noise = read_inputs(model, container, gaps=True)
    observed, gaps = responses_of(whole, container), bool(noise)
    known = [str(rv.name) for rv in observed]
    named = list(known if names is None else names)
    if not known:
        return [noisy_pass(model, container, gaps=gaps)]
    if not named or not set(named).issubset(known):
        raise ValueError(
            f"var_names must name observed variables that depend on {describe(container)}, of "
            f"{', '.join(known)}; got {named}."
        )
    for rv in whole.free_RVs:
        seen = [describe(y) for y in observed if depends_on(y, {rv}, {*made}.difference([y]))]
        if len(seen) > 1 and not set(named).isdisjoint(seen) and depends_on(rv, {container}):
            raise ValueError(
                f"the rows of {' and '.join(seen)} share the latent variable {describe(rv)}, so "
                "that neither has a likelihood of its own given the weights; state what is "
                "observed as one variable with a column for each."
            )
    return [noisy_pass(model, container, gaps=gaps, named=name) for name in named]


def _of_rows(
    network: NoisyPass,
    integrator: Integrator,
    posterior: xr.Dataset,
    model: pm.Model,
    container: TensorSharedVariable,
    progressbar: bool,
) -> xr.Dataset:
    """Log likelihood of the rows that are observed, and its standard errors."""
    draws = stored_draws(posterior, model, network.weights)
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    log, error = (np.empty((n_draws, integrator.n_obs)) for _ in range(2))
    for draw in tracked("Log likelihood", n_draws, progressbar):
        found = integrator([values[draw] for values in draws])
        log[draw], error[draw] = found.log, found.standard_error
    dim = (model.named_vars_to_dims.get(container.name) or (f"{network.y.name}_dim_0",))[0]
    coords: dict[Any, Any] = {each: posterior[each].values for each in SAMPLES}
    numbers = np.arange(integrator.n_obs) if network.numbers is None else network.numbers
    if model.coords.get(dim) is not None:
        coords[dim] = [model.coords[dim][number] for number in numbers]
    elif network.numbers is not None or not integrator.observed.all():
        coords[dim] = numbers
    shape = posterior.sizes["chain"], posterior.sizes["draw"], integrator.n_obs
    values = {LOGS: log, ERRORS: error}
    every_row = xr.Dataset(
        {group: ((*SAMPLES, dim), each.reshape(shape)) for group, each in values.items()}, coords
    )
    return every_row.isel({dim: integrator.observed})


def _integrator(
    model: pm.Model,
    network: NoisyPass,
    container: TensorSharedVariable,
    noise_draws: int,
    rng: np.random.Generator,
) -> Integrator:
    """The likelihood of the rows that the model holds."""
    [y] = pytensor.function([], [network.value], mode="FAST_COMPILE")()
    name, X = str(container.name), container.get_value()
    if not y.size:
        raise ValueError(
            f"{network.y.name} has no rows, and so no log likelihood; leave it out of var_names, "
            "or set data that have rows."
        )
    held = list(map(own_rows, network.rows))
    if network.numbers is None:
        held = rows_of(name, model, network.rows, container, X, {})
    rows = list(with_missing(model, dict(zip(network.rows, held, strict=True))).values())
    if network.numbers is not None:
        rows = [each[network.numbers] if len(each) == len(X) else each for each in rows]
    require_entries(name, network, rows)
    if len(rows[0]) != len(y):
        raise ValueError(
            f"{name} has {len(rows[0])} rows, but {network.y.name} {len(y)}; set both with "
            "pm.set_data, or build the model again where targets are missing."
        )
    return Integrator(network, rows, y, noise_draws, rng)


GAIN = 1e-8
"""What other weights may gain in the mean log density of a row."""

FEWEST = 25
"""Draws of a chain whose importance weights have a tail to be smoothed."""

LONGEST = 20_000
"""Steps after which the weights are taken as they are."""


def stacking_weights(idata: Any) -> xr.DataArray:
    """Weights of chains with which their mixture best predicts unseen rows.

    Chains that stay in different modes do not visit them in proportion to posterior mass. Pooled
    draws give each chain the same weight. Stacking weights leave out a chain that predicts worse
    than others.

    Parameters
    ----------
    idata : DataTree
        Result of :func:`~pymc_nnsteps.log_likelihood`, with two chains or more.

    Returns
    -------
    DataArray, dims (chain,)
        Weights that sum to one. ``predicted.weighted(weights)`` of xarray gives the weighted
        ``mean``, ``std`` and ``quantile`` over chains and draws. The attribute ``unreliable`` is
        the largest share of rows, over chains, whose Pareto k is too large for their leave-one-out
        density.

    Raises
    ------
    ValueError
        If ``idata`` lacks the log likelihood of one observed variable, or has only one chain or few
        draws.

    References
    ----------
    Yao, Vehtari and Gelman, *Stacking for Non-mixing Bayesian Computations*, Journal of Machine
    Learning Research 23 (2022).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,), noise=0.1)
    >>> with model:
    ...     idata = pm.sample(
    ...         50, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=["W1", "b1", "W2", "b2"],
    ...     )
    >>> weights = nns.stacking_weights(nns.log_likelihood(idata, model))
    >>> responses = nns.predict(idata, X[:5], model=model, kind="response", random_seed=2)
    >>> mixture = responses.squeeze("output").weighted(weights)
    >>> mixture.quantile([0.05, 0.95], dim=("chain", "draw")).sizes
    Frozen({'quantile': 2, 'obs': 5})
    """
    rows = idata.children.get("log_likelihood") if isinstance(idata, xr.DataTree) else None
    if rows is None or len(rows.data_vars) != 1:
        raise ValueError(
            "idata must have the log likelihood of one observed variable; pass the result of "
            "nns.log_likelihood."
        )
    n_chains, n_draws = rows.sizes["chain"], rows.sizes["draw"]
    if n_chains < 2 or n_draws < FEWEST:
        raise ValueError(
            f"idata must have two chains or more, of at least {FEWEST} draws each, to be weighted; "
            f"it has {n_chains} of {n_draws}."
        )
    chains = [_left_out(rows.to_dataset().isel(chain=[chain])) for chain in range(n_chains)]
    weights = maximal_weights(np.stack([chain.elpd_i.values.ravel() for chain in chains], axis=1))
    unreliable = max(float((chain.pareto_k > chain.good_k).mean()) for chain in chains)
    coords = {"chain": rows["chain"].values}
    return xr.DataArray(weights, coords, ["chain"], "weights", {"unreliable": unreliable})


def maximal_weights(log_densities: NDArray[np.floating]) -> NDArray[np.floating]:
    r"""Weights of the columns that maximise the sum of log mixture densities (n_obs, n_chains).

    With densities :math:`p_{ic}`, a step of the EM algorithm is :math:`w_c \leftarrow w_c g_c`,
    :math:`g_c = \frac{1}{n} \sum_i p_{ic} / \sum_d w_d p_{id}`; other weights could gain no more
    than :math:`\max_c g_c - 1`, as the objective is concave.
    """
    densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    weights = np.full(densities.shape[1], 1 / densities.shape[1])
    for _ in range(LONGEST):
        ratios = densities / (densities @ weights)[:, None]
        growth = ratios.mean(axis=0)
        if growth.max() - 1 <= GAIN:
            break
        weights = weights * growth
    return weights / weights.sum()


def _left_out(chain: xr.Dataset) -> Any:
    """Leave-one-out densities of the rows by one chain."""
    from arviz_stats.loo import loo

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
        tree = xr.DataTree.from_dict({"log_likelihood": chain})
        return loo(tree, pointwise=True, reff=1.0)

"""Names of the variables that a chain must store for predictions."""

from collections.abc import Sequence

import pymc as pm
import pytensor
from pytensor.compile.builders import infer_shape
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.plain import model_to_read
from pymc_nnsteps.graphs.search import parameters, random_in, size_of
from pymc_nnsteps.prediction.gaps import with_gaps
from pymc_nnsteps.prediction.row_data import arrays_in, behind, own_rows


def without_latents(model: pm.Model | None = None) -> list[str]:
    """Names of a model's variables, without those that have entries for each row of the data.

    Pre-activations, activations, gates, utilities and other latent variables of rows take most of
    the memory of a trace and belong to the rows that were sampled. No prediction needs them:
    neither :func:`~pymc_nnsteps.predict`, :func:`~pymc_nnsteps.log_likelihood` nor
    ``pm.sample_posterior_predictive``. If they are stored, the last of these takes no new rows.

    Parameters
    ----------
    model : pm.Model, optional
        That of the context if not given.

    Returns
    -------
    list of str
        All free variables and deterministics, except those whose first axis has the rows of the
        observed data. The graph tells which have: a variable of as many entries by chance is kept.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> with nns.intermediate_noise_mlp(X, X[:, 0], hidden=(3,)) as model:
    ...     kept = nns.without_latents()
    ...     idata = pm.sample(
    ...         20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
    ...         var_names=kept,
    ...     )
    >>> kept
    ['W1', 'b1', 'noise_Z2', 'noise_X2', 'W2', 'b2', 'noise_y']
    """
    model = model_to_read(model)
    whole = with_gaps(model)
    joined = set(model.deterministics).difference(whole.deterministics)
    latents = {variable.name for variable in (*joined, *_of_rows(whole))}
    return [each.name for each in model.unobserved_RVs if each.name not in latents]


def _of_rows(model: pm.Model) -> list[TensorVariable]:
    """Variables whose first axis takes its length from the data that give observed ones theirs.

    The type of a random variable may state its length as a number, which tells nothing of where it
    comes from: its parameters do.
    """
    observed = [rv for rv in model.observed_RVs if rv.ndim > 0]
    variables = [v for v in (*model.basic_RVs, *model.deterministics) if v.ndim > 0]
    lengths = dict(zip(variables, _lengths(variables), strict=True))
    n_rows = {lengths[rv] for rv in observed}
    variables = [variable for variable in variables if lengths[variable] in n_rows]
    sizes = {size_of(rv) for rv in random_in(variables) if isinstance(rv, TensorVariable)}
    rows = {
        data: {data}
        for data in arrays_in(variables)
        if data not in sizes and len(own_rows(data)) in n_rows
    }
    for variable in variables:
        found = {leaf for part in _with_its_rows(variable) for leaf in behind(part, 0, rows)}
        rows[variable] = {data for leaf in found for data in rows[leaf]}
    of_data = {data for rv in observed for data in rows[rv]}
    return [variable for variable in variables if not of_data.isdisjoint(rows[variable])]


def _lengths(variables: Sequence[TensorVariable]) -> list[int]:
    """Lengths of first axes, at the present values of data."""
    shapes = infer_shape(variables, [], [])
    function = pytensor.function([], [shape[0] for shape in shapes], mode="FAST_COMPILE")
    return list(map(int, function()))


def _with_its_rows(variable: TensorVariable) -> list[TensorVariable]:
    """A variable, and those of its parameters that begin with the same axis."""
    op = variable.owner.op
    supports = getattr(op, "ndims_params", None)
    if supports is None:
        return [variable]
    n_batch = variable.ndim - op.ndim_supp
    given = zip(parameters(variable), supports, strict=True)
    return [variable, *(each for each, n in given if each.ndim and each.ndim - n == n_batch)]

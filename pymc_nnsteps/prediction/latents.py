"""Names of the variables that a chain must store for predictions."""

import pymc as pm
import pytensor
from pytensor.compile.builders import infer_shape

from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.prediction.gaps import with_gaps
from pymc_nnsteps.prediction.row_data import arrays_in, own_rows

__all__ = ["without_latents"]


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
        All free variables and deterministics, except those that depend on data of the observed rows
        and have as many entries along their first axis.

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
    model = model_or_context(model)
    observed = [rv for rv in with_gaps(model).observed_RVs if rv.ndim > 0]
    variables = [variable for variable in model.unobserved_RVs if variable.ndim > 0]
    shapes = infer_shape([*observed, *variables], [], [])
    lengths = pytensor.function([], [shape[0] for shape in shapes], mode="FAST_COMPILE")()
    n_rows = {int(length) for length in lengths[: len(observed)]}
    latents = {
        variable.name
        for variable, length in zip(variables, lengths[len(observed) :], strict=True)
        if int(length) in n_rows
        and any(len(own_rows(data)) == length for data in arrays_in([variable]))
    }
    return [each.name for each in model.unobserved_RVs if each.name not in latents]

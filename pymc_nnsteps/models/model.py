"""The PyMC model that builders make: its functions are compiled by C++."""

from typing import Any, override

import pymc as pm
from pytensor import config

from pymc_nnsteps.kernels.compiling import (
    c_by_default,
    drawing,
    without_blas_notice,
    without_bookkeeping,
)

__all__ = ["Model"]


class Model(pm.Model):
    """A PyMC model whose functions are ready sooner: they are compiled by C++ in place of Numba.

    Builders make such models. Use it in place of ``pm.Model`` for a network of your own, or for
    blocks. Before the first draw PyMC compiles what a trace computes from each draw, and Numba
    takes some four seconds for a product of matrices and more for a factorisation.

    Parameters
    ----------
    *args, **kwargs
        As of :class:`pymc.Model`.

    Notes
    -----
    This concerns functions that PyMC makes by ``model.compile_fn`` without a mode: those of
    traces, of ``pm.sample_prior_predictive`` and ``pm.sample_posterior_predictive``,
    ``compile_logp`` and ``compile_dlogp``, ``point_logps``. ``pm.sample`` compiles NUTS by
    ``backend=`` and ``compile_kwargs=`` as for any model. If PyTensor's ``mode`` or ``linker`` is
    configured, that is used.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_nnsteps as nns
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> with nns.Model() as model:
    ...     f = nns.blocks.hierarchical(x, hidden=(4,))
    ...     y = pm.Normal("y", f, 0.1, observed=x[:, 0] ** 2)
    >>> model.compile_logp()(model.initial_point()).shape
    ()
    """

    @override
    @without_bookkeeping()
    def compile_fn(self, outs: Any, *, mode: Any = None, **kwargs: Any) -> Any:
        """Compile a function of the model's variables, by C++ unless a mode is asked for."""
        if mode is None and (config.mode, config.linker) == ("Mode", "auto"):
            mode = drawing(c_by_default())["mode"]
        with without_blas_notice():
            return super().compile_fn(outs, mode=mode, **kwargs)

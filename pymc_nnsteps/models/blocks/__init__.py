"""Networks as parts of a model, to be used with any inputs and in any likelihood.

======================  ================================================================
module                  its subject
======================  ================================================================
``intermediate_noise``  Gaussian noise on every pre- and post-activation
``hierarchical``        precisions at up to three levels, and skips; noise that varies
``bow_tie``             stochastic gates, weights that are shrunk to zero, starts
``wide``                NTK scaling
``table``               inputs of blocks: categories, missing entries
======================  ================================================================

Inside ``with pm.Model()`` each function adds a network with the input ``x`` of shape (n_obs,
n_features): data, another variable, or an embedding of group indices. It returns the output ``f``,
which may enter any expression or likelihood. A block named ``"f"`` has the output ``"f"`` and
variables ``"f::W1"``, ..., like those of a nested model ``pm.Model(name="f")``. A model may have
several blocks:

>>> import numpy as np, pymc as pm, pymc_nnsteps as nns
>>> with pm.Model() as model:
...     x = pm.Data("inputs", np.zeros((5, 2)))
...     mean = nns.blocks.wide(x, hidden=(8,), name="mean")
...     log_sigma = nns.blocks.wide(x, hidden=(8,), name="log_sigma")
...     y = pm.Normal("y", mean, pm.math.exp(log_sigma), observed=np.zeros(5))
>>> [variable.name for variable in model.free_RVs][::4]
['mean::W1', 'log_sigma::W1']
"""

from pymc_nnsteps.models.blocks.bow_tie import bow_tie
from pymc_nnsteps.models.blocks.hierarchical import hierarchical
from pymc_nnsteps.models.blocks.intermediate_noise import intermediate_noise
from pymc_nnsteps.models.blocks.table import table
from pymc_nnsteps.models.blocks.wide import wide

__all__ = ["bow_tie", "hierarchical", "intermediate_noise", "table", "wide"]

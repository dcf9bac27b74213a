"""Variational fits of bow-tie networks: coordinate ascent, stochastic steps, sparsity, ensembles.

=================  ========================================================================
module             its subject
=================  ========================================================================
``fit``            :func:`fit`, the room's door: starts, restarts, processes, progress
``approximation``  what a fit returns: draws, moments, predictions, mixtures of several
``reading``        the network, its hyperparameters and data, from a model's graph, checked
``ascent``         sweeps over all rows, steps for batches, their updates, starts, and the ELBO
``rows``           updates of activations, gates and Polya-Gamma variables, and sums over rows
``draws``          draws, predictions, and weights and units that can be left out
``factors``        prior of a network, and the factors of its approximation
=================  ========================================================================
"""

from pymc_nnsteps.variational.fit import fit

__all__ = ["fit"]

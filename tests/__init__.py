"""Tests, room by room as the package, and what they share.

=================================  ============================================================
helper                             what it is for
=================================  ============================================================
``zoo``                            models that tests share, each with what it is for
``foreign_zoo``                    models that are none of this package's
``cases``                          which cases are slow tests, which for releases
``modules``                        where modules are tested that have no file of their own
``modes``                          how to compile what is compared with
``notebooks``                      notebooks: run, with their solutions, and stored
``planting``                       errors in named parts of the package, which tests must see
``statistics``                     is a sample from the law it claims: moments, uniformity, chains
``laws.graphs``            quick compilation, points, sweeps; the exact law of a draw
``laws.exact_piecewise``   the same under a piecewise-linear activation
``laws.programs``          random programs that state models, for the fuzzer
``laws.fuzz``              random models: what is read is exact, or declined
``moves.gated_layers``             layers of gates, and one without its activations
``moves.in_python``                kernels without a compiler, in whose parts errors can be planted
``steps.cases``                    each step on the models that exercise it: conformance
``steps.chains``                   a chain of a step, as an array
``steps.joint``                    Geweke's joint distribution test
``steps.balance``                  detailed balance of a Metropolis-Hastings step
``steps.gaussian``                 Gaussian priors as users write them, and what they mean
``steps.priors``                   hyperparameters of bow-tie networks in joint distribution tests
``variational.networks``           small networks of each family, and laws of their weights
``random.oracles``                 distribution functions that the package does not use
``variational.networks``           bow-tie networks of all families, some sweeps after a start
``diagnostics.networks``           networks of all kinds, and exact draws from their priors
``benchmarks``                     times beside plain NumPy, and the problems they are taken on
=================================  ============================================================

A module whose name starts with ``test_`` holds tests and is imported by none.
"""

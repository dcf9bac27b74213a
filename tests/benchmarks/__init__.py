"""Benchmarks: what a sweep costs, and what surrounds it.

``python -m tests.benchmarks`` runs all of them, ``python -m tests.benchmarks a c`` a subset.
Contenders are timed in turns in one process, and no variable limits threads: figures are what users
meet. Steps of this package compute in one thread; plain NumPy is given one as well.
"""

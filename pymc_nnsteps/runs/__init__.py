"""Runs that go on after an interrupt, on one machine or many.

===============  ==================================================================
module           its subject
===============  ==================================================================
``fingerprint``  what tells a run from others; files that one process writes
``run``          what a run samples, and where a chain stands
``store``        a run on disk: draws, statistics and checkpoints, in Zarr
``tasks``        work in this process or on a Dask cluster, with one progress bar
``sampling``     runs begun, gone on with, extended
``experiments``  a function at each of many settings
``saving``       a model and its draws in one file
``arguments``    values as text and arrays, which hold no code
===============  ==================================================================

Dask and Zarr are optional dependencies, ``pip install "pymc_nnsteps[distributed]"``, and imported
by the functions that use them.
"""

from pymc_nnsteps.runs.sampling import extend, resume, sample_distributed

__all__ = ["extend", "resume", "sample_distributed"]

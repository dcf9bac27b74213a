"""Benchmarks: what a sweep costs, and what surrounds it.

``python -m tests.benchmarks`` runs all of them, ``python -m tests.benchmarks a c`` a subset.
Everything runs on one thread, and contenders are timed in turns in one process.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

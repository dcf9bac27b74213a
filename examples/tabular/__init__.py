"""Parts of ``examples/tabular_benchmark.py``: data, methods, scores and pictures.

``data`` has tables and their splits, ``predictions`` what a method says of held-out rows and how
that is scored, ``baselines``, ``others`` and ``networks`` the methods, ``pictures`` the figures.
"""

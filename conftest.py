"""What makes tests cheap: most of their time goes into PyTensor's rewriting of small graphs."""

import gc

import pytensor

# Without a note at each node of the lines that made it.
pytensor.config.traceback__limit = 0

# Graphs are many small objects that live as long as the test: to look through all of them, after
# each few thousand new ones, finds nothing.
gc.set_threshold(100_000, 20, 100)

"""Settings for tests, where most of the time goes into graphs: many small objects."""

import gc

import pytensor

# Without a note at each node of the lines that made it.
pytensor.config.traceback__limit = 0

# Graphs live as long as a test. Python would look through all of them for garbage after each few
# thousand new objects, and find none.
gc.set_threshold(100_000, 20, 100)

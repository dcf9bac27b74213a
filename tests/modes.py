"""How tests compile what they compare with, where the mode is not what is tested."""

from pytensor.compile.mode import Mode

AS_WRITTEN = Mode(linker="py", optimizer=None)
"""For a function that is called a few times: to rewrite its graph takes longer than to run it."""

FAST = Mode("py", "fast_compile")
"""For a function that is called many times, and where digits need a graph that is rewritten."""

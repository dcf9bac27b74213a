"""How tests compile what they compare with, where the mode is not what is tested."""

from pytensor.compile.mode import Mode

AS_WRITTEN = Mode(linker="py", optimizer=None)
"""For a function that is called a few times: to rewrite its graph takes longer than to run it."""

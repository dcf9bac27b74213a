"""What makes tests cheap: most of their time goes into PyTensor's rewriting of small graphs."""

import gc
import sys
from unittest import mock

# filelock has a function of its own called at each event that Python audits: as each call of
# ``id`` is one, all work on graphs takes 7 % longer.
with mock.patch.object(sys, "addaudithook"):
    import filelock  # noqa: F401

import pymc.initial_point
import pytensor
from pytensor.compile.inner_function import HasInnerFunction, link_only_mode
from pytensor.link.vm import VMLinker

from tests.modes import AS_WRITTEN

# Without a note at each node of the lines that made it.
pytensor.config.traceback__limit = 0

# Graphs are many small objects that live as long as the test: to look through all of them, after
# each few thousand new ones, finds nothing.
gc.set_threshold(100_000, 20, 100)

# Graphs within an Op are run in Python where the Op is: PyTensor starts the C++ compiler for each
# operation in them, whatever the mode.
_link_mode = HasInnerFunction.link_mode
_in_python = link_only_mode(VMLinker(use_cloop=False, c_thunks=False))
HasInnerFunction.link_mode = lambda op, impl: _in_python if impl == "py" else _link_mode(op, impl)

# Initial points are evaluated once or twice: to rewrite their graphs takes longer.
_compile = pymc.initial_point.compile
pymc.initial_point.compile = lambda **given: _compile(**{**given, "mode": AS_WRITTEN})

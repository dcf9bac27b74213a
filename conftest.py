"""What makes tests cheap: most of their time goes into PyTensor's rewriting of small graphs."""

import functools
import gc
import sys
from unittest import mock

# filelock has a function of its own called at each event that Python audits: as each call of
# ``id`` is one, all work on graphs takes 7 % longer.
with mock.patch.object(sys, "addaudithook"):
    import filelock  # noqa: F401

import pymc.initial_point
import pytensor
import pytensor.graph.rewriting.basic
import pytensor.tensor.basic
import pytensor.tensor.random.op
from pytensor.compile.inner_function import HasInnerFunction, link_only_mode
from pytensor.graph.utils import MetaType
from pytensor.link.vm import VMLinker

from tests.lengths import static_shape
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

# Static shapes are read off, where graphs state them: to rewrite graphs for them takes longer.
pytensor.tensor.basic.infer_static_shape = static_shape
pytensor.tensor.random.op.infer_static_shape = static_shape

# Which classes of Ops a new rewriter is for is found out once, not for each function compiled.
_classes = functools.cache(pytensor.graph.rewriting.basic._compose_mro)
pytensor.graph.rewriting.basic._compose_mro = lambda op, known: _classes(op, frozenset(known))

# PyTensor's classes are abstract ones, whose instances Python tells in Python. None of them has
# others registered as its subclasses, and none can have any now.
MetaType.__instancecheck__ = type.__instancecheck__
MetaType.__subclasscheck__ = type.__subclasscheck__
MetaType.register = None

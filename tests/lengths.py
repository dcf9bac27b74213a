"""Lengths of arrays as graphs state them: PyTensor finds them by rewriting, which takes longer.

``conftest.py`` has it look here first.
"""

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor import as_tensor_variable, basic
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import Subtensor

by_rewriting = basic.infer_static_shape


def stated(length):
    """A length as the graph states it, None if shared data have it, ``...`` if it does not say."""
    if not isinstance(length, Variable):
        return length if isinstance(length, int) else ...
    if length.type.ndim or not length.type.dtype.startswith("int"):
        return ...
    if isinstance(length, Constant):
        return int(length.data)
    if isinstance(length, SharedVariable):
        return None
    node = length.owner
    if node is None or not isinstance(node.op, Subtensor) or node.op.idx_list != (0,):
        return ...
    vector, position = node.inputs
    if not isinstance(position, Constant):
        return ...
    if isinstance(vector, Constant):
        return int(vector.data[position.data])
    if vector.owner is not None and isinstance(vector.owner.op, MakeVector):
        return stated(vector.owner.inputs[position.data])
    if vector.owner is not None and isinstance(vector.owner.op, Shape):
        [array] = vector.owner.inputs
        known = array.type.shape[position.data]
        return None if known is None and isinstance(array, SharedVariable) else known or ...
    return ...


def static_shape(shape):
    """What ``infer_static_shape`` returns: the lengths as variables, and as numbers or None."""
    lengths = list(shape) if isinstance(shape, list | tuple) else None
    known = [...] if lengths is None else [stated(length) for length in lengths]
    if ... in known:
        return by_rewriting(shape)
    return [as_tensor_variable(length, ndim=0) for length in lengths], tuple(known)

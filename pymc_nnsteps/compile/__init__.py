"""Kernels in Python and graphs of PyTensor, made into machine code; nothing of statistics.

=====================  =================================================================
module                 its subject
=====================  =================================================================
``jit``                what a kernel is: compiled from C++, or by Numba when that is imported
``translation``        kernels in Python, translated to C++ (``arrays.hpp``, ``calls.cpp``)
``native``             machine code of C++: built once per machine, and kept (``shared.hpp``)
``files``              bytes behind their digest, and files that are replaced at once
``in_numba``           Numba's compilation, on disk
``ops``                kernels as PyTensor Ops
``compiling``          PyTensor's compilation to C, and by Numba
``elementwise``        functions of numbers, in loops that are built together (``loops.cpp``)
``thunks``             what PyTensor calls for the other nodes of a graph
``rewriting``          rewritten graphs, kept on disk
``graph_translation``  whole graphs, translated to C++ (``graph_statements``, ``graphs.hpp``)
``threads``            one thread for products of matrices
``linear_algebra``     factorisations of small matrices, and lost digits
``error_functions``    erf, erfc and tanh of whole arrays
=====================  =================================================================
"""

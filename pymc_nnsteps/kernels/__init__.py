"""Compiled loops, and how they are compiled and kept.

===================  ===================================================================
module               its subject
===================  ===================================================================
``jit``              what a kernel is: compiled from C++, or by Numba
``translation``      kernels in Python, translated to C++ (``arrays.hpp``, ``calls.cpp``)
``native``           machine code of C++: built once per machine, and kept
``in_numba``         Numba's compilation, on disk
``when_numba``       registration with PyTensor's functions for Numba, when these are imported
``elementwise``      functions of numbers, in loops that are built together (``loops.cpp``)
``compiling``        PyTensor's compilation to C, and by Numba
``barrier``          sums that take the place of a term
``gaussian``         draws of Gaussian blocks and layers, and Metropolis-Hastings moves
``ops``              these as PyTensor Ops
``trajectories``     trajectories of Hamiltonian Monte Carlo
``error_functions``  erf and erfc of whole arrays
===================  ===================================================================
"""

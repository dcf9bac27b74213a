"""Compiled loops, and how they are compiled and kept.

===================  ===================================================================
module               its subject
===================  ===================================================================
``jit``              Numba's compilation, on disk
``compiling``        PyTensor's compilation to C, and by Numba
``barrier``          sums that take the place of a term
``gaussian``         draws of Gaussian blocks and layers, and Metropolis-Hastings moves
``ops``              these as PyTensor Ops
``trajectories``     trajectories of Hamiltonian Monte Carlo
``error_functions``  erf and erfc of whole arrays
===================  ===================================================================
"""

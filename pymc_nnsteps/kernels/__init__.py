"""Compiled loops, and how they are compiled and kept.

===================  ===================================================================
module               its subject
===================  ===================================================================
``jit``              what a kernel is: compiled from C++, or by Numba when that is imported
``translation``      kernels in Python, translated to C++ (``arrays.hpp``, ``calls.cpp``)
``native``           machine code of C++: built once per machine, and kept
``files``              bytes behind their digest, and files that are replaced at once
``in_numba``         Numba's compilation, on disk
``elementwise``      functions of numbers, in loops that are built together (``loops.cpp``)
``compiling``        PyTensor's compilation to C, and by Numba
``linear_algebra``   factorisations of small matrices, sums of groups, and lost digits
``labels``           Gaussian blocks with a precision matrix per label, or drawn by reflections
``bands``            with a banded or tridiagonal precision matrix, or seen by windows
``chain``            all layers of activations jointly
``rows``             what is seen of a layer from above, and what moves of its rows share
``interweaving``     rows of weights with their pre-activations, by Metropolis-Hastings
``interwoven_gates`` rows of weights with their gates
``interwoven_kernels`` kernels of convolutions with their pre-activations
``outgoing_weights`` weights of outputs with the activations integrated out, units along rays
``layer_trajectories`` all weights of a layer and above it along trajectories
``gated_density``      a smooth density without gates
``gated_trajectories`` all weights behind gates along trajectories on it, and the gates
``leapfrog``         Hamiltonian trajectories on any density
``lattice``          the choice of a point of a lattice, and scales stepped in by it
``ops``              kernels as PyTensor Ops
``trajectories``     trajectories of Hamiltonian Monte Carlo
``error_functions``  erf, erfc and tanh of whole arrays
===================  ===================================================================
"""

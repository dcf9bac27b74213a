"""Loops of moves that are too long for the file that derives them, under the name of that file.

``rows`` is what moves of a layer's rows share, ``interwoven_kernels`` are the rows of convolutions,
``leapfrog`` are Hamiltonian trajectories on any density, ``layer_density`` and ``gated_density``
the densities of a layer and of one behind gates.
"""

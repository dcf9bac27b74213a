"""Several variables drawn together, and the plan of a sweep.

=======================  ===============================================================
module                   its subject
=======================  ===============================================================
``replacement``          how joint draws take the place of others
``marginal_likelihood``  what is seen of activations that are integrated out
``chain``                activations of several layers, jointly
``collapse``             gates and weights of a layer, without its activations
``interweaving``         weights moved with their pre-activations
``responses``            effects without the activations beside them, and when
``residual_scales``      scales without the activations between them
``lattice``              a step on a line by a lattice of points
``interwoven_gates``     weights behind gates, moved with these summed out
``scan``                 the order of a sweep, and when an order is valid
``plan``                 what a sweep draws, and explain
=======================  ===============================================================
"""

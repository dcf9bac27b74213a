"""Several variables drawn together, and the plan of a sweep.

=======================  ===============================================================
module                   its subject
=======================  ===============================================================
``plan``                 what a joint move is, the table of moves, the plan of a sweep
``marginal_likelihood``  what is seen of activations that are integrated out
``interwoven_gates``     weights behind gates, moved with these summed out
``interweaving``         weights, and kernels of convolutions, moved with their pre-activations
``outgoing_weights``     weights behind a layer, without it, and units along rays with them
``layer_trajectories``   all weights of a layer and above it along trajectories
``gated_trajectories``   the same behind gates, with these summed out
``responses``            effects without activations beside them, with all that is linear
``residual_scales``      scales without the activations between them
``noise_scales``         scales of hidden noise moved with it, or against the response's
``shifts``               levels and means of effects shifted with what is beside them
``chain``                activations of several layers, jointly
``rays``                 scales moved along a ray with what they scale
``product_rays``         factors of products moved against each other
=======================  ===============================================================
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

"""Full conditionals as graphs, recognised from a PyMC model.

:func:`match` finds the conditional of one free variable, or raises :class:`NotConjugate` with
the reason; :func:`find_conditionals` finds those of several, joined into blocks where that is
exact and faster mixing.

================  ====================================================================
module            its subject
================  ====================================================================
``conditional``   the contract of a law, the table of laws, what recognisers share
``gaussian``      Gaussian prior, children with affine means or logits
``effects``       effects of groups and all other linear terms
``multivariate``  Gaussian vectors with covariance matrices, random walks and autoregressions
``piecewise``     Gaussians behind an activation, a threshold or an argmax, and binary gates
``scales``        precisions, variances and what controls them
``any_scales``    scales under any other prior, and numbers that multiply what is seen
``pairs``         Beta, Dirichlet and Wishart priors of what children see as it is
``recognition``   match, find_conditionals
``densities``     densities of the final random draws of laws
``verification``  comparison of laws, read off their draws, with a model's own density
================  ====================================================================
"""

from importlib import import_module
from pkgutil import iter_modules

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.laws.conditional import Conditional, Draw
from pymc_nnsteps.laws.recognition import find_conditionals, match

__all__ = ["Conditional", "Draw", "NotConjugate", "find_conditionals", "match"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

"""Full conditionals as graphs, recognised from a PyMC model.

:func:`match` finds the conditional of one free variable or says why there is none;
:func:`find_conditionals` finds those of several, joined into blocks where that is exact and
faster mixing.

==================  ====================================================================
module              its subject
==================  ====================================================================
``conditional``     what a conditional is
``gaussian``        Gaussian prior, Gaussian children with affine means
``blocks``          the arrays of a Gaussian block
``gaussian_draws``  the draws of a Gaussian block
``effects``         effects of groups, with all else that is linear
``elimination``     effects of groups, by the structure of their groups
``multivariate``    Gaussian vectors with covariance matrices
``series``          Gaussian random walks and autoregressions
``wishart``         precision matrices with a Wishart prior
``augmentation``    Bernoulli and Binomial children with a logit
``gates``           Bernoulli variables that switch a part of a mean
``piecewise``       Gaussian pre-activation under a piecewise-linear activation
``probit``          utilities behind a threshold or an argmax
``scales``          precisions, variances and what controls them
``trials``          probabilities with a Beta prior
``shares``          shares of classes with a Dirichlet prior
``entries``         entries of a variable that a child sees, and sums over them
``table``           the table that each law is entered in by its own module
``recognition``     match, find_conditionals
``densities``       densities of the random draws that laws end with
``verification``    whether the laws are those of a model
==================  ====================================================================
"""

from importlib import import_module
from pkgutil import iter_modules

from pymc_nnsteps.conditionals.conditional import Conditional, Draw
from pymc_nnsteps.conditionals.recognition import find_conditionals, match

__all__ = ["Conditional", "Draw", "find_conditionals", "match"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

"""Full conditionals as graphs, recognised from a PyMC model.

:func:`match` finds the conditional of one free variable or says why there is none;
:func:`find_conditionals` finds those of several, joined into blocks where that is exact and
faster mixing; :func:`explain` prints what was found.

====================  ==================================================================
module                its subject
====================  ==================================================================
``structure``         direct children of a variable; :class:`NotConjugate`
``affine``            affine form of an expression
``terms``             the linear part of an affine form
``pieces``            piecewise-linear form of an expression
``power``             power form of an expression
``conditional``       what a conditional is
``gaussian``          Gaussian prior, Gaussian children with affine means
``blocks``            the arrays of a Gaussian block
``axes``              operations on their axes
``gaussian_draws``    the draws of a Gaussian block
``gaussian_kernels``  those with a matrix per label, and of layers
``gaussian_ops``      these kernels as Ops
``augmentation``      Bernoulli children with a logit
``gates``             Bernoulli variables that switch a part of a mean
``piecewise``         Gaussian pre-activation under a piecewise-linear activation
``probit``            utilities behind a threshold or an argmax
``chain``             activations of several layers, jointly
``collapse``          gates and weights of a layer, without its activations
``networks``          which variables Gibbs takes by itself
``scales``            precisions, variances and what controls them
``interweaving``      weights moved with their pre-activations
``interwoven_gates``  weights behind gates, moved with these summed out
``above``             what is seen of activations that are integrated out
``recognition``       match, find_conditionals
``replacement``       how joint draws take the place of others
``shapes``            shapes at the time of compilation, and data that do not fit
``scan``              the order of a sweep, and when an order is valid
``plan``              what a sweep draws, and explain
``envelope``          a proposal and a bound, for exact draws by rejection
====================  ==================================================================
"""

from pymc_nnsteps.conditionals.conditional import Conditional, Draw
from pymc_nnsteps.conditionals.plan import explain
from pymc_nnsteps.conditionals.recognition import find_conditionals, match
from pymc_nnsteps.conditionals.structure import NotConjugate

__all__ = ["Conditional", "Draw", "NotConjugate", "explain", "find_conditionals", "match"]

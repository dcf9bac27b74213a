"""Reading and rewriting the graph of any PyMC model.

====================  ==================================================================
module                its subject
====================  ==================================================================
``errors``            :class:`NotConjugate`, raised where a reader declines
``search``            children of a variable, and what depends on it
``known``             whether a variable has the law named by its operation
``initial_values``    initial values that belong to the graph
``shapes``            shapes of variables, and data that do not fit or are drawn anew
``values``            constants, data, and variables replaced by others
``affine``            affine form of an expression
``rearranging``       indexing and reshapes in an affine form
``linear_terms``      the linear part of an affine form
``monomial``          expressions that are powers of a variable
``centred``           variables stated by their differences from a mean
``piecewise_linear``  piecewise-linear form of an expression
``rows``              expressions whose rows depend on their own row of the data alone
``row_axes``          axis of the rows in the result of each operation
====================  ==================================================================
"""

from pymc_nnsteps.graphs import rearranging as rearranging

"""Reading and rewriting the graph of any PyMC model.

====================  ==================================================================
module                its subject
====================  ==================================================================
``errors``            :class:`NotConjugate`, raised where a reader declines
``names``             names of variables and distributions in messages
``search``            children of a variable, and what depends on it
``known``             whether a variable has the law named by its operation
``callers``           local variables of PyMC's calling functions
``initial_values``    initial values that belong to the graph
``lengths``           lengths of the axes of random variables
``shapes``            shapes at the time of compilation, and data that do not fit
``values``            constants, data, and variables replaced by others
``random_data``       log densities that draw random numbers of their own
``affine``            affine form of an expression
``indexing``          indexing in an affine form
``reshaping``         reshapes in an affine form
``restated``          composite operations written as simpler ones
``linear_terms``      the linear part of an affine form
``arrays``            operations on the axes of symbolic arrays
``monomial``          expressions that are powers of a variable
``piecewise_linear``  piecewise-linear form of an expression
``rows``              expressions whose rows depend on their own row of the data alone
``places``            axis of the rows in the result of each operation
====================  ==================================================================
"""

from importlib import import_module

for _readers in ("indexing", "reshaping"):
    import_module(f"{__name__}.{_readers}")

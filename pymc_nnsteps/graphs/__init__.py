"""Reading and rewriting the graph of any PyMC model.

====================  ==================================================================
module                its subject
====================  ==================================================================
``errors``            :class:`NotConjugate`, raised where nothing can be established
``names``             what the parts of a graph are called
``search``            children of a variable, and what depends on it
``known``             whether a variable has the law that its operation says
``callers``           what PyMC's functions that are being called know
``initial_values``    initial values that belong to the graph
``lengths``           lengths of the axes of random variables
``shapes``            shapes at the time of compilation, and data that do not fit
``values``            constants, data, and variables replaced by others
``random_data``       log densities that draw random numbers of their own
``affine``            affine form of an expression
``indexing``          its reader of indices, and of entries that are put into an array
``reshaping``         its reader of reshapes
``restated``          composite operations in terms of those that are read
``linear_terms``      the linear part of an affine form
``arrays``            operations on the axes of its arrays
``monomial``          expressions that are powers of a variable
``piecewise_linear``  piecewise-linear form of an expression
====================  ==================================================================
"""

from importlib import import_module

for _readers in ("indexing", "reshaping"):
    import_module(f"{__name__}.{_readers}")

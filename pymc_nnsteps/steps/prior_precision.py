"""Prior precision of each entry of a variable given its parents, read off the graph.

It is the largest second derivative of minus the log density: for N(m, s^2) it is s^-2, for a
Student-t with nu degrees of freedom and scale s it is (nu + 1) / (nu s^2). A Laplace prior of scale
b has a kink in place of a second derivative; the mean square of its slope is b^-2.
"""

from collections.abc import Callable, Collection

import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.random.basic import LaplaceRV, NormalRV, StudentTRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.known import prior_kind
from pymc_nnsteps.graphs.search import depends_on, parameters


def _normal(mu: TensorVariable, sigma: TensorVariable) -> TensorVariable:
    return pt.sqr(1 / sigma)


def _student_t(nu: TensorVariable, mu: TensorVariable, sigma: TensorVariable) -> TensorVariable:
    return (1 + 1 / nu) * pt.sqr(1 / sigma)


def _laplace(mu: TensorVariable, b: TensorVariable) -> TensorVariable:
    return pt.sqr(1 / b)


PRECISIONS: dict[type, Callable[..., TensorVariable]] = {
    NormalRV: _normal,
    StudentTRV: _student_t,
    LaplaceRV: _laplace,
}


def prior_precision(
    model: pm.Model, rv: TensorVariable, moved: Collection[TensorVariable]
) -> TensorVariable | None:
    """Precisions of the entries of a free variable, in terms of its parents; broadcasts to it.

    Parameters
    ----------
    moved : collection of TensorVariable
        Variables that the precision must not depend on.

    Returns
    -------
    TensorVariable or None
        None if the variable is constrained, its prior is another, or has a parent that is moved.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     tau = pm.Gamma("tau", 2, 1)
    ...     w = pm.Normal("w", 0, tau=tau, shape=3)
    >>> prior_precision(model, w, [w]).eval({tau: 4.0})
    array([4.])
    >>> prior_precision(model, w, [w, tau])
    """
    rule = PRECISIONS.get(prior_kind(model, rv))
    if rule is None:
        return None
    given = parameters(rv)
    others = [variable for variable in moved if variable is not rv]
    barriers = model.basic_RVs
    if any(depends_on(parameter, others, barriers) for parameter in given):
        return None
    return pt.as_tensor(rule(*given))

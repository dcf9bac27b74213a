"""The error that a reader of graphs raises where it cannot establish a property."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NotConjugate(ValueError):  # noqa: N818 (a public name, and a finding more than an error)
    """Raised if a full conditional has no form that this package can draw from.

    The message names the variable, the child that prevents a conditional, and the reason.

    Examples
    --------
    >>> import pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     level = pm.Normal("level")
    ...     y = pm.Poisson("y", pm.math.exp(level), observed=[2, 0, 1])
    >>> try:
    ...     nns.Gibbs([level], model=model)
    ... except nns.laws.NotConjugate as reason:
    ...     print(str(reason).partition(":")[0])
    level
    """


@contextmanager
def declined_as(finding: str) -> Iterator[None]:
    """Put a finding before the reason with which a reader in this context declines."""
    try:
        yield
    except NotConjugate as reason:
        raise NotConjugate(f"{finding}: {reason}") from None


def known_or_none[T, **P](read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What a reader finds, or None where it declines."""
    try:
        return read(*args, **kwargs)
    except NotConjugate:
        return None

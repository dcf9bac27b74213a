"""What a reader of graphs raises where it cannot establish what it was asked for."""


class NotConjugate(ValueError):  # noqa: N818 (a public name, and a finding more than an error)
    """A full conditional has no form that this package knows how to draw from.

    The message names the variable, the child that stands in the way, and the reason.
    """

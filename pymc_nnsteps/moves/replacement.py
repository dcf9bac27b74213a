"""How joint draws take the place of others in a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.laws.conditional import Conditional
from pymc_nnsteps.moves.marginal_likelihood import MarginalLikelihood


@dataclass(frozen=True)
class Replacement:
    """Draws that take the place of others.

    Attributes
    ----------
    at : Conditional
        The draw of a sweep in whose place they are put.
    removes : tuple of Conditional
        Further draws that they make superfluous.
    puts : tuple of Conditional
        In the order in which they must follow each other.
    """

    at: Conditional
    removes: tuple[Conditional, ...]
    puts: tuple[Conditional, ...]

    def apply(self, sweep: Sequence[Conditional]) -> list[Conditional]:
        """The sweep with the replacement made."""
        new: list[Conditional] = []
        for draw in sweep:
            if draw is self.at:
                new.extend(self.puts)
            elif not any(draw is removed for removed in self.removes):
                new.append(draw)
        return new


@dataclass(frozen=True)
class Proposals:
    """What a move proposes.

    Attributes
    ----------
    replacements : tuple of Replacement
    layers : mapping from random variable to MarginalLikelihood
        Activations that the new draws integrate out, and what their children say of them.
    declined : mapping from random variable to str
        Why there is none, for variables that might have been expected to have one.
    """

    replacements: tuple[Replacement, ...] = ()
    layers: Mapping[TensorVariable, MarginalLikelihood] = field(default_factory=dict)
    declined: Mapping[TensorVariable, str] = field(default_factory=dict)

r"""Noise that varies with the inputs, by a network of its own.

.. math:: \sigma_k(x) = \sigma_k \exp(g_k(x)) \qquad \text{of output } k,

with a network g without noise (:mod:`.hierarchical`), whose outputs have no biases: the level
:math:`\sigma_k` is that of noise that does not vary. How much it does is learnt, as the precision
of the weights to the outputs of g.
"""

from collections.abc import Mapping
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from pymc_nnsteps.models.blocks.hierarchical import HierarchicalLayers
from pymc_nnsteps.models.parts import layers
from pymc_nnsteps.models.parts.context import Dim
from pymc_nnsteps.models.parts.groups import DEFAULT_PRIORS, PriorLike
from pymc_nnsteps.models.parts.likelihoods import Start
from pymc_nnsteps.models.parts.stack import Stack

__all__ = ["NoiseNetwork"]

NAME = "log_noise"
"""Name that the variables of the network start with."""

PRIORS: dict[str, PriorLike] = {
    "ho": DEFAULT_PRIORS["hs"],
    "io": DEFAULT_PRIORS["is"],
    "bo": None,
}


class NoiseNetwork:
    """The logarithm of how noise varies.

    ``stack`` is that of the network of the mean; ``given`` has ``hidden``, ``activation`` and
    ``priors``, as for :func:`~pymc_nnsteps.models.blocks.hierarchical`.
    """

    def __init__(self, stack: Stack, given: Mapping[str, Any] | None, start: Start) -> None:
        options: dict[str, Any] = {"hidden": (4,), "activation": "tanh", "priors": {}}
        if given is None:
            given = {}
        if not isinstance(given, Mapping) or not set(given) <= set(options):
            raise ValueError(
                "noise_network must be a mapping with any of the keys "
                f"{', '.join(options)}; got {given!r}."
            )
        options |= given
        hidden, priors = layers.layer_sizes(options["hidden"]), options["priors"]
        names = (f"{NAME}::hidden{layer}" for layer in range(1, len(hidden) + 1))
        own = Stack(
            (stack.units[0], *hidden, stack.units[-1]),
            (stack.unit_dims[0], *names, stack.unit_dims[-1]),
            stack.row_dim,
        )
        defaults = {key: prior for key, prior in PRIORS.items() if hidden or key != "ho"}
        if hidden:
            del defaults["io"]
        if isinstance(priors, Mapping):
            priors = {**defaults, **priors}
        self.layers = HierarchicalLayers(own, options["activation"], priors, None, None, start)

    @property
    def dims(self) -> dict[str, Dim]:
        """Dimensions of its hidden layers."""
        names, units = self.layers.stack.unit_dims[1:-1], self.layers.stack.units[1:-1]
        return dict(zip(names, map(Dim, units), strict=True))

    def vary(
        self, x: TensorVariable, level: TensorVariable | NDArray, dims: tuple[str, ...]
    ) -> TensorVariable:
        """Add the network to the model, and ``"sigma"``, the noise of each row.

        ``level`` is of shape () or (n_outputs,), and ``dims`` are those of the targets.
        """
        with pm.Model(name=NAME):
            [g] = self.layers(x)
        return pm.Deterministic(
            "sigma", level * pt.exp(g if len(dims) == 2 else g[:, 0]), dims=dims
        )

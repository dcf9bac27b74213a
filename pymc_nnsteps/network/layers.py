r"""One layer of a network: the law of a random variable, given the layers below.

With the layers below in the parameters, a latent layer is one of

.. math::

    z \sim N(m, s^2), \qquad \gamma \sim \text{Bernoulli}(p), \qquad
    x \sim \sum_k w_k N(m_k, s_k^2),

and thus a function of noise that is independent of all else: of a standard normal variable, of a
uniform one, or of both. Pre- and post-activations and utilities are of the first kind, gates of the
second, activations whose gates are summed out of the third.
"""

from dataclasses import dataclass
from typing import ClassVar

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.mixture import MixtureRV
from pytensor.tensor.random.basic import BernoulliRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_nnsteps.graphs.errors import NotConjugate
from pymc_nnsteps.graphs.known import has_law
from pymc_nnsteps.graphs.names import describe, law_as_stated
from pymc_nnsteps.graphs.search import parameters


@dataclass(frozen=True)
class Normal:
    """Normal layer, of mean and standard deviation ``sd``."""

    mean: TensorVariable
    sd: TensorVariable
    noise: ClassVar = ("normal",)

    def given(self, normal: TensorVariable) -> TensorVariable:
        """The layer as a function of standard normal noise."""
        return self.mean + self.sd * normal


@dataclass(frozen=True)
class Gates:
    """Gates that are open with probability ``mean``."""

    mean: TensorVariable
    noise: ClassVar = ("uniform",)

    def given(self, uniform: TensorVariable) -> TensorVariable:
        """The gates as a function of noise that is uniform between 0 and 1."""
        return pt.lt(uniform, self.mean)


@dataclass(frozen=True)
class Mixture:
    """Mixture of normals, in its weights, means and standard deviations along the last axis."""

    weights: TensorVariable
    means: TensorVariable
    sds: TensorVariable
    noise: ClassVar = ("normal", "uniform")

    @property
    def mean(self) -> TensorVariable:
        """Mean of the layer."""
        return (self.weights * self.means).sum(-1)

    def given(self, normal: TensorVariable, uniform: TensorVariable) -> TensorVariable:
        """The layer as a function of noise: the uniform one chooses the component."""
        above = pt.gt(uniform[..., None], self.weights.cumsum(-1)[..., :-1])
        number = above.sum(-1, keepdims=True)
        n_components = self.weights.type.shape[-1] or self.weights.shape[-1]
        chosen = pt.eq(number, pt.arange(n_components))
        mean, sd = ((chosen * each).sum(-1) for each in (self.means, self.sds))
        return mean + sd * normal


Layer = Normal | Gates | Mixture


def layer_of(model: pm.Model, rv: TensorVariable) -> Layer:
    """Read a random variable as a layer."""
    if has_law(model, rv, NormalRV):
        return Normal(*parameters(rv))
    if has_law(model, rv, BernoulliRV):
        return Gates(*parameters(rv))
    if has_law(model, rv, MixtureRV) and len(rv.owner.inputs) == 3:
        _, weights, component = rv.owner.inputs
        if has_law(model, component, NormalRV):
            return Mixture(weights, *parameters(component))
    raise NotConjugate(
        f"{describe(rv)} depends on the inputs and is {law_as_stated(model, rv)}; known are layers "
        "that are Normal, Bernoulli or mixtures of normals of one kind"
    )

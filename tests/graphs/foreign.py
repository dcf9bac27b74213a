"""Distributions of users, whose operations are subclasses of those of PyMC."""

import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, NormalRV


def tempered(value, mu, sigma):
    return 0.1 * pm.Normal.logp(value, mu, sigma)


def noisy(value, p):
    return pm.Bernoulli.logp(value, 0.1 + 0.8 * p)


class TemperedRV(NormalRV):
    """Normal draws."""


class NoisyBernoulliRV(BernoulliRV):
    """Draws without noise."""


class InheritingRV(NormalRV):
    """Without a density of its own, so that PyMC computes its parent's."""


class Tempered(pm.Normal):
    """A power of a normal density."""

    rv_op = TemperedRV()
    logp = tempered


class NoisyBernoulli(pm.Bernoulli):
    """Labels of which some are turned."""

    rv_op = NoisyBernoulliRV()
    logp = noisy


class Inheriting(pm.Normal):
    """Normal, for all that PyMC knows."""

    rv_op = InheritingRV()

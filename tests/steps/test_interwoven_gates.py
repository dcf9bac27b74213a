"""Weights behind gates moved with these summed out: joint distributions, planted errors.

At little noise, where gates, activations and weights given all else hardly move, and the move
decides what becomes of the weights.
"""

import math

import numpy as np
import pytest
from pymc.pytensorf import compile as compile_graph

import pymc_nnsteps as nns
from pymc_nnsteps.moves.gated_trajectories import GatedTrajectories
from pymc_nnsteps.moves.loops import interwoven_gates as kernels
from pymc_nnsteps.steps.tuning import DualAveraging
from tests.cases import in_suite
from tests.moves.in_python import in_python
from tests.planting import plant
from tests.statistics import bonferroni_limit
from tests.steps.joint import LEVEL, joint_z_scores
from tests.steps.priors import LIGHT

X = np.random.default_rng(3).normal(size=(2, 2))
SHORT, LONG, RESTART = 5_000, 8_000, 50
STEP = 0.9
"""One minus the step size of trajectories."""

METRIC = np.array([2.0, 4.0, 1.0, 2.0, 1.0, 1.0, 1.0, 0.5, 1.0])
"""Numbers of their metric, the first for each weight of a unit; without any they move nothing."""


def tiny(hidden=(2,), shrinkage="gaussian", y=X[:, 0]):
    return nns.bow_tie(
        X,
        y,
        hidden=hidden,
        temperature=0.3,
        shrinkage=LIGHT[shrinkage],
        bias_var=0.7,
        hidden_alpha=4,
        hidden_beta=0.01,
        noise_alpha=4,
        noise_beta=0.05,
    )


def interwoven(model, rho, **options):
    """A step with proposals of this autocorrelation, whose chain starts anew now and then.

    At little noise hardly anything moves, and statistics of one chain are no normal ones. A draw
    of everything from the joint distribution leaves it invariant as any transition should.
    """
    step = nns.Gibbs(model=model, interweave=True, passes=2, **options)
    setup_chain, one_step = step.setup_chain, step.step
    variables = model.basic_RVs
    anew = compile_graph([], variables, random_seed=1, mode="FAST_COMPILE")

    def setup_chain_at_rho(*args):
        setup_chain(*args)
        fixed = [STEP if isinstance(move, GatedTrajectories) else rho for move in step._sweep.moves]
        step.adaptations = tuple(DualAveraging(0.5, math.log(1 / each - 1)) for each in fixed)
        for _, part in step._sweep.averaged:
            step.averages[part] = np.pad(METRIC, (part.stop - part.start - len(METRIC), 0), "edge")

    def step_or_restart(point):
        if step.n_sweeps % RESTART == 0:
            drawn = dict(zip(variables, anew(), strict=True))
            model["targets"].set_value(drawn[model["y"]])
            for rv in model.free_RVs:
                positive = model.rvs_to_transforms[rv] is not None
                value = np.log(drawn[rv]) if positive else drawn[rv]
                point = point | {model.rvs_to_values[rv].name: value}
        return one_step(point)

    step.setup_chain, step.step = setup_chain_at_rho, step_or_restart
    return step


def scores(model, transitions, *, rho=1e-12, **options):
    step = interwoven(model, rho, **options)
    found = joint_z_scores(step, model, "targets", transitions=transitions)
    return max(map(abs, found.values())) / bonferroni_limit(len(found), LEVEL)


CASES = {
    "gaussian": ((2,), {}, {"rho": 0.7, "collapse": False}),
    "student_t": ((2, 2), {}, {"scan": "parallel"}),
    "laplace": ((3, 1), {}, {}),
    "normal_gamma": ((2,), {"y": X @ [[1, 0, 1], [0, 1, 1]]}, {}),
    "nig": ((2, 2), {}, {"collapse": False}),
}
"""Units of each layer, other data and other options, for each family of priors."""


@pytest.mark.parametrize("family", in_suite(CASES, {"gaussian", "nig"}))
def test_joint_distribution(family):
    """A sweep that does not leave the posterior invariant."""
    hidden, data, options = CASES[family]
    assert scores(tiny(hidden, family, **data), LONG, **options) < 1


@pytest.mark.slow
def test_joint_distribution_test_sees_a_planted_error(monkeypatch):
    in_python(monkeypatch, kernels)
    plant(
        *(monkeypatch, kernels, "log_ratio_back"),
        lambda right, here, there, *args: right(here, there._replace(step=0 * there.step), *args),
    )
    assert scores(tiny(), SHORT, trajectories=False) > 1

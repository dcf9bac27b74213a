"""A single chain of a step, as an array."""

import numpy as np


def vector(step, point):
    """Values of a step's variables, raveled one after another."""
    return np.concatenate([np.ravel(point[value.name]) for value in step.vars])


def chain(step, point, draws, *, seed=0, tune=0, burn=0):
    """The values of a step's variables after each of ``draws`` steps; mean acceptance."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    for i in range(tune + burn):
        if i == tune:
            step.stop_tuning()
        point, _ = step.step(point)
    step.stop_tuning()
    history, acceptance = [], []
    for _ in range(draws):
        point, [stats] = step.step(point)
        history.append(vector(step, point))
        acceptance.append(stats.get("acceptance_probability", 1.0))
    return np.array(history), np.array(acceptance)

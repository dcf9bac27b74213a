"""The kernel that moves rows with their gates, with errors in it that tests must see."""

import inspect

from pymc_nnsteps.kernels import interwoven_gates as kernels

PLANTS = {
    "p for s": ("(p - s) * logit_factor[n]", "(p - p) * logit_factor[n]"),
    "no determinants": ("total += math.log(new_factor[i, i] / factor[i, i])", "pass"),
    "gates not redrawn": ("1.0 if refresh[p, a, n] < chance[n] else 0.0", "gates[a, n]"),
    "gates of the old row": ("chance[:] = new_chance", "pass"),
    "gates of the old level": ("shift[n] = gates[a, n] * level[a, n]", "shift[n] = mean[n]"),
    "one way": ("back[j] = -change[j] - drift * step[j]", "back[j] = -change[j]"),
    "own activations not removed": ("gradient[n] += curvature[n] * level[n]", "pass"),
}
"""Code of the kernel, and what it is exchanged for."""


def planted(plant):
    """The kernel, not compiled, with an error in it."""
    namespace = dict(vars(kernels))
    names = ("leave_out", "weigh_gates", "find_step", "weigh_proposals", "move_gated_rows")
    sources = [inspect.getsource(namespace[name].__wrapped__) for name in names]
    source = "".join(sources).replace("@jit", "").replace("@inline", "")
    right, wrong = PLANTS[plant]
    assert source.count(right) == 1
    exec(source.replace(right, wrong), namespace)
    return namespace["move_gated_rows"]

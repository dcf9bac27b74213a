"""The kernel that moves rows with their gates, with errors in it that tests must see."""

import inspect

from pymc_nnsteps.kernels import interwoven_gates as kernels
from pymc_nnsteps.kernels.jit import Kernel, of_arrays

HERE = kernels.__name__

PLANTS = {
    "p for s": ("(p - prior_chance[n]) * logit_factor", "(p - p) * logit_factor"),
    "no determinants": ("total += math.log(new_factor[i, i] / factor[i, i])", "pass"),
    "gates not redrawn": ("1.0 if uniform[n] < gate.chance[n] else 0.0", "gates[n]"),
    "gates of the old row": ("copy(new.chance, gate.chance)", "pass"),
    "gates of the old level": ("shift[n] = gates[n] * gate.level[n]", "shift[n] = mean[n]"),
    "one way": ("back[j] = -change[j] - (1.0 - rho) * there.step[j]", "back[j] = -change[j]"),
    "own activations not removed": ("gradient[n] += curvature[n] * level[n]", "pass"),
}
"""Code of the kernel, and what it is exchanged for."""


def planted(plant):
    """The kernel, not compiled, with an error in it."""
    namespace = dict(vars(kernels))
    own = [k for k in namespace.values() if isinstance(k, Kernel) and k.__module__ == HERE]
    called = [namespace[name] for name in ("leave_out", "weigh_proposals")]
    sources = [inspect.getsource(kernel.__wrapped__) for kernel in (*called, *own)]
    source = "".join(sources).replace("@jit", "").replace("@inline", "")
    right, wrong = PLANTS[plant]
    assert source.count(right) == 1
    exec(source.replace(right, wrong), namespace)
    return of_arrays(namespace["move_gated_rows"])

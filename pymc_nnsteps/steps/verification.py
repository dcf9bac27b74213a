"""Whether a model is sampled as it says: law by law, or all that is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, override

import numpy as np
import pymc as pm

from pymc_nnsteps.arguments import positive_integer
from pymc_nnsteps.compile.threads import one_thread
from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.graphs.shapes import require_fitting_data
from pymc_nnsteps.laws.verification import compare_laws
from pymc_nnsteps.steps.assignment import Step
from pymc_nnsteps.steps.stationarity import check_chain
from pymc_nnsteps.tables import as_text


@dataclass(frozen=True)
class Verification:
    """Deviations of conditionals, or of a chain, from the model's density; printed as a table.

    A row has variables, their conditional and the largest difference of log densities in units of
    the rounding allowed; or, of a chain, a variable, an identity and its largest z-score.
    """

    rows: tuple[tuple[str, str, float], ...]
    header: tuple[str, str, str] = ("variable", "law", "difference")
    note: str = ""

    @override
    def __str__(self) -> str:
        form = "{:.1f}" if self.note else "{:.1e}"
        rows = [(variables, what, form.format(number)) for variables, what, number in self.rows]
        return "\n".join([as_text(self.header, rows), *([self.note] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


@one_thread
def verify(
    model: pm.Model | None = None,
    *,
    sweeps: int | Literal["auto"] | None = None,
    step: Step | Sequence[Step] | None = None,
    initvals: Any = None,
    rtol: float | None = None,
    random_seed: int | None = None,
) -> Verification:
    """Check the full conditionals and draws of a model against its log density.

    Without ``sweeps`` the conditionals are checked one by one, in seconds. The log density of each
    conditional that :class:`~pymc_nnsteps.Gibbs` draws from must differ between two points by as
    much as the model's own log density, from the bulk of the conditional to a thousand of its
    standard deviations away. This does not check joint moves and what they integrate out, the order
    of the draws, acceptance, the generators themselves, bounds that a conditional has and the model
    lacks, transforms, and what the compiled sweep computes only once.

    With ``sweeps`` everything that ``pm.sample`` runs is checked, mostly in less than a minute for
    small models. The assigned steps, or those of ``step``, of this package or not, are tuned and
    then run on. Their draws must have a finite log density, and satisfy identities of the
    posterior:

    - Stein's identities ``E d log p / dv = 0`` and ``E (v - c) d log p / dv = -1`` for each entry
      ``v`` of a transformed variable along which the log density is continuous, and for the 20
      directions in which all entries together move most;
    - balance of moves of single entries that are proposed by no conditional and accepted with
      probability ``p(v') / (p(v) + p(v'))``: as many go up as down, outwards as inwards, and to
      higher densities as to lower ones. This holds for integers and at bounds, too.

    Both are checked after whole sweeps. For Gibbs they are also checked after those parts of a
    sweep that end where the variables that a joint move integrated out have been redrawn, because
    later draws may hide an error. The log density of :class:`~pymc_nnsteps.HMC` must differ between
    two draws by as much as the model's.

    A deviation counts only if it is found again in another stretch of the chain, twice as long.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context if not given.
    sweeps : int or "auto", optional
        Number of sweeps after tuning and after 200 others that determine the spacing of the draws
        to check. "auto": as many as give a thousand draws. More sweeps detect smaller errors.
    step, initvals
        As for ``pm.sample``; only with ``sweeps``.
    rtol : float, optional
        Relative rounding error allowed in a difference of log densities: 1e-7 by default, 1e-3 for
        models in single precision.
    random_seed : int, optional

    Returns
    -------
    Verification
        Prints as a table. A row of a conditional has its variables, its name, and the largest
        difference found, in units of the rounding error allowed. A row of sweeps has variables, an
        identity, and the largest z-score of their entries and of the mean of these, with errors
        from the means of 50 batches.

    Raises
    ------
    AssertionError
        If a conditional is not the model's; the message names the variable, and the child that it
        misreads. If the distribution of a chain is not the posterior; the message names the
        identities that fail, and the draw of the plan to examine first. If trajectories follow
        another log density; the message names the variables that they move.
    ValueError
        If ``sweeps`` is neither a positive integer nor "auto", or if ``step`` or ``initvals`` are
        given without it.

    Notes
    -----
    All identities hold given all other entries. They therefore do not require that a chain has
    visited all modes, and say nothing about modes that it has not visited.

    Examples
    --------
    >>> import pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     tau = pm.Gamma("tau", 2, 1)
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, tau=tau, observed=[0.1, 0.9, 2.1])
    >>> for variable, law, difference in nns.verify(model, random_seed=1).rows:
    ...     print(variable, law, difference < 1)
    tau generalised inverse Gaussian True
    mu Gaussian True
    >>> step = nns.Gibbs(model=model)
    >>> table = nns.verify(model, sweeps=500, step=step, random_seed=1)
    >>> print(len(table.rows), table.note)
    12 16 z-scores from 500 draws; right ones stay below 4.5
    """
    model = model_or_context(model)
    plain = plain_model(model)
    require_fitting_data(plain)
    rng = np.random.default_rng(random_seed)
    if sweeps is None:
        if step is not None or initvals is not None:
            raise ValueError('step and initvals are for sweeps: pass sweeps="auto" as well.')
        return Verification(tuple(compare_laws(plain, rtol=rtol, rng=rng)))
    if isinstance(sweeps, str) and sweeps != "auto":
        raise ValueError(f'sweeps must be "auto" or a positive integer; got {sweeps!r}.')
    n = None if sweeps == "auto" else positive_integer("sweeps", sweeps)
    found = check_chain(model, sweeps=n, step=step, initvals=initvals, rng=rng)
    return Verification(found.rows, ("variable", "identity", "z"), found.summary)

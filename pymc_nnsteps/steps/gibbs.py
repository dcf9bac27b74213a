"""The Gibbs step: exact draws from full conditionals read off the model's graph."""

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import PointType
from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn
from rich.table import Column

from pymc_nnsteps.arguments import positive_integer, require_choice
from pymc_nnsteps.compiling import c_by_default
from pymc_nnsteps.conditionals.conditional import Shapes
from pymc_nnsteps.conditionals.networks import needs_gibbs
from pymc_nnsteps.conditionals.recognition import explain, find_conditionals, match
from pymc_nnsteps.conditionals.scan import Collapse, combine, order_scan
from pymc_nnsteps.conditionals.structure import NotConjugate
from pymc_nnsteps.steps.sweep import Sweep
from pymc_nnsteps.steps.variables import chosen

Scan = Literal["sequential", "parallel"]


@dataclass_state
class GibbsState(StepMethodState):
    """Sampling state of :class:`Gibbs`."""

    n_sweeps: int


class Gibbs(BlockedStep):
    """Draw variables from their full conditionals, one compiled function per sweep.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Random variables (or their names) of the model. None: all that have a full conditional
        with a known form, see :func:`pymc_nnsteps.explain`.
    sweeps : int
        Sweeps per draw: thinning without storing.
    scan : {"sequential", "parallel"}
        Order of a sweep. "sequential" follows the model from input to output (Piccioli et al.,
        Algorithm 1); "parallel" draws all post-activations, then all weights, then all
        pre-activations (Algorithm 2). Both leave the posterior invariant.
    collapse : bool or "auto"
        Whether the gates and the weights of a layer behind binary gates
        (:func:`pymc_nnsteps.bow_tie`) are drawn with its activations integrated out: jointly for
        all units, at a cost that grows with the cube of the layer's number of weights. "auto"
        does so up to 1500 weights. All choices leave the posterior invariant.
    model : pm.Model, optional
        Taken from the context if not given.
    rng : RandomGenerator, optional
    blocked : bool
        PyMC's; a Gibbs step takes all its variables as one block of work.
    initial_point : dict, optional
        A point with the shapes of the variables. PyMC passes it.
    compile_kwargs : dict, optional
        Options of :func:`pymc.pytensorf.compile`, such as ``{"mode": "NUMBA"}``. By default the
        sweep is compiled to C, and with numba where PyTensor finds no C++ compiler.

    Raises
    ------
    NotConjugate
        If a variable's full conditional is not of a known form; the message names the variable,
        the child in the way, and the reason.
    ValueError
        If ``sweeps``, ``scan`` or ``collapse`` is not as above, or if a full conditional is
        improper at the initial point, as that of a variance with a Gamma prior is if its children
        are zero.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_nnsteps as nns
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope", 0, 10)
    ...     y = pm.Normal("y", slope * np.arange(4.0), 0.1, observed=[0.0, 1.1, 1.9, 3.0])
    ...     step = nns.Gibbs([slope])
    >>> point, stats = step.step(model.initial_point())
    >>> bool(0.8 < point["slope"] < 1.2)
    True
    """

    name = "gibbs"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"n_sweeps": (np.int64, [])}
    _state_class = GibbsState

    def __init__(
        self,
        vars: TensorVariable | str | Sequence[TensorVariable | str] | None = None,
        *,
        sweeps: int = 1,
        scan: Scan = "sequential",
        collapse: Collapse = "auto",
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.sweeps = positive_integer("sweeps", sweeps)
        require_choice("scan", scan, get_args(Scan))
        if not isinstance(collapse, bool) and collapse != "auto":
            raise ValueError(f'collapse must be True, False or "auto"; got {collapse!r}.')
        model = modelcontext(model)
        if initial_point is None:
            initial_point = model.initial_point()
        rvs = _recognised(model) if vars is None else chosen(model, vars)
        shapes = _shapes(model, initial_point)
        blocks = combine(find_conditionals(model, rvs), collapse, shapes)
        conditionals = order_scan(blocks, scan, model)
        drawn = dict.fromkeys(rv for conditional in conditionals for rv in conditional.draws)
        self.vars = [model.rvs_to_values[rv] for rv in drawn]
        self.rng = get_random_generator(rng)
        self.n_sweeps = 0
        self._sweep = Sweep(
            model,
            conditionals,
            shapes,
            c_by_default(compile_kwargs),
        )
        _, values, _ = self._sweep(np.random.default_rng(0), initial_point, 1)
        strange = [name for name, value in values.items() if not np.isfinite(value).all()]
        if strange:
            raise ValueError(
                f"{', '.join(strange)} cannot be drawn at the initial point, where the full "
                "conditional has no density; start what depends on it elsewhere than at zero, "
                "with initvals."
            )

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare for a chain: the generator, and what depends on the model's data."""
        super().setup_chain(rng, tune, draws)
        self.n_sweeps = 0
        self._sweep.compiled.refresh()

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Perform ``sweeps`` sweeps from ``point``."""
        self.rng, values, stats = self._sweep(self.rng, point, self.sweeps)
        self.n_sweeps += self.sweeps
        new_point = point.copy()
        new_point.update(values)
        return new_point, [{"n_sweeps": self.n_sweeps, **stats}]

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool) -> Competence:
        """IDEAL for the variables of a network with latent layers, and for nothing else."""
        model = _sampled_model()
        if model is None or var not in model.free_RVs or not needs_gibbs(model, var):
            return Competence.INCOMPATIBLE
        try:
            match(model, var)
        except NotConjugate:
            return Competence.INCOMPATIBLE
        return Competence.IDEAL

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[int]]]:
        columns = [TextColumn("{task.fields[n_sweeps]}", table_column=Column("Sweeps", ratio=1))]
        return columns, {"n_sweeps": [0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any, ...]:
        def update_stats(stats: dict[str, Any]) -> dict[str, Any]:
            return {"n_sweeps": stats["n_sweeps"]}

        return (update_stats,)


def _recognised(model: pm.Model) -> list[TensorVariable]:
    """Free variables that have a full conditional of a known form."""
    recognised = []
    for rv in model.free_RVs:
        try:
            match(model, rv)
        except NotConjugate:
            continue
        recognised.append(rv)
    if not recognised:
        raise NotConjugate(
            f"No variable of the model has a full conditional of a known form:\n{explain(model)}"
        )
    return recognised


def _shapes(model: pm.Model, initial_point: PointType) -> Shapes:
    """Shapes of the model's variables; of free ones with a transform, that of their value."""
    shapes: dict[TensorVariable, tuple[int, ...]] = {
        rv: np.shape(initial_point[model.rvs_to_values[rv].name]) for rv in model.free_RVs
    }
    observed = [model.rvs_to_values[rv].shape for rv in model.observed_RVs]
    evaluated = pytensor.function([], observed, mode="FAST_COMPILE")()
    shapes.update(
        (rv, tuple(int(n) for n in shape))
        for rv, shape in zip(model.observed_RVs, evaluated, strict=True)
    )
    return shapes


def _sampled_model() -> pm.Model | None:
    """Model that PyMC assigns steps for.

    PyMC asks for a competence without saying for which model: it is a local variable of the
    caller, and need not be the model of the context (``pm.sample(model=model)``).
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "assign_step_methods":
            return frame.f_locals.get("model")
        frame = frame.f_back
    try:
        return modelcontext(None)
    except TypeError:
        return None

"""Base class of the step methods: PyMC's, in one thread, with messages that say what to do.

Its progress columns are limited by the width of the terminal.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, ClassVar, Self, override

import pymc as pm
from pymc.step_methods.compound import BlockedStep, Competence
from pymc.step_methods.state import DataClassState, WithSamplingState
from pymc.util import RandomGenerator
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Column

from pymc_nnsteps.compile.threads import keep_one_thread_in_workers, one_thread
from pymc_nnsteps.graphs.known import describe
from pymc_nnsteps.graphs.plain import plain_model
from pymc_nnsteps.graphs.search import model_or_context, stated_in
from pymc_nnsteps.graphs.shapes import require_fitting_data
from pymc_nnsteps.steps.assignment import is_taken_by
from pymc_nnsteps.steps.compiled import OfData

Vars = TensorVariable | str | Sequence[TensorVariable | str] | None
"""Type of the ``vars`` argument of a step method; None leaves the choice to the step."""

ACCEPTANCE_AND_SIZE: Mapping[str, tuple[str, str]] = {
    "acceptance_probability": ("Accept", ":0.2f"),
    "proposal_size": ("Step size", ":0.2g"),
}
"""Titles and formats of statistics in the progress bar."""


class Step(BlockedStep):
    """A step method that moves all its variables at once, and computes in one thread."""

    _uses_gradient: ClassVar[bool] = False
    # Title and format of statistics in the progress bar.
    _shown: Mapping[str, tuple[str, str]] = MappingProxyType({})
    _tuned: ClassVar[tuple[str, ...]] = ()  # attributes that tuning leaves for the draws after it

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check arguments before PyMC raises a less helpful error."""
        given = args[0] if args else kwargs.get("vars")
        if isinstance(given, pm.Model):
            raise ValueError(
                "vars must be variables; got a model, which is to be passed as model=."
            )
        kwargs["model"] = model_or_context(kwargs.get("model"))
        if isinstance(given, list | tuple) and not given:
            raise ValueError(
                f"vars is empty; name variables of the model for {cls.__name__}, or leave vars out."
            )
        step: Self = super().__new__(cls, *args, **kwargs)
        return step

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a step read plain tensors, and what it computes use one thread."""
        super().__init_subclass__(**options)
        if "vars" in signature(cls.__init__).parameters:
            cls.__init__ = _in_plain_tensors(cls.__init__)  # type: ignore[method-assign]
        for name in {"__init__", "setup_chain", "step"} & vars(cls).keys():
            setattr(cls, name, one_thread(vars(cls)[name]))

    @override
    @one_thread
    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare a chain: set the generator, recompute quantities of the data, start tuning.

        A chain without tuning keeps the parameters that were tuned before.
        """
        keep_one_thread_in_workers()
        super().setup_chain(rng, tune, draws)
        tuned = {name: getattr(self, name) for name in self._tuned}
        self._start(tune=tune)
        if not tune:
            self.__dict__.update(tuned)
        for part in self._of_data():
            part.refresh()

    @property
    def sampling_state(self) -> DataClassState:
        """Sampling state for PyMC. Setting it discards what was computed: data may have changed."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state: DataClassState) -> None:
        WithSamplingState.sampling_state.__set__(self, state)
        for part in self._of_data():
            part.distrust()

    @classmethod
    @override
    def competence(cls, var: TensorVariable, has_grad: bool) -> Competence:
        """IDEAL for what :func:`~pymc_nnsteps.steps.set_auto_assign` states, else INCOMPATIBLE."""
        takes = (has_grad or not cls._uses_gradient) and is_taken_by(str(cls.name), var)
        return Competence.IDEAL if takes else Competence.INCOMPATIBLE

    def _start(self, *, tune: int) -> None:
        """Begin a chain with so many tuning draws."""
        self.tune = tune > 0

    @abstractmethod
    def _of_data(self) -> Sequence[OfData]:
        """What depends on the model's data only."""

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, Any]]:
        """Columns for statistics, as many as the terminal has room for.

        PyMC divides the width by fixed shares, and cuts its own times where too much is shown.
        Another step may show its acceptance, which comes first.
        """
        room, columns = Console().width - OTHERS, []
        if "Accept" not in dict(self._shown.values()):
            room -= len("Accept") + BETWEEN
        for name, (title, form) in self._shown.items():
            room -= len(title) + BETWEEN
            if room >= 0:
                column = Column(title, width=len(title), no_wrap=True)
                columns.append(TextColumn(f"{{task.fields[{name}]{form}}}", table_column=column))
        return columns, {name: [0] * n_chains for name in self._shown}

    def _make_progressbar_update_functions(self) -> tuple[Any, ...]:
        return (self._progress,)

    def _progress(self, stats: dict[str, Any]) -> dict[str, Any]:
        """What the progress bar shows of the statistics of a draw."""
        return {name: stats[name] for name in self._shown}


def _in_plain_tensors(build: Callable[..., None]) -> Callable[..., None]:
    """Build a step of a model of named dimensions for its plain model; values keep their names.

    Data that do not fit their distribution are refused.
    """

    @wraps(build)
    def built(self: Step, vars: Vars = None, **options: Any) -> None:
        given = model_or_context(options.pop("model", None))
        plain = plain_model(given)
        require_fitting_data(plain)
        if plain is not given and vars is not None:
            vars = [str(rv.name) for rv in chosen(given, vars)]
        build(self, vars, model=plain, **options)
        if plain is not given:
            names = [plain.values_to_rvs[value].name for value in self.vars]
            self.vars = [given.rvs_to_values[given[name]] for name in names]

    return built


OTHERS = 69
"""Width in characters of PyMC's own columns, which take seven equal shares."""

BETWEEN = 3
"""Width in characters of the gap between two columns."""


def chosen(
    model: pm.Model, vars: TensorVariable | str | Sequence[TensorVariable | str]
) -> list[TensorVariable]:
    """Random variables that a step is asked to draw, by these, their values or their names."""
    given = vars if isinstance(vars, list | tuple) else [vars]
    return list(dict.fromkeys(_free_variable(model, var) for var in given))


def _free_variable(model: pm.Model, var: object) -> TensorVariable:
    named: object = model.named_vars.get(var) if isinstance(var, str) else var
    if isinstance(named, Variable):
        rv = model.values_to_rvs.get(named, named)
        if rv in model.free_RVs:
            return rv
        problem = _problem(model, rv)
    else:
        problem = f"got {var!r}"
    known = ", ".join(rv.name for rv in model.free_RVs)
    raise ValueError(f"vars must be free variables of the model ({known}); {problem}.")


def _problem(model: pm.Model, variable: Variable) -> str:
    """Why a step cannot draw something that is not a free variable."""
    name = describe(variable)
    if variable in model.observed_RVs:
        return f"{name} is observed"
    if variable in model.data_vars:
        return f"{name} is data"
    sources = stated_in([variable], model.free_RVs)
    if sources:
        names = ", ".join(rv.name for rv in model.free_RVs if rv in sources)
        return f"{name} is computed from {names}: name these instead"
    return f"{name} does not belong to this model"


def require_continuous(rvs: Sequence[TensorVariable], step: str) -> None:
    """Check that a step that follows gradients is given continuous variables."""
    discrete = [describe(rv) for rv in rvs if not rv.dtype.startswith("float")]
    if discrete:
        raise ValueError(
            f"{', '.join(discrete)} is discrete, but {step} moves continuous variables; "
            "leave it to another step."
        )

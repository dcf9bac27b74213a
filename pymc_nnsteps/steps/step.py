"""Base class of the step methods: PyMC's, in one thread, with messages that say what to do.

Its progress columns are limited by the width of the terminal.
"""

from collections.abc import Mapping
from typing import Any, Self, override

import pymc as pm
from pymc.step_methods.compound import BlockedStep
from pymc.util import RandomGenerator
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Column

from pymc_nnsteps.graphs.search import model_or_context
from pymc_nnsteps.kernels.threads import keep_one_thread_in_workers, one_thread


class Step(BlockedStep):
    """A step method that moves all its variables at once, and computes in one thread."""

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
        """Let what a step computes use one thread."""
        super().__init_subclass__(**options)
        for name in {"__init__", "setup_chain", "step"} & vars(cls).keys():
            setattr(cls, name, one_thread(vars(cls)[name]))

    @override
    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare a chain: set the generator, and the threads of a process made for the chain."""
        keep_one_thread_in_workers()
        super().setup_chain(rng, tune, draws)


OTHERS = 69
"""Width in characters of PyMC's own columns, which take seven equal shares."""

BETWEEN = 3
"""Width in characters of the gap between two columns."""


def columns_that_fit(
    formats: Mapping[str, tuple[str, str]], beside: str | None = None
) -> list[TextColumn]:
    """Columns for statistics of a step, given title and format, the first ones before the others.

    PyMC divides the width of the terminal by fixed shares, and cuts what does not fit into one, its
    own times among it: on 80 characters there is room for one short column more. Another step may
    show a column with the title ``beside``, which comes first.
    """
    room = Console().width - OTHERS - (0 if beside is None else len(beside) + BETWEEN)
    columns = []
    for name, (title, form) in formats.items():
        room -= len(title) + BETWEEN
        if room >= 0:
            column = Column(title, width=len(title), no_wrap=True)
            columns.append(TextColumn(f"{{task.fields[{name}]{form}}}", table_column=column))
    return columns

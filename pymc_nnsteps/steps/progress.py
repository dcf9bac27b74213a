"""Statistics columns of the progress table, limited by the width of the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import TextColumn
from rich.table import Column

OTHERS = 69
"""Width in characters of PyMC's own columns, which take seven equal shares."""

BETWEEN = 3
"""Width in characters of the gap between two columns."""


def columns_that_fit(
    formats: Mapping[str, tuple[str, str]], beside: str | None = None
) -> list[TextColumn]:
    """Columns for statistics of a step, the first ones before the others.

    PyMC divides the width of the terminal by fixed shares, and cuts what does not fit into one,
    its own times among it: on 80 characters there is room for one short column more.

    Parameters
    ----------
    formats : mapping from str to (str, str)
        Title and format of each statistic.
    beside : str, optional
        Title of a column that another step may show, which comes first.

    Returns
    -------
    list of TextColumn
    """
    room = Console().width - OTHERS - (0 if beside is None else len(beside) + BETWEEN)
    columns = []
    for name, (title, form) in formats.items():
        room -= len(title) + BETWEEN
        if room >= 0:
            column = Column(title, width=len(title), no_wrap=True)
            columns.append(TextColumn(f"{{task.fields[{name}]{form}}}", table_column=column))
    return columns

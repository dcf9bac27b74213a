"""A progress bar for long computations."""

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic

from pymc.progress_bar import create_simple_progress

SECONDS = 3.0
"""Delay in seconds before the progress bar appears."""


def tracked(title: str, n_steps: int, progressbar: bool) -> Iterator[int]:
    """Count steps, with a progress bar once they have taken three seconds.

    Parameters
    ----------
    progressbar : bool
        False: never.
    """
    start = monotonic()
    with ExitStack() as stack:
        progress = task = None
        for step in range(n_steps):
            yield step
            if progress is not None:
                progress.update(task, completed=step + 1)
            elif progressbar and monotonic() - start > SECONDS:
                progress = create_simple_progress(progressbar=True)
                stack.enter_context(progress)
                task = progress.add_task(title, completed=step + 1, total=n_steps)

"""Progress of a load as a bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from shedder.cli.loading.loads import LoadTally
from shedder.cli.stderr import console
from shedder.queries.answers.control_characters import escaped


@contextmanager
def shown_progress(name: str, tally: LoadTally) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, if that is a terminal; it is told the share of the file that is read."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(escaped(name), total=1.0, rows=0)
        yield lambda share: bar.update(task, completed=share, rows=tally.rows)

"""The display of a run: a bar on a terminal while the run lasts, and tables at its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

BAR_HERTZ = 2.0  # Redraws; more of them would take time from the run.


class RunBar:
    """Progress of a part of a run: a bar on a terminal, else a line now and then."""

    def __init__(self, what: str, total: int, unit: str, every: int) -> None:
        """Begin at 0.

        total: number of units. every: units between two lines, where there is no terminal.
        """
        self._what, self._total, self._unit, self._every = what, total, unit, every
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(30),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[state]}", style="dim"),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=BAR_HERTZ,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(what, total=total, state="")

    def __enter__(self) -> RunBar:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, done: int, state: str) -> None:
        """Say how far it is. state: figures so far, in a few words."""
        self._bar.update(self._task, completed=done, state=state)
        if self._bar.disable and done % self._every == 0 and done < self._total:
            print(f"{self._what}: {done:,} of {self._total:,} {self._unit}, {state}", flush=True)


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]], *, remarks: bool = False) -> str:
    """Return an aligned table: the first column to the left, numbers to the right.

    remarks: the last column is text, and stands to the left, too.
    """
    lines = [head, *rows] if any(head) else list(rows)
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(width) if at == 0 or (remarks and at == len(head) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append(f"  {'   '.join(cells)}".rstrip())
    if any(head):
        texts.insert(1, f"  {'─' * (sum(widths) + 3 * (len(widths) - 1))}")
    return "\n".join(texts)

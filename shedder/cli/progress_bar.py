"""A bar for answers that take long, on a terminal and only while they do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from shedder.archive.tasks.progress import Progress as Work
from shedder.cli.stderr import console
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.control_characters import escaped
from shedder.queries.answers.database_api import Database

PATIENCE_S: Final = 0.5  # An answer that comes sooner shows no bar.


def executed(database: Database, statement: str, timeout_s: float | None = None) -> Answer:
    """The answer to a statement; while it takes long, how far it is, on stderr."""
    if not sys.stderr.isatty():
        return database.execute(statement, timeout_s=timeout_s)
    with Bar(console()) as bar:
        return database.execute(statement, timeout_s=timeout_s, watch=bar.follow)


@contextmanager
def executing(
    database: Database, statement: str, timeout_s: float | None = None
) -> Iterator[AnswerBatches]:
    """The answer to a statement, batch by batch; until the first one, how far it is, on stderr."""
    if not sys.stderr.isatty():
        batches = database.execute_batches(statement, timeout_s=timeout_s)
    else:
        with Bar(console()) as bar:
            batches = database.execute_batches(statement, timeout_s=timeout_s, watch=bar.follow)
    with batches:
        yield batches


@contextmanager
def shown(work: Work) -> Iterator[None]:
    """While a piece of work takes long, how far it is, on stderr."""
    if not sys.stderr.isatty():
        yield
        return
    with Bar(console()) as bar:
        bar.follow(work)
        yield


class Bar(Progress):
    """A bar that reads pieces of work whenever it is drawn; the work need not report to it."""

    def __init__(self, console: Console, patience_s: float = PATIENCE_S) -> None:
        """Begin a bar that leaves nothing on the screen when its work is done.

        patience_s: time before the bar is shown.
        """
        self._works: dict[TaskID, Work] = {}
        self._shown_from = time.monotonic() + patience_s
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def follow(self, work: Work) -> None:
        """Show a piece of work that begins."""
        self._works[self.add_task(escaped(work.what), total=None)] = work

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is drawn now."""
        if time.monotonic() < self._shown_from:
            return
        for task, work in list(self._works.items()):
            total = work.total or None
            self.update(task, description=escaped(work.what), total=total, completed=work.done)
        yield from super().get_renderables()

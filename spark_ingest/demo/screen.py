"""What the tour shows: the replay as it runs, and approximate beside exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shedder.queries.answer import Answer
from shedder.queries.printing import shown
from spark_ingest.demo.questions import Standing

_ROWS_SHOWN = 2
_ITEMS_SHOWN = 2
_LINES_EVERY = 0.1  # of the rows: how often a pipe gets a line


class ReplayScreen:
    """A progress bar over a table of standing queries; a line now and then when no terminal."""

    def __init__(self, console: Console, standing: Sequence[Standing], rows: int) -> None:
        self._console = console
        self._standing = standing
        self._rows = rows
        self._answers: dict[str, Answer] = {}
        self._note = Text("")
        self._lines = 0
        self._progress = Progress(
            TextColumn("[bold]replaying 2013"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("flights"),
            TimeElapsedColumn(),
            expand=True,
        )
        self._task = self._progress.add_task("", total=rows)
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._picture)

    def __enter__(self) -> ReplayScreen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def advance(self, rows: int) -> None:
        """So many flights are durable."""
        self._progress.update(self._task, completed=rows)
        if not self._console.is_terminal and rows >= self._lines * _LINES_EVERY * self._rows:
            self._lines += 1
            self._console.print(f"  {rows:>9,} of {self._rows:,} flights")

    def show(self, answers: Mapping[str, Answer]) -> None:
        """The latest answers."""
        self._answers.update(answers)

    def note(self, text: str, style: str = "yellow") -> None:
        """Something happened."""
        self._note = Text(text, style)
        self._console.print(Text("  " + text, style))

    def _picture(self) -> RenderableType:
        return Group(self._progress, self._table())

    def _table(self) -> Table:
        table = Table(box=None, expand=True, header_style="dim", padding=(0, 1))
        table.add_column("standing query", no_wrap=True)
        table.add_column("up to", no_wrap=True)
        table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
        table.add_column("target", no_wrap=True)
        for one in self._standing:
            answer = self._answers.get(one.name)
            if answer is None:
                table.add_row(one.name, "", Text("…", "dim"), "")
            else:
                table.add_row(one.name, day(answer), brief(answer), met(answer))
        return table


def day(answer: Answer) -> str:
    """The day an answer reaches to."""
    at = answer.end_us if answer.end_us is not None else answer.watermark_us
    return "" if at is None else f"{datetime.fromtimestamp(at / 1e6, UTC):%d %b}"


def met(answer: Answer) -> Text:
    """Whether the targets are met."""
    flag = answer.met
    if flag is None:
        return Text("–", "dim")
    return Text("met", "green") if flag else Text("wider", "yellow")


def brief(answer: Answer) -> str:
    """An answer on one line: the first groups, each value with its half width."""
    rows = answer.rows()
    parts = [
        " ".join(_cell(answer, row, name) for name in answer.outputs) for row in rows[:_ROWS_SHOWN]
    ]
    more = f" … {len(rows) - _ROWS_SHOWN} more" if len(rows) > _ROWS_SHOWN else ""
    return " · ".join(parts) + more


def beside_exact(title: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table of approximate values beside exact ones.

    Args:
      title: above it.
      rows: with tells, what, approximate, exact, off, held (bool) and source.
    """
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    table.add_column("question", ratio=3)
    table.add_column("of", no_wrap=True)
    for name in ("answered", "exact", "off by"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held", justify="center")
    table.add_column("source", style="dim", no_wrap=True)
    last = None
    for row in rows:
        mark = Text("✓", "green") if row["held"] else Text("✗", "bold red")
        tells = "" if row["tells"] == last else row["tells"]
        last = row["tells"]
        cells = (row["what"], row["approximate"], row["exact"], row["off"])
        table.add_row(tells, *cells, mark, row["source"])
    return table


def _cell(answer: Answer, row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if name not in answer.approximate:
        return str(value)
    if isinstance(value, list):
        items = [f"{item['value']} {_item(item, answer)}" for item in value[:_ITEMS_SHOWN]]
        return ", ".join(items)
    return shown(value, row.get(name + "_low"), row.get(name + "_high"), row[name + "_bound"], 1.0)


def _item(item: Mapping[str, Any], answer: Answer) -> str:
    kind = "exact" if item["low"] == item["high"] else "interval"
    return shown(item["count"], item["low"], item["high"], kind, max(answer.confidence, 1.0))

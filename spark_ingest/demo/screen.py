"""Screen of the tour: the running replay, and approximate answers beside exact ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shedder.queries.answers.answer import Answer
from shedder.queries.answers.text_format import shown
from spark_ingest.demo.questions import DemoQuery

_ROWS_SHOWN = 2
_ITEMS_SHOWN = 2
_WHAT_MAX, _NUMBER_MAX = 22, 30  # columns of a terminal
_LINES_EVERY = 0.1  # of the rows: how often a pipe gets a line


class ReplayScreen:
    """A progress bar over a table of standing queries; a line now and then when no terminal."""

    def __init__(self, console: Console, standing: Sequence[DemoQuery], rows: int) -> None:
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
    """Render whether the targets are met."""
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


def beside_exact(title: str, rows: Iterable[Mapping[str, Any]]) -> Group:
    """Approximate values beside exact ones, under the question that they answer; 80 columns do.

    Args:
      title: above it.
      rows: with tells, what, approximate, exact, off, held (bool) and source.
    """
    rows = list(rows)
    names = ("what", "approximate", "exact", "off")
    heads = ("", "answered", "exact", "off by")
    widths = [
        max([len(head), *(len(str(row[name])) for row in rows)])
        for name, head in zip(names, heads, strict=True)
    ]
    parts: list[RenderableType] = [Text(title, "bold"), _line(heads, widths, Text("held"), "dim")]
    last = None
    for row in rows:
        question = (row["tells"], row["source"])
        if question != last:
            parts.append(Text.assemble(row["tells"], (f" · {row['source']}", "dim")))
            last = question
        mark = Text("✓", "green") if row["held"] else Text("✗", "bold red")
        parts.append(_line([str(row[name]) for name in names], widths, mark, ""))
    return Group(*parts)


def _line(cells: Sequence[str], widths: Sequence[int], mark: Text, style: str) -> Table:
    """One line of cells, the first to the left; texts that do not fit end with an ellipsis."""
    line = Table.grid(padding=(0, 1))
    line.add_column(width=1)
    line.add_column(width=min(widths[0], _WHAT_MAX), no_wrap=True)
    for width in widths[1:]:
        line.add_column(width=min(width, _NUMBER_MAX), justify="right", no_wrap=True)
    line.add_column(width=4, justify="center")
    line.add_row("", *cells, mark, style=style)
    return line


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

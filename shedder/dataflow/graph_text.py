"""Graph of operators as text: a tree with the result on top, and a line of numbers for each.

An operator reads the line below it; one with two inputs reads both branches below it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.update_patterns import UpdatePattern

_COLUMNS = 79
_TEXT_MIN = 28
_NAMES_MAX = 3  # Of other queries that read an operator.
_HEADS = ("rows leave", "rows", "bytes", "ns/row")
_LABELS = {
    UpdatePattern.MONOTONIC: "MONOTONIC",
    UpdatePattern.WEAKEST: "WKS",
    UpdatePattern.WEAK: "WK",
    UpdatePattern.STRICT: "STR",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """indent: in front of the first line of the text. hanging: in front of its further lines.

    at: place of the operator; None: it has a line above.
    """

    indent: str
    hanging: str
    text: str
    cells: tuple[str, ...]
    at: int | None = None


def label_text(pattern: UpdatePattern | None) -> str:
    """Return the short name of an update pattern (Golab 2006, section 3.2); "" of none."""
    return "" if pattern is None else _LABELS[pattern]


def graph_text(operators: Sequence[OperatorFacts]) -> list[str]:
    """Return the lines of a graph, with a heading.

    An operator that several others read has a number, and stands where it is read first.

    operators: each after its inputs, the result last.
    """
    lines = _lines(operators)
    rows = [_HEADS, *(line.cells for line in lines if line.cells)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    longest = max(len(line.indent) + len(line.text) for line in lines)
    room = max(_TEXT_MIN, _COLUMNS - sum(widths) - 2 * len(widths))
    width = min(longest, room)
    printed = [_row("operator", _HEADS, width, widths)]
    for line in lines:
        indent, text = line.indent, line.text
        pieces = textwrap.wrap(text, max(12, width - len(indent)), subsequent_indent="  ")
        printed.append(_row(indent + pieces[0], line.cells, width, widths))
        printed += [f"{line.hanging}{piece}" for piece in pieces[1:]]
    return printed


def graph_outline(
    operators: Sequence[OperatorFacts], expected: Sequence[int | str] = ()
) -> list[str]:
    """Return the lines of a graph that has read nothing: operators, and when rows leave.

    expected: bytes that each operator will hold, or why they are not known.
    """
    lines = []
    for line in _lines(operators):
        facts = [label for label in line.cells[:1] if label]
        if line.at is not None and expected:
            size = expected[line.at]
            facts.append(size if isinstance(size, str) else f"{size:,} bytes")
        text = f"{line.indent}{line.text}"
        lines.append(f"{text}: {', '.join(facts)}" if facts else text)
    return lines


def _lines(operators: Sequence[OperatorFacts]) -> list[_Line]:
    readers = Counter(at for each in operators for at in each.inputs)
    shared = sorted(at for at, count in readers.items() if count > 1)
    numbers = {at: number for number, at in enumerate(shared, 1)}
    return list(_tree(operators, len(operators) - 1, numbers, set(), "", ""))


def _tree(
    operators: Sequence[OperatorFacts],
    at: int,
    numbers: dict[int, int],
    shown: set[int],
    first: str,
    later: str,
) -> Iterator[_Line]:
    """The lines of an operator and of all below it.

    first, later: in front of the operator, and of what is below it.
    """
    facts = operators[at]
    number = f"({numbers[at]}) " if at in numbers else ""
    if at in shown:
        yield _Line(first, later, f"{number}as above", ())
        return
    shown.add(at)
    forks = len(facts.inputs) > 1
    text = number + facts.text + _sharers("also in", facts.others)
    if facts.kept_text:
        text += f", rows kept{_sharers('also for', facts.keepers)} by {facts.kept_text}"
    yield _Line(first, f"{later}│ " if forks else later, text, _cells(facts), at)
    for place, below in enumerate(facts.inputs, 1):
        if not forks:
            yield from _tree(operators, below, numbers, shown, later, later)
        elif place < len(facts.inputs):
            yield from _tree(operators, below, numbers, shown, f"{later}├ ", f"{later}│ ")
        else:
            yield from _tree(operators, below, numbers, shown, f"{later}└ ", f"{later}  ")


def _sharers(what: str, names: Sequence[str]) -> str:
    """Return which other queries read an operator, or its rows; many are counted."""
    if not names:
        return ""
    more = len(names) - _NAMES_MAX
    shown = list(names[:_NAMES_MAX]) + ([f"{more:,} more"] if more > 0 else [])
    return f" [{what} {', '.join(shown)}]"


def _cells(facts: OperatorFacts) -> tuple[str, ...]:
    ns = facts.ns_per_row
    return (
        label_text(facts.pattern),
        f"{facts.rows_out:,}",
        f"{facts.size_bytes:,}",
        "" if ns is None else f"{ns:,.0f}",
    )


def _row(text: str, cells: Sequence[str], width: int, widths: Sequence[int]) -> str:
    label, *numbers = cells or [""]
    aligned = [label.ljust(widths[0])]
    aligned += [cell.rjust(room) for cell, room in zip(numbers, widths[1:], strict=False)]
    return "  ".join([text.ljust(width), *aligned]).rstrip()

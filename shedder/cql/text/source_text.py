"""The text of a statement, and errors that point into it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from shedder.errors import BadQuery

_EXCERPT_CHARS = 60  # shown on each side of the place that is wrong


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text of CQL. Offsets are in characters from 0, lines and columns from 1."""

    text: str

    def error(self, message: str, start: int | None) -> BadQuery:
        """A BadQuery that says where, and shows the place."""
        if start is None:
            return BadQuery(message)
        start = min(max(start, 0), len(self.text))
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        line_end = len(self.text) if line_end < 0 else line_end
        line = self.text.count("\n", 0, start) + 1
        column = start - line_start + 1
        first = max(line_start, start - _EXCERPT_CHARS)
        excerpt = self.text[first : min(line_end, start + _EXCERPT_CHARS)].replace("\t", " ")
        pointer = " " * (start - first) + "^"
        return BadQuery(f"line {line}, column {column}: {message}\n  {excerpt}\n  {pointer}")

    def wrong(self, node: exp.Expr, message: str) -> BadQuery:
        """A BadQuery at a node of the syntax tree."""
        return self.error(message, start_of(node))

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column."""
        at = 0
        for _ in range(line - 1):
            following = self.text.find("\n", at)
            if following < 0:
                break
            at = following + 1
        return at + max(column - 1, 0)


def start_of(node: exp.Expr) -> int | None:
    """The offset of the first token below a node that kept its place, if any did."""
    starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
    return min(starts) if starts else None

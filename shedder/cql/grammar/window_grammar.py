"""The grammar of windows and durations: what stands in brackets behind a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawCollapse, RawDuration, RawNumber, RawWindow
from shedder.cql.grammar.pure_parser import pure_parser
from shedder.cql.text.durations import UNITS_US
from shedder.cql.text.unsupported import later

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser


class WindowsParser(Parser):
    """What CqlParser needs to read windows; the words below are its own."""

    if TYPE_CHECKING:

        def _number(self) -> RawNumber: ...

        def _parse_unary_literal(self) -> exp.Expr: ...

    def _window(self) -> RawWindow:
        start = self._curr.start
        if self._match_text_seq("RANGE", "UNBOUNDED"):
            window = RawWindow(start=start)
        elif self._match_text_seq("RANGE"):
            length = self._duration()
            slide = self._duration() if self._match_text_seq("SLIDE") else None
            collapse = self._collapse() if self._match_text_seq("COLLAPSE") else None
            window = RawWindow(length=length, slide=slide, collapse=collapse, start=start)
        elif self._match(TokenType.FROM):
            begin = self._parse_bitwise()
            end = self._parse_bitwise() if self._match_text_seq("TO") else None
            window = RawWindow(begin=begin, end=end, start=start)
        elif self._match_text_seq("ROWS"):
            raise later("[ROWS n] windows")
        elif self._match(TokenType.PARTITION_BY):
            raise later("[PARTITION BY ... ROWS n] windows")
        elif self._match_text_seq("NOW"):
            raise later("[NOW] windows")
        else:
            self.raise_error("expected RANGE, FROM, ROWS, PARTITION BY or NOW")
        if not self._match(TokenType.R_BRACKET):
            self.raise_error("expected ] at the end of the window")
        return window

    def _collapse(self) -> RawCollapse:
        if not self._match_text_seq("BY"):
            return RawCollapse()
        rate = self._number()
        if not self._match_text_seq("AFTER"):
            self.raise_error("expected AFTER and how many panes stay, as in COLLAPSE BY 8 AFTER 64")
        return RawCollapse(rate, self._number())

    def _duration(self) -> RawDuration:
        start = self._curr.start
        self._match(TokenType.INTERVAL)
        amount = self._parse_unary_literal()
        unit = None
        if self._curr and self._curr.text.upper() in UNITS_US:
            unit = self._curr.text.upper()
            self._advance()
        return RawDuration(amount, unit, start)

    def _parse_interval(
        self,
        require_interval: bool = True,
        parse_function_unit: bool = True,  # noqa: ARG002
    ) -> exp.Interval | None:
        """INTERVAL in an expression, in the spellings of windows."""
        if not require_interval or not self._match(TokenType.INTERVAL, advance=False):
            return None
        raw = self._duration()
        unit = None if raw.unit is None else exp.Var(this=raw.unit)
        node = self.expression(exp.Interval(this=raw.amount, unit=unit))
        node.meta["start"] = raw.start
        return node

"""The grammar of windows and durations: what stands in brackets behind a stream."""

from __future__ import annotations

from dataclasses import replace
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
        partition = self._partition()
        if partition or self._match_text_seq("ROWS"):
            window = self._rows_window(partition)
        elif self._match_text_seq("RANGE", "UNBOUNDED"):
            window = RawWindow()
        elif self._match_texts(("RANGE", "WINDOW")):
            length = self._duration()
            self._match_text_seq("PRECEDING")
            slide = self._duration() if self._match_text_seq("SLIDE") else None
            collapse = self._collapse() if self._match_text_seq("COLLAPSE") else None
            window = RawWindow(length=length, slide=slide, collapse=collapse)
        elif self._match(TokenType.FROM):
            begin = self._parse_bitwise()
            end = self._parse_bitwise() if self._match_text_seq("TO") else None
            slide = self._duration() if self._match_text_seq("SLIDE") else None
            window = RawWindow(begin=begin, end=end, slide=slide)
        elif self._match_text_seq("NOW"):
            window = RawWindow(is_now=True)
        else:
            self.raise_error("expected RANGE, FROM, ROWS, PARTITION BY or NOW")
        self._match_text_seq("PRECEDING")
        if self._match_text_seq("INTERNAL"):
            raise later("INTERNAL windows")
        condition = self._parse_disjunction() if self._match(TokenType.WHERE) else None
        if condition is None and self._prev.token_type is TokenType.WHERE:
            self.raise_error("expected a condition after WHERE")
        if not self._match(TokenType.R_BRACKET):
            self.raise_error("expected ] at the end of the window")
        return replace(window, condition=condition, start=start)

    def _partition(self) -> tuple[exp.Expr, ...]:
        """PARTITION BY and columns, or the column of [WINDOW column ROWS n]."""
        if self._match(TokenType.PARTITION_BY):
            columns = tuple(self._parse_csv(self._parse_column))
            if not columns or not self._match_text_seq("ROWS"):
                self.raise_error("expected columns, ROWS and a number after PARTITION BY")
            return columns
        index = self._index
        self._match_text_seq("WINDOW")
        if self._curr and self._curr.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            column = self._parse_column()
            if column is not None and self._match_text_seq("ROWS"):
                return (column,)
        self._retreat(index)
        return ()

    def _rows_window(self, partition: tuple[exp.Expr, ...]) -> RawWindow:
        rows = self._number()
        self._match_text_seq("PRECEDING")
        slide = self._number() if self._match_text_seq("SLIDE") else None
        return RawWindow(rows=rows, slide_rows=slide, partition=partition)

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

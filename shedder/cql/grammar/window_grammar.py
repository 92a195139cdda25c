"""The grammar of windows and durations: what stands in brackets behind a stream."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawCollapse, RawDuration, RawWindow
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import expect, fail, read_literal, read_number
from shedder.cql.text.durations import UNITS_US
from shedder.cql.text.unsupported import later


def read_window(parser: Parser) -> RawWindow:
    """Read a window up to its closing bracket."""
    start = parser._curr.start
    partition = _partition(parser)
    if partition or parser._match_text_seq("ROWS"):
        window = _rows_window(parser, partition)
    elif parser._match_text_seq("RANGE", "UNBOUNDED"):
        window = RawWindow()
    elif parser._match_texts(("RANGE", "WINDOW")):
        length = read_duration(parser)
        parser._match_text_seq("PRECEDING")
        slide = read_duration(parser) if parser._match_text_seq("SLIDE") else None
        collapse = _collapse(parser) if parser._match_text_seq("COLLAPSE") else None
        window = RawWindow(length=length, slide=slide, collapse=collapse)
    elif parser._match(TokenType.FROM):
        begin = parser._parse_bitwise()
        end = parser._parse_bitwise() if parser._match_text_seq("TO") else None
        slide = read_duration(parser) if parser._match_text_seq("SLIDE") else None
        window = RawWindow(begin=begin, end=end, slide=slide)
    elif parser._match_text_seq("NOW"):
        window = RawWindow(is_now=True)
    else:
        fail(parser, "expected RANGE, FROM, ROWS, PARTITION BY or NOW")
    parser._match_text_seq("PRECEDING")
    if parser._match_text_seq("INTERNAL"):
        raise later("INTERNAL windows (ISTREAM or RSTREAM in the subquery says the same)")
    condition = parser._parse_disjunction() if parser._match(TokenType.WHERE) else None
    if condition is None and parser._prev.token_type is TokenType.WHERE:
        fail(parser, "expected a condition after WHERE")
    expect(parser, TokenType.R_BRACKET, "] at the end of the window")
    return replace(window, condition=condition, start=start)


def _partition(parser: Parser) -> tuple[exp.Expr, ...]:
    """Read PARTITION BY and columns, or the column of [WINDOW column ROWS n]."""
    if parser._match(TokenType.PARTITION_BY):
        columns = tuple(parser._parse_csv(parser._parse_column))
        if not columns or not parser._match_text_seq("ROWS"):
            fail(parser, "expected columns, ROWS and a number after PARTITION BY")
        return columns
    index = parser._index
    parser._match_text_seq("WINDOW")
    if parser._curr and parser._curr.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        column = parser._parse_column()
        if column is not None and parser._match_text_seq("ROWS"):
            return (column,)
    parser._retreat(index)
    return ()


def _rows_window(parser: Parser, partition: tuple[exp.Expr, ...]) -> RawWindow:
    rows = read_number(parser)
    parser._match_text_seq("PRECEDING")
    slide = read_number(parser) if parser._match_text_seq("SLIDE") else None
    return RawWindow(rows=rows, slide_rows=slide, partition=partition)


def _collapse(parser: Parser) -> RawCollapse:
    if not parser._match_text_seq("BY"):
        return RawCollapse()
    rate = read_number(parser)
    if not parser._match_text_seq("AFTER"):
        fail(parser, "expected AFTER and how many panes stay, as in COLLAPSE BY 8 AFTER 64")
    return RawCollapse(rate, read_number(parser))


def read_duration(parser: Parser) -> RawDuration:
    """Read an amount and its unit, perhaps after INTERVAL."""
    start = parser._curr.start
    parser._match(TokenType.INTERVAL)
    amount = read_literal(parser)
    unit = None
    if parser._curr and parser._curr.text.upper() in UNITS_US:
        unit = parser._curr.text.upper()
        parser._advance()
    return RawDuration(amount, unit, start)


def read_retention(parser: Parser) -> RawDuration | None:
    """Read what follows RETAIN; None: for ever."""
    return None if parser._match_text_seq("FOREVER") else read_duration(parser)


def read_interval(parser: Parser) -> exp.Interval | None:
    """Read INTERVAL in an expression, in the spellings of windows; None: it does not follow."""
    if not parser._match(TokenType.INTERVAL, advance=False):
        return None
    raw = read_duration(parser)
    unit = None if raw.unit is None else exp.Var(this=raw.unit)
    node = parser.expression(exp.Interval(this=raw.amount, unit=unit))
    node.meta["start"] = raw.start
    return node

"""The grammar of CREATE STREAM, and of the columns that streams and tables have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.layout_grammar import read_layout
from shedder.cql.grammar.overload_grammar import read_on_overload
from shedder.cql.grammar.parse_nodes import RawColumn, RawCreateStream
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.window_grammar import read_duration, read_retention
from shedder.cql.grammar.word_grammar import (
    dispatch,
    expect,
    fail,
    read_column_names,
    read_identifier,
    read_name,
)
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import THINS


def read_create_stream(parser: Parser) -> RawCreateStream:
    """Read the rest of CREATE STREAM [IF NOT EXISTS] name (columns) clauses."""
    start = parser._prev.start
    if_not_exists = bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = read_identifier(parser, "the name of the stream")
    expect(parser, TokenType.L_PAREN, "( and the columns")
    columns = [read_column(parser)]
    while parser._match(TokenType.COMMA):
        columns.append(read_column(parser))
    expect(parser, TokenType.R_PAREN, ", or )")
    said: dict[str, Any] = {}
    foreign_keys: list[ForeignKey] = []
    while parser._curr:
        if parser._match_text_seq("FOREIGN", "KEY"):
            foreign_keys.append(_foreign_key(parser))
            continue
        clause = dispatch(parser, _STREAM_CLAUSES)
        if clause is None or clause[0] in said:
            fail(
                parser,
                "expected TIMESTAMP BY, LATENESS, RETAIN, ARCHIVE or ON OVERLOAD, each once, or "
                "FOREIGN KEY",
            )
        said[clause[0]] = clause[1]
    return RawCreateStream(
        name=name,
        columns=tuple(columns),
        time_column=said.get("TIMESTAMP BY"),
        lateness=said.get("LATENESS"),
        retain=said.get("RETAIN"),
        layout=said.get("ARCHIVE"),
        on_overload=said.get("ON OVERLOAD", THINS),
        foreign_keys=tuple(foreign_keys),
        if_not_exists=if_not_exists,
        start=start,
    )


def read_column(parser: Parser) -> RawColumn:
    """Read a column's name, its type and NULL or NOT NULL."""
    name = read_identifier(parser, "the name of a column")
    kind = parser._parse_types(check_func=False, allow_identifiers=False)
    if not isinstance(kind, exp.DataType):
        fail(
            parser, "expected a type: BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP or DATE"
        )
    nullable = not parser._match_text_seq("NOT", "NULL")
    if nullable:
        parser._match(TokenType.NULL)
    return RawColumn(name, kind, nullable)


def _foreign_key(parser: Parser) -> ForeignKey:
    """Read what follows FOREIGN KEY; whether there are such columns is looked at later."""
    expect(parser, TokenType.L_PAREN, "( and columns of this stream")
    columns = read_column_names(parser)
    if not parser._match_text_seq("REFERENCES"):
        fail(parser, "expected REFERENCES and another stream")
    relation = read_name(parser, "the name of the other stream")
    expect(parser, TokenType.L_PAREN, "( and columns of the other stream")
    referenced = read_column_names(parser)
    if not parser._match_text_seq("WITHIN"):
        fail(parser, "expected WITHIN k TUPLES, such as WITHIN 0 TUPLES")
    within = parser._prev.text if parser._match(TokenType.NUMBER) else ""
    if not within.isdecimal() or not parser._match_text_seq("TUPLES"):
        fail(parser, "expected a whole number and TUPLES, such as WITHIN 0 TUPLES")
    return ForeignKey(columns, relation, referenced, int(within))


def _time_column(parser: Parser) -> exp.Identifier:
    return read_identifier(parser, "the event-time column")


_STREAM_CLAUSES: dict[str, Callable[[Parser], Any]] = {
    "TIMESTAMP BY": _time_column,
    "LATENESS": read_duration,
    "RETAIN": read_retention,
    "ARCHIVE": read_layout,
    "ON OVERLOAD": read_on_overload,
}

"""The grammar of tables: CREATE TABLE and UPDATE."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawColumn
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.stream_grammar import read_column
from shedder.cql.grammar.word_grammar import expect, fail, read_column_names, read_name


@dataclass(frozen=True, slots=True)
class RawCreateTable:
    """CREATE TABLE. key: names in each PRIMARY KEY that was written."""

    name: str
    columns: tuple[RawColumn, ...]
    keys: tuple[tuple[str, ...], ...]
    retroactive: bool
    if_not_exists: bool
    start: int


@dataclass(frozen=True, slots=True)
class RawUpdate:
    """UPDATE: names of columns, each with its new value."""

    table: str
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None


def read_create_table(parser: Parser) -> RawCreateTable:
    """Read the rest of CREATE TABLE [IF NOT EXISTS] name (...) [RETROACTIVE]."""
    start = parser._prev.start
    if_not_exists = bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = read_name(parser, "the name of the table")
    expect(parser, TokenType.L_PAREN, "( and the columns")
    columns: list[RawColumn] = []
    keys: list[tuple[str, ...]] = []
    while True:
        if parser._match_text_seq("PRIMARY", "KEY"):
            expect(parser, TokenType.L_PAREN, "( and the columns of the key")
            keys.append(read_column_names(parser))
        else:
            columns.append(read_column(parser))
            if parser._match_text_seq("PRIMARY", "KEY"):
                keys.append((str(columns[-1].name.name),))
        if not parser._match(TokenType.COMMA):
            break
    expect(parser, TokenType.R_PAREN, "PRIMARY KEY, a comma or )")
    retroactive = bool(parser._match_text_seq("RETROACTIVE"))
    return RawCreateTable(name, tuple(columns), tuple(keys), retroactive, if_not_exists, start)


def read_update(parser: Parser) -> RawUpdate:
    """Read the rest of UPDATE table SET column = value, ... [WHERE condition]."""
    table = read_name(parser, "the name of a table")
    if not parser._match_text_seq("SET"):
        fail(parser, "expected SET, a column, = and its value")
    assignments = [_assignment(parser)]
    while parser._match(TokenType.COMMA):
        assignments.append(_assignment(parser))
    where = parser._parse_where()
    return RawUpdate(table, tuple(assignments), None if where is None else where.this)


def _assignment(parser: Parser) -> tuple[str, exp.Expr]:
    name = read_name(parser, "the name of a column")
    expect(parser, TokenType.EQ, f"= and the value of {name}")
    value = parser._parse_disjunction()
    if value is None:
        fail(parser, f"expected the value of {name}")
    return name, value

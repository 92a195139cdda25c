"""The grammar of derived streams: CREATE VIEW, and CREATE QUERY ... AS INSERT INTO."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.answer_grammar import read_query
from shedder.cql.grammar.parse_nodes import RawDuration, RawRelational, RawSelect
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.query_grammar import begins_query
from shedder.cql.grammar.window_grammar import read_duration, read_retention
from shedder.cql.grammar.word_grammar import expect, fail, read_column_names, read_name


@dataclass(frozen=True, slots=True)
class RawCreateView:
    """CREATE VIEW. start: of its query."""

    name: str
    retain: RawDuration | None
    select: RawSelect | RawRelational
    if_not_exists: bool
    start: int


@dataclass(frozen=True, slots=True)
class RawCreateInsert:
    """CREATE QUERY ... AS INSERT INTO."""

    name: str
    stream: str
    columns: tuple[str, ...] | None
    select: RawSelect | RawRelational
    if_not_exists: bool
    start: int


def read_create_view(parser: Parser) -> RawCreateView:
    """Read the rest of CREATE VIEW [IF NOT EXISTS] name [RETAIN i | RANGE i] AS SELECT ..."""
    if_not_exists = bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = read_name(parser, "the name of the view")
    retain = _retained(parser)
    expect(parser, TokenType.ALIAS, "RETAIN and an interval, or AS and a SELECT")
    start, select = _selected(parser)
    return RawCreateView(name, retain, select, if_not_exists, start)


def _retained(parser: Parser) -> RawDuration | None:
    """Read RETAIN i, RETAIN FOREVER, RANGE i or [RANGE i]; None: for ever."""
    in_brackets = bool(parser._match(TokenType.L_BRACKET))
    retain = None
    if not in_brackets and parser._match_text_seq("RETAIN"):
        retain = read_retention(parser)
    elif parser._match_text_seq("RANGE"):
        retain = read_duration(parser)
    elif in_brackets:
        fail(parser, "expected RANGE and an interval")
    if in_brackets and not parser._match(TokenType.R_BRACKET):
        fail(parser, "expected ]")
    return retain


def read_create_insert(parser: Parser, name: str, *, if_not_exists: bool) -> RawCreateInsert:
    """Read the rest of CREATE QUERY name AS INSERT INTO stream [(columns)] SELECT ..."""
    if not parser._match_text_seq("INTO"):
        fail(parser, "expected INTO and the name of a stream")
    stream = read_name(parser, "the name of a stream")
    columns = None
    if not begins_query(parser) and parser._match(TokenType.L_PAREN):
        columns = read_column_names(parser)
    start, select = _selected(parser)
    return RawCreateInsert(name, stream, columns, select, if_not_exists, start)


def _selected(parser: Parser) -> tuple[int, RawSelect | RawRelational]:
    if not begins_query(parser):
        fail(parser, "expected a SELECT")
    start = parser._curr.start
    return start, read_query(parser)

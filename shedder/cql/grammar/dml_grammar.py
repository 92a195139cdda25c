"""The grammar of INSERT and DELETE."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.answer_grammar import read_select
from shedder.cql.grammar.parse_nodes import RawDelete, RawInsert, RawSelect
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import (
    expect,
    fail,
    read_column_names,
    read_name,
    read_text,
)
from shedder.cql.text.unsupported import later


def read_insert(parser: Parser) -> RawInsert:
    """Read the rest of INSERT [OR REPLACE] INTO s [(columns)] VALUES | SELECT ... [PRODUCER p]."""
    replaces = bool(parser._match_text_seq("OR", "REPLACE"))
    if not parser._match_text_seq("INTO"):
        fail(parser, "expected INTO and the name of a stream")
    stream = read_name(parser, "the name of a stream")
    columns = read_column_names(parser) if parser._match(TokenType.L_PAREN) else None
    if parser._match_texts(("VALUES",)):
        rows = _rows(parser)
        return RawInsert(stream, columns, None, False, rows, _producer(parser), replaces)
    if not parser._match(TokenType.SELECT, advance=False):
        fail(parser, "expected VALUES or SELECT")
    select = read_select(parser)
    items = select.select.expressions
    everything = len(items) == 1 and isinstance(items[0], exp.Star)
    if everything:  # Which columns there are is known when the stream is looked at.
        select.select.set("expressions", [exp.Literal.number(1)])
    return RawInsert(stream, columns, select, everything, (), _producer(parser), replaces)


def read_delete(parser: Parser) -> RawDelete:
    """Read the rest of DELETE FROM stream [window] [WHERE condition]."""
    expect(parser, TokenType.FROM, "FROM and the name of a stream")
    select = exp.Select(expressions=[exp.Literal.number(1)])
    select.set("from_", exp.From(this=parser._parse_table()))
    select.set("where", parser._parse_where())
    return RawDelete(RawSelect(select, None, None, None, None, None))


def _rows(parser: Parser) -> tuple[tuple[exp.Expr, ...], ...]:
    rows = []
    while True:
        expect(parser, TokenType.L_PAREN, "( and the values of a row")
        rows.append(tuple(parser._parse_csv(parser._parse_bitwise)))
        expect(parser, TokenType.R_PAREN, ", or )")
        if not parser._match(TokenType.COMMA):
            return tuple(rows)


def _producer(parser: Parser) -> str | None:
    if parser._match_text_seq("PRODUCER"):
        return read_text(parser, "the name of a producer in quotes")
    if parser._match_text_seq("ON") or parser._match_text_seq("RETURNING"):
        raise later(f"{parser._prev.text.upper()} of an INSERT")
    return None

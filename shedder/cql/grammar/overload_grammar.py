"""Parsers of the ON OVERLOAD clauses of a stream and of a row query."""

from __future__ import annotations

from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import fail, read_name
from shedder.cql.statements.overload_policy import POLICIES, OnOverload, Policy


def read_on_overload(parser: Parser) -> OnOverload:
    """Read what follows ON OVERLOAD; whether there is such a column is looked at later.

    Raises:
      sqlglot's ParseError: something else stands there.
    """
    for word in (Policy.THIN, Policy.BLOCK):
        if parser._match_text_seq(word.value):
            return OnOverload(word)
    if not parser._match_text_seq("DROP"):
        fail(parser, f"expected {POLICIES}")
    if parser._match_text_seq("OLDEST"):
        return OnOverload(Policy.DROP_OLDEST)
    if parser._match_text_seq("LEAST"):
        return OnOverload(Policy.DROP_LEAST, read_name(parser, "a column of numbers"))
    return OnOverload(Policy.DROP)


def read_rows_on_overload(parser: Parser) -> bool:
    """Read what follows ON OVERLOAD in a row query; return whether it keeps fewer rows.

    Raises:
      sqlglot's ParseError: something else stands there.
    """
    if not parser._match_texts(("FAIL", "SHED")):
        fail(parser, "expected FAIL or SHED")
    return parser._prev.text.upper() == "SHED"

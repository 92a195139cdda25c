"""ARCHIVE and what may follow it: plain, eager(0.2, 0.8), lazy, hybrid(blocks=64)."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawLayout, RawNumber
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import expect, read_name, read_number
from shedder.cql.statements.archive_layout import LAYOUTS


def read_layout(parser: Parser) -> RawLayout:
    """Read a layout's name and its arguments.

    Raises:
      sqlglot's ParseError: something else stands there.
    """
    start = parser._curr.start if parser._curr else 0
    name = read_name(parser, f"a layout: {LAYOUTS}")
    arguments: list[tuple[str | None, RawNumber]] = []
    if parser._match(TokenType.L_PAREN):
        arguments.append(_argument(parser))
        while parser._match(TokenType.COMMA):
            arguments.append(_argument(parser))
        expect(parser, TokenType.R_PAREN, ", or )")
    return RawLayout(name, tuple(arguments), start)


def _argument(parser: Parser) -> tuple[str | None, RawNumber]:
    if parser._curr and parser._curr.token_type is TokenType.VAR:
        name = read_name(parser, "blocks").lower()
        expect(parser, TokenType.EQ, f"= after {name}")
        return name, read_number(parser)
    return None, read_number(parser)

"""ARCHIVE and what may follow it: plain, eager(0.2, 0.8), lazy, hybrid(blocks=64)."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.clause_parser import ClauseParser
from shedder.cql.grammar.parse_nodes import RawLayout, RawNumber
from shedder.cql.statements.archive_layout import LAYOUTS


def read_layout(parser: ClauseParser) -> RawLayout:
    """Read a layout's name and its arguments.

    Raises:
      sqlglot's ParseError: something else stands there.
    """
    start = parser._curr.start if parser._curr else 0
    name = parser._name(f"a layout: {LAYOUTS}")
    arguments: list[tuple[str | None, RawNumber]] = []
    if parser._match(TokenType.L_PAREN):
        arguments.append(_argument(parser))
        while parser._match(TokenType.COMMA):
            arguments.append(_argument(parser))
        if not parser._match(TokenType.R_PAREN):
            parser.raise_error("expected , or )")
    return RawLayout(name, tuple(arguments), start)


def _argument(parser: ClauseParser) -> tuple[str | None, RawNumber]:
    if parser._curr and parser._curr.token_type is TokenType.VAR:
        name = parser._name("blocks").lower()
        if not parser._match(TokenType.EQ):
            parser.raise_error(f"expected = after {name}")
        return name, parser._number()
    return None, parser._number()

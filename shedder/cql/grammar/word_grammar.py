"""The words that clauses are made of: names, numbers, texts, and phrases that have a reader.

A reader is a function of the parser, which stands before the first token that the reader takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawNumber
from shedder.cql.grammar.pure_parser import Parser

Result = TypeVar("Result")


def fail(parser: Parser, message: str) -> NoReturn:
    """Raise sqlglot's ParseError at the present token."""
    parser.raise_error(message)
    raise AssertionError("raise_error raises")


def expect(parser: Parser, kind: TokenType, what: str) -> None:
    """Skip a token of this kind; what: is expected."""
    if not parser._match(kind):
        fail(parser, f"expected {what}")


def dispatch(
    parser: Parser, readers: Mapping[str, Callable[[Parser], Result]]
) -> tuple[str, Result] | None:
    """Call the reader of the phrase that follows; return the phrase and the result.

    Returns:
      None if no phrase of `readers` follows.
    """
    for phrase, read in readers.items():
        if parser._match_text_seq(*phrase.split()):
            return phrase, read(parser)
    return None


def read_identifier(parser: Parser, what: str) -> exp.Identifier:
    """Read an identifier; what: is expected."""
    found = parser._parse_id_var(any_token=False)
    if not isinstance(found, exp.Identifier):
        fail(parser, f"expected {what}")
    return found


def read_name(parser: Parser, what: str) -> str:
    """Read an identifier and return its text; what: is expected."""
    return str(read_identifier(parser, what).name)


def read_column_names(parser: Parser) -> tuple[str, ...]:
    """Read names of columns up to the closing bracket."""
    names = [read_name(parser, "the name of a column")]
    while parser._match(TokenType.COMMA):
        names.append(read_name(parser, "the name of a column"))
    expect(parser, TokenType.R_PAREN, ", or )")
    return tuple(names)


def read_text(parser: Parser, what: str) -> str:
    """Read a string; what: is expected."""
    expect(parser, TokenType.STRING, what)
    return str(parser._prev.text)


def read_number(parser: Parser) -> RawNumber:
    """Read a number or a parameter."""
    start = parser._curr.start if parser._curr else 0
    return RawNumber(read_literal(parser), start)


def read_literal(parser: Parser) -> exp.Expr:
    """Read a number, string or parameter, perhaps with a sign."""
    if parser._match(TokenType.DASH):
        return exp.Neg(this=read_literal(parser))
    literal: exp.Expr | None = None
    if parser._match_set((TokenType.NUMBER, TokenType.STRING), advance=False):
        literal = parser._parse_primary()
    elif parser._match(TokenType.PLACEHOLDER):
        literal = read_parameter(parser)
    if literal is None:
        fail(parser, "expected a number")
    return literal


def read_parameter(parser: Parser) -> exp.Expr:
    """Return the parameter whose token is skipped already."""
    token = parser._prev
    return parser.expression(exp.Placeholder(this=token.text)).update_positions(token)


def skip_percent(parser: Parser) -> bool:
    """Skip PERCENT or %; return whether it was there."""
    return bool(parser._match_text_seq("PERCENT") or parser._match(TokenType.MOD))

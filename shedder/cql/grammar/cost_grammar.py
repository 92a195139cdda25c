"""The words that bound what a standing query costs: shares, COSTING AT MOST, REWRITE."""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawNumber
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import fail, read_number
from shedder.cql.statements.statement import Rewrite
from shedder.cql.text.byte_sizes import SIZES
from shedder.cql.text.sampling_fractions import AUTO, EXPECTED, LEVELS

_PLAIN = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")


def read_share(parser: Parser) -> int | None:
    """Read a share of the tuples, 1/8, as a level: 3; None: AUTO."""
    if parser._match_text_seq(AUTO):
        return None
    share = ""
    if parser._match(TokenType.NUMBER):
        share = parser._prev.text
        if parser._match(TokenType.SLASH) and parser._match(TokenType.NUMBER):
            share += f"/{parser._prev.text}"
    if share not in LEVELS:
        fail(parser, f"expected {EXPECTED}, or {AUTO}")
    return LEVELS[share]


def read_costing(parser: Parser) -> tuple[tuple[RawNumber, str], ...]:
    """Read AT MOST 64 KIB [AND 5 NS]: amounts and their units."""
    if not parser._match_text_seq("AT", "MOST"):
        fail(parser, "expected AT MOST and an amount: AT MOST 64 KIB AND 5 NS")
    found = [_amount(parser)]
    if parser._match(TokenType.AND):
        found.append(_amount(parser))
    return tuple(found)


def read_size(parser: Parser) -> int:
    """Read 64 KIB as 65,536."""
    number = parser._prev.text if parser._match(TokenType.NUMBER) else ""
    is_plain = _PLAIN.fullmatch(number) is not None
    unit = parser._prev.text.upper() if is_plain and parser._match_texts(SIZES) else ""
    size = Fraction(number) * SIZES[unit] if unit else Fraction(0)
    if size <= 0 or size.denominator > 1:
        fail(parser, f"expected a size: 8 MIB; units are {', '.join(SIZES)}")
    return int(size)


def read_rewrites(parser: Parser) -> tuple[str, ...]:
    """Read NEVER, which is (), or what may be changed: SLIDE, COLLAPSE, RANGE, THINNING."""
    if parser._match_text_seq("NEVER"):
        return ()
    words = [rewrite.value for rewrite in Rewrite]
    found: list[str] = []
    while not found or parser._match(TokenType.COMMA):
        if not parser._match_texts(words):
            fail(parser, f"expected NEVER, or any of {', '.join(words)}")
        found.append(parser._prev.text.upper())
    return tuple(found)


def _amount(parser: Parser) -> tuple[RawNumber, str]:
    number = read_number(parser)
    units = [*SIZES, "NS"]
    if not parser._match_texts(units):
        fail(parser, f"expected a unit: {', '.join(units)}")
    return number, parser._prev.text.upper()

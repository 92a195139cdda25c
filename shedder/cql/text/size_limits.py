"""Limits on the length, depth and size of a text, checked on its tokens before parsing.

The parser below us recurses: compiled, it overflows the C stack on 10,000 nested brackets, and in
pure Python it fails at about 100 levels. So nesting is counted on the flat list of tokens first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from shedder.cql.text.source_text import SourceText
from shedder.errors import BadQuery

# In all enough for 45 histograms of 100 buckets, which are the shortest words for the most.
_EXPANDED_PER_NODE = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """What a text may cost.

    text_bytes_max: UTF-8 bytes of all statements together.
    depth_max: nested brackets and CASEs; also signs and NOTs in a row. One level is 21 frames of
      the parser below, and Python gives 1,000 to all callers together.
    levels_max: levels of an expression's tree; a + b + c has two.
    tokens_max: words of one statement. nodes_max: nodes of its syntax tree.
    panes_max: panes of one window (range over gcd of range and slide).
    """

    text_bytes_max: int = 65_536
    depth_max: int = 32
    levels_max: int = 100
    tokens_max: int = 4_000
    nodes_max: int = 1_000
    panes_max: int = 10_000

    @property
    def expanded_max(self) -> int:
        """Columns, constants and operators of a statement, where what is short is written out.

        NULLIF(x, 0) has x twice: nested in each other they double each time, to 2^32 of them.
        """
        return _EXPANDED_PER_NODE * self.nodes_max


_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL}


def check_length(text: str, limits: Limits) -> None:
    """Refuse a text that is too long.

    Raises:
      BadQuery: more than text_bytes_max bytes, or characters that UTF-8 does not have.
    """
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadQuery(f"the text is not valid Unicode at character {error.start}") from error
    if size_bytes > limits.text_bytes_max:
        raise BadQuery(
            f"the text has {size_bytes:,} bytes; at most {limits.text_bytes_max:,} are read"
        )


def check_nesting(tokens: Sequence[Token], source: SourceText, limits: Limits) -> None:
    """Refuse tokens that nest too deep, do not match, or are too many.

    Raises:
      BadQuery: points at the token.
    """
    if len(tokens) > limits.tokens_max:
        raise source.error(
            f"the statement has {len(tokens):,} words; at most {limits.tokens_max:,} are read",
            tokens[limits.tokens_max].start,
        )
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIX else 0
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth = max(depth - 1, 0)
        if max(depth, prefixes) > limits.depth_max:
            raise source.error(
                f"nested too deeply; at most {limits.depth_max} levels are read", token.start
            )

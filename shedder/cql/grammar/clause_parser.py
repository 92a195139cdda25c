"""The parts of the parser that the reader of one clause uses."""

from __future__ import annotations

from typing import Any, Protocol

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawNumber


class ClauseParser(Protocol):
    """A parser that stands before a clause."""

    _curr: Any  # The next token; falsy at the end.

    def _match(self, token_type: TokenType) -> bool | None:
        """Skip a token of this type; return whether there was one."""

    def _match_text_seq(self, *texts: str) -> bool | None:
        """Skip these words; return whether they were there."""

    def _name(self, what: str) -> str:
        """Read an identifier; what: is expected."""

    def _number(self) -> RawNumber:
        """Read a number or a parameter."""

    def raise_error(self, message: str) -> None:
        """Raise a ParseError at the present token."""

"""The grammar of derived streams: CREATE VIEW, and CREATE QUERY ... AS INSERT INTO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawDuration, RawRelational, RawSelect
from shedder.cql.grammar.pure_parser import pure_parser

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser


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


class ViewsParser(Parser):
    """What CqlParser needs to read these statements; the words below are its own."""

    if TYPE_CHECKING:

        def _name(self, what: str) -> str: ...

        def _names(self) -> tuple[str, ...]: ...

        def _duration(self) -> RawDuration: ...

        def _begins_query(self) -> bool: ...

        def _query(self) -> RawSelect | RawRelational: ...

    def _create_view(self) -> RawCreateView:
        """The rest of CREATE VIEW [IF NOT EXISTS] name [RETAIN i | RANGE i] AS SELECT ..."""
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        name = self._name("the name of the view")
        retain = self._retained()
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected RETAIN and an interval, or AS and a SELECT")
        start, select = self._selected()
        return RawCreateView(name, retain, select, if_not_exists, start)

    def _retained(self) -> RawDuration | None:
        """RETAIN i, RETAIN FOREVER, RANGE i or [RANGE i]; None: for ever."""
        in_brackets = bool(self._match(TokenType.L_BRACKET))
        retain = None
        if not in_brackets and self._match_text_seq("RETAIN"):
            retain = None if self._match_text_seq("FOREVER") else self._duration()
        elif self._match_text_seq("RANGE"):
            retain = self._duration()
        elif in_brackets:
            self.raise_error("expected RANGE and an interval")
        if in_brackets and not self._match(TokenType.R_BRACKET):
            self.raise_error("expected ]")
        return retain

    def _create_insert(self, name: str, *, if_not_exists: bool) -> RawCreateInsert:
        """The rest of CREATE QUERY name AS INSERT INTO stream [(columns)] SELECT ..."""
        if not self._match_text_seq("INTO"):
            self.raise_error("expected INTO and the name of a stream")
        stream = self._name("the name of a stream")
        columns = None
        if not self._begins_query() and self._match(TokenType.L_PAREN):
            columns = self._names()
        start, select = self._selected()
        return RawCreateInsert(name, stream, columns, select, if_not_exists, start)

    def _selected(self) -> tuple[int, RawSelect | RawRelational]:
        if not self._begins_query():
            self.raise_error("expected a SELECT")
        start = self._curr.start
        return start, self._query()

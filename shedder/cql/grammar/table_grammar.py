"""The grammar of tables: CREATE TABLE, DROP TABLE and UPDATE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.parse_nodes import RawColumn
from shedder.cql.grammar.pure_parser import pure_parser
from shedder.cql.statements.statement import DropTable

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser


@dataclass(frozen=True, slots=True)
class RawCreateTable:
    """CREATE TABLE. key: names in each PRIMARY KEY that was written."""

    name: str
    columns: tuple[RawColumn, ...]
    keys: tuple[tuple[str, ...], ...]
    retroactive: bool
    if_not_exists: bool
    start: int


@dataclass(frozen=True, slots=True)
class RawUpdate:
    """UPDATE: names of columns, each with its new value."""

    table: str
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None


class TablesParser(Parser):
    """What CqlParser needs to read these statements; the words below are its own."""

    if TYPE_CHECKING:

        def _name(self, what: str) -> str: ...

        def _names(self) -> tuple[str, ...]: ...

        def _column_definition(self) -> RawColumn: ...

    def _create_table(self, start: int) -> RawCreateTable:
        """The rest of CREATE TABLE [IF NOT EXISTS] name (...) [RETROACTIVE]."""
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        name = self._name("the name of the table")
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( and the columns")
        columns: list[RawColumn] = []
        keys: list[tuple[str, ...]] = []
        while True:
            if self._match_text_seq("PRIMARY", "KEY"):
                if not self._match(TokenType.L_PAREN):
                    self.raise_error("expected ( and the columns of the key")
                keys.append(self._names())
            else:
                columns.append(self._column_definition())
                if self._match_text_seq("PRIMARY", "KEY"):
                    keys.append((str(columns[-1].name.name),))
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected PRIMARY KEY, a comma or )")
        retroactive = bool(self._match_text_seq("RETROACTIVE"))
        return RawCreateTable(name, tuple(columns), tuple(keys), retroactive, if_not_exists, start)

    def _drop_table(self) -> DropTable:
        """The rest of DROP TABLE [IF EXISTS] name."""
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        return DropTable(self._name("the name of the table"), if_exists)

    def _update(self) -> RawUpdate:
        """The rest of UPDATE table SET column = value, ... [WHERE condition]."""
        table = self._name("the name of a table")
        if not self._match_text_seq("SET"):
            self.raise_error("expected SET, a column, = and its value")
        assignments = [self._assignment()]
        while self._match(TokenType.COMMA):
            assignments.append(self._assignment())
        where = self._parse_where()
        return RawUpdate(table, tuple(assignments), None if where is None else where.this)

    def _assignment(self) -> tuple[str, exp.Expr]:
        name = self._name("the name of a column")
        if not self._match(TokenType.EQ):
            self.raise_error(f"expected = and the value of {name}")
        value = self._parse_disjunction()
        if value is None:
            self.raise_error(f"expected the value of {name}")
        assert value is not None
        return name, value

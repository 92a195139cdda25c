"""The grammar of statements that change what is there: INSERT, DELETE, ALTER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.cost_grammar import read_share
from shedder.cql.grammar.parse_nodes import RawAlterQuery, RawDelete, RawInsert, RawSelect
from shedder.cql.grammar.pure_parser import pure_parser
from shedder.cql.statements.statement import AlterActivity, AlterWeight
from shedder.cql.text.sampling_fractions import AUTO
from shedder.cql.text.unsupported import later

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser


class ChangesParser(Parser):
    """What CqlParser needs to read these statements; the words below are its own."""

    if TYPE_CHECKING:

        def _select(self) -> RawSelect: ...

        def _name(self, what: str) -> str: ...

        def _text(self, what: str) -> str: ...

        def _weight(self) -> float: ...

    def _alter_query(self) -> RawAlterQuery | AlterWeight | AlterActivity:
        """The rest of ALTER QUERY name SET THINNING | WEIGHT | ACTIVE | INACTIVE."""
        name = self._name("the name of the query")
        if self._match_text_seq("SET", "WEIGHT"):
            return AlterWeight(name, self._weight())
        if self._match_text_seq("SET", "ACTIVE"):
            return AlterActivity(name, active=True)
        if self._match_text_seq("SET", "INACTIVE"):
            return AlterActivity(name, active=False)
        if not self._match_text_seq("SET", "THINNING"):
            self.raise_error(
                "expected SET THINNING and a share (1/8) or AUTO, SET WEIGHT and a number, "
                "SET ACTIVE or SET INACTIVE"
            )
        return self._thinning(name)

    def _thinning(self, name: str) -> RawAlterQuery:
        """The rest of ALTER QUERY name SET THINNING."""
        level = None if self._match_text_seq(AUTO) else read_share(self)
        of = self._parse_csv(self._parse_disjunction) if self._match_text_seq("FOR") else []
        if not of and self._prev.text.upper() == "FOR":
            self.raise_error("expected outputs or aggregates of the query")
        return RawAlterQuery(name, level, tuple(of))

    def _insert(self) -> RawInsert:
        """INSERT [OR REPLACE] INTO s [(columns)] VALUES (...), ... | SELECT ... [PRODUCER 'p']."""
        replaces = bool(self._match_text_seq("OR", "REPLACE"))
        if not self._match_text_seq("INTO"):
            self.raise_error("expected INTO and the name of a stream")
        stream = self._name("the name of a stream")
        columns = self._names() if self._match(TokenType.L_PAREN) else None
        if self._match_texts(("VALUES",)):
            rows = self._rows()
            return RawInsert(stream, columns, None, False, rows, self._producer(), replaces)
        if not self._match(TokenType.SELECT, advance=False):
            self.raise_error("expected VALUES or SELECT")
        select = self._select()
        items = select.select.expressions
        everything = len(items) == 1 and isinstance(items[0], exp.Star)
        if everything:  # Which columns there are is known when the stream is looked at.
            select.select.set("expressions", [exp.Literal.number(1)])
        return RawInsert(stream, columns, select, everything, (), self._producer(), replaces)

    def _delete(self) -> RawDelete:
        """DELETE FROM stream [window] [WHERE condition]."""
        if not self._match(TokenType.FROM):
            self.raise_error("expected FROM and the name of a stream")
        select = exp.Select(expressions=[exp.Literal.number(1)])
        select.set("from_", exp.From(this=self._parse_table()))
        select.set("where", self._parse_where())
        return RawDelete(RawSelect(select, None, None, None, None, None))

    def _indexed_column(self, words: tuple[str, ...]) -> tuple[str, str, bool]:
        """[IF ...] ON stream (column): which, and whether it may be there already, or not."""
        lenient = bool(self._match_text_seq(*words))
        if not self._match_text_seq("ON"):
            self.raise_error("expected ON, a stream and (column); an index has no name of its own")
        stream = self._name("the name of a stream")
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( and the name of a column")
        names = self._names()
        if len(names) > 1:
            raise later("an index on several columns")
        return stream, names[0], lenient

    def _names(self) -> tuple[str, ...]:
        names = [self._name("the name of a column")]
        while self._match(TokenType.COMMA):
            names.append(self._name("the name of a column"))
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected , or )")
        return tuple(names)

    def _rows(self) -> tuple[tuple[exp.Expr, ...], ...]:
        rows = []
        while True:
            if not self._match(TokenType.L_PAREN):
                self.raise_error("expected ( and the values of a row")
            rows.append(tuple(self._parse_csv(self._parse_bitwise)))
            if not self._match(TokenType.R_PAREN):
                self.raise_error("expected , or )")
            if not self._match(TokenType.COMMA):
                return tuple(rows)

    def _producer(self) -> str | None:
        if self._match_text_seq("PRODUCER"):
            return self._text("the name of a producer in quotes")
        if self._match_text_seq("ON") or self._match_text_seq("RETURNING"):
            raise later(f"{self._prev.text.upper()} of an INSERT")
        return None

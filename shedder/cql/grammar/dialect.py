"""The grammar: a dialect of sqlglot whose statements and windows are those of CQL.

sqlglot parses everything that is SQL. Functions stay as written (no builders), so that nothing
is rewritten on the way; what a name means is decided in functions.py.
A parsed statement travels in the meta of a `Var` node, because the parser returns only nodes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.cost_grammar import read_costing, read_rewrites, read_share
from shedder.cql.grammar.dml_grammar import ChangesParser
from shedder.cql.grammar.explain_node import RawExplain
from shedder.cql.grammar.layout_grammar import read_layout
from shedder.cql.grammar.overload_grammar import read_on_overload
from shedder.cql.grammar.parse_nodes import (
    RawAlterQuery,
    RawAlterStream,
    RawColumn,
    RawCreateQuery,
    RawCreateRollup,
    RawCreateStream,
    RawNumber,
    RawRelational,
    RawSelect,
)
from shedder.cql.grammar.query_grammar import QueriesParser, is_relational
from shedder.cql.grammar.table_grammar import RawCreateTable, TablesParser
from shedder.cql.grammar.view_grammar import RawCreateInsert, RawCreateView, ViewsParser
from shedder.cql.grammar.window_grammar import WindowsParser
from shedder.cql.statements.overload_policy import THINS
from shedder.cql.statements.statement import (
    WEIGHT_MAX,
    AlterActivity,
    AlterOverload,
    AlterWeight,
    Backup,
    CreateIndex,
    Describe,
    DropIndex,
    DropQuery,
    DropRollup,
    DropStream,
    DropTable,
    DropView,
    ExplainAllocation,
    Purge,
    Scrub,
    Show,
)
from shedder.cql.text.reserved_words import PHRASES, WORDS
from shedder.cql.text.unsupported import LATER, later
from shedder.errors import BadQuery
from synopses.frequent.heavy_share import Promise

STATEMENT = "cql"  # the key of a node's meta

_STATEMENTS = (
    "SELECT, CREATE, ALTER, DROP, INSERT, UPDATE, DELETE, BACKUP, SCRUB, PURGE, SHOW, DESCRIBE or "
    "EXPLAIN"
)


_SHOWN = ("STREAMS", "QUERIES", "VIEWS", "TABLES", "RUNS", "INDEXES", "ROLLUPS", "TENANTS")


class CqlTokenizer(tokens.Tokenizer):
    """The words of CQL."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{
            word: kind
            for word, kind in tokens.Tokenizer.KEYWORDS.items()
            if word in WORDS or word in PHRASES
        },
        **{
            word: tokens.Tokenizer.KEYWORDS[word]
            for word in ("||", "<>", "!=", "<=", ">=", "::", "==")
            if word in tokens.Tokenizer.KEYWORDS
        },
        "INT8": TokenType.BIGINT,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


class CqlParser(ChangesParser, QueriesParser, WindowsParser, TablesParser, ViewsParser):
    """sqlglot's parser with the statements, windows and clauses of CQL."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: ChangesParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")},
        "FREQUENT": lambda self: self._frequent(),
        "EXISTS": lambda self: self._exists(),
        "ISTREAM": lambda self: self._stream_of("ISTREAM"),
        "DSTREAM": lambda self: self._stream_of("DSTREAM"),
        "RSTREAM": lambda self: self._stream_of("RSTREAM"),
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": ChangesParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {
        kind: ChangesParser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {
        TokenType.PLACEHOLDER: lambda self: self._parameter()
    }

    # --- statements ---------------------------------------------------------------------------

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        node = exp.Var(this=STATEMENT)
        node.meta[STATEMENT] = self._statement()
        return node

    def _statement(self) -> object:
        word = self._curr.text.upper()
        if self._begins_query():
            return self._query()
        if self._match(TokenType.CREATE):
            return self._create()
        if self._match(TokenType.DROP):
            return self._drop()
        if self._match_text_seq("ALTER"):
            return self._alter()
        if self._match_text_seq("DELETE"):
            return self._delete()
        if self._match_text_seq("INSERT"):
            return self._insert()
        if self._match_text_seq("UPDATE"):
            return self._update()
        if self._match_text_seq("BACKUP"):
            if not self._match_text_seq("TO"):
                self.raise_error("expected TO and the name of a backup in quotes")
            return Backup(self._text("the name of a backup in quotes"))
        if self._match_text_seq("SCRUB"):
            return Scrub()
        if self._match_text_seq("PURGE"):
            self._match_text_seq("STREAM")
            return Purge(self._name("the name of a stream"))
        if self._match_text_seq("SHOW"):
            return self._show()
        if self._match_text_seq("DESCRIBE") or self._match(TokenType.DESC):
            self._match_texts(("STREAM", "TABLE", "QUERY"))
            return Describe(self._name("the name of a stream, table or query"))
        if self._match_text_seq("EXPLAIN"):
            if self._begins_query():
                return RawExplain(self._query())
            plain = self._curr and self._curr.token_type is not TokenType.IDENTIFIER
            if plain and self._match_text_seq("ALLOCATION"):  # In quotes it is a query's name.
                return ExplainAllocation()
            if self._match(TokenType.CREATE):
                if self._match_text_seq("VIEW"):
                    return RawExplain(self._create_view())
                if not self._match_text_seq("QUERY"):
                    self.raise_error("expected QUERY or VIEW, a name, AS and a SELECT")
                return RawExplain(self._create_query())
            return RawExplain(
                self._name("SELECT, CREATE QUERY, CREATE VIEW or the name of a query")
            )
        if word in LATER and self._curr.token_type is not TokenType.IDENTIFIER:
            raise later(LATER[word])
        self.raise_error(f"expected {_STATEMENTS}")
        raise AssertionError("raise_error raises")

    def _create(
        self,
    ) -> (
        RawCreateStream
        | RawCreateTable
        | RawCreateQuery
        | RawCreateInsert
        | RawCreateView
        | RawCreateRollup
        | CreateIndex
    ):
        if self._match_text_seq("OR", "REPLACE"):
            raise later("CREATE OR REPLACE")
        start = self._curr.start
        if self._match_text_seq("INDEX"):
            return CreateIndex(*self._indexed_column(("IF", "NOT", "EXISTS")))
        if self._match_text_seq("STREAM"):
            return self._create_stream(start)
        if self._match_text_seq("TABLE"):
            return self._create_table(start)
        if self._match_text_seq("QUERY"):
            return self._create_query()
        lazy = bool(self._match_text_seq("LAZY", "ROLLUP"))
        if lazy or self._match_text_seq("ROLLUP"):
            name, if_not_exists = self._named("the name of the rollup")
            return RawCreateRollup(name, self._select(), if_not_exists, lazy)
        if self._match_text_seq("VIEW"):
            return self._create_view()
        if self._match_texts(("SCHEMA", "MATERIALIZED", "TEMPORARY")):
            raise later(f"CREATE {self._prev.text.upper()}")
        self.raise_error("expected STREAM, TABLE, VIEW, QUERY, ROLLUP or INDEX")
        raise AssertionError("raise_error raises")

    def _create_query(self) -> RawCreateQuery | RawCreateInsert:
        name, if_not_exists = self._named("the name of the query", inserts=True)
        if self._match_text_seq("INSERT"):
            return self._create_insert(name, if_not_exists=if_not_exists)
        return RawCreateQuery(name, self._query(), if_not_exists)

    def _named(self, what: str, *, inserts: bool = False) -> tuple[str, bool]:
        """[IF NOT EXISTS] name AS, before a query: the name, and whether it may exist.

        inserts: INSERT may stand in the place of the query.
        """
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        name = self._name(what)
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and a SELECT")
        if inserts and self._match_text_seq("INSERT", advance=False):
            return name, if_not_exists
        if not self._begins_query():
            self.raise_error("expected a SELECT")
        return name, if_not_exists

    def _create_stream(self, start: int) -> RawCreateStream:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._identifier("the name of the stream")
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( and the columns")
        columns = [self._column_definition()]
        while self._match(TokenType.COMMA):
            columns.append(self._column_definition())
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected , or )")
        said: dict[str, Any] = {}
        while self._curr:
            clause = self._stream_clause()
            if clause is None or clause[0] in said:
                self.raise_error(
                    "expected TIMESTAMP BY, LATENESS, RETAIN, ARCHIVE or ON OVERLOAD, each once"
                )
            assert clause is not None
            said[clause[0]] = clause[1]
        return RawCreateStream(
            name=name,
            columns=tuple(columns),
            time_column=said.get("time"),
            lateness=said.get("lateness"),
            retain=said.get("retain"),
            layout=said.get("layout"),
            on_overload=said.get("on_overload", THINS),
            if_not_exists=if_not_exists,
            start=start,
        )

    def _stream_clause(self) -> tuple[str, Any] | None:
        if self._match_text_seq("TIMESTAMP", "BY"):
            return "time", self._identifier("the event-time column")
        if self._match_text_seq("LATENESS"):
            return "lateness", self._duration()
        if self._match_text_seq("RETAIN"):
            return "retain", None if self._match_text_seq("FOREVER") else self._duration()
        if self._match_text_seq("ARCHIVE"):
            return "layout", read_layout(self)
        if self._match_text_seq("ON", "OVERLOAD"):
            return "on_overload", read_on_overload(self)
        return None

    def _column_definition(self) -> RawColumn:
        name = self._identifier("the name of a column")
        kind = self._parse_types(check_func=False, allow_identifiers=False)
        if not isinstance(kind, exp.DataType):
            self.raise_error(
                "expected a type: BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP or DATE"
            )
        nullable = True
        if self._match_text_seq("NOT", "NULL"):
            nullable = False
        else:
            self._match(TokenType.NULL)
        assert isinstance(kind, exp.DataType)
        return RawColumn(name, kind, nullable)

    def _drop(self) -> DropStream | DropTable | DropView | DropQuery | DropRollup | DropIndex:
        if self._match_text_seq("INDEX"):
            return DropIndex(*self._indexed_column(("IF", "EXISTS")))
        if self._match_text_seq("TABLE"):
            return self._drop_table()
        if not self._match_texts(("STREAM", "VIEW", "QUERY", "ROLLUP")):
            if self._match_text_seq("SCHEMA"):
                raise later("DROP SCHEMA")
            self.raise_error("expected STREAM, TABLE, VIEW, QUERY, ROLLUP or INDEX")
        kind = self._prev.text.upper()
        if_exists = self._match_text_seq("IF", "EXISTS")
        name = self._name(f"the name of the {kind.lower()}")
        match kind:
            case "STREAM":
                return DropStream(name, if_exists)
            case "VIEW":
                return DropView(name, if_exists)
            case "QUERY":
                return DropQuery(name, if_exists)
            case _:
                return DropRollup(name, if_exists)

    def _alter(
        self,
    ) -> RawAlterQuery | RawAlterStream | AlterOverload | AlterWeight | AlterActivity:
        if self._match_text_seq("QUERY"):
            return self._alter_query()
        if not self._match_text_seq("STREAM"):
            raise later("ALTER of anything but a QUERY or a STREAM")
        stream = self._name("the name of the stream")
        if self._match_text_seq("SET", "ON", "OVERLOAD"):
            return AlterOverload(stream, read_on_overload(self))
        if not self._match_text_seq("SET", "ARCHIVE"):
            self.raise_error("expected SET ARCHIVE and a layout, or SET ON OVERLOAD and a policy")
        return RawAlterStream(stream, read_layout(self))

    def _weight(self) -> float:
        weight = float(self._prev.text) if self._match(TokenType.NUMBER) else 0.0
        if not 0 < weight <= WEIGHT_MAX:
            self.raise_error(f"expected a number over 0, at most {WEIGHT_MAX:g}")
        return weight

    def _show(self) -> Show:
        if not self._match_texts(_SHOWN):
            self.raise_error(f"expected {', '.join(_SHOWN[:-1])} or {_SHOWN[-1]}")
        return Show(self._prev.text.upper())

    # --- queries ------------------------------------------------------------------------------

    def _query(self) -> RawSelect | RawRelational:
        """A query of aggregates over one stream, or of rows."""
        query = self._whole_query()
        said = self._answer_clauses()
        if isinstance(query, exp.Select) and not is_relational(query):
            return _with_clauses(query, said)
        for clause in said:
            raise BadQuery(f"{clause}: the rows of this query are exact; leave {clause} away")
        return RawRelational(query)

    def _select(self) -> RawSelect:
        """A query over one stream."""
        query = self._parse_select()
        if not isinstance(query, exp.Select):
            raise later("UNION, INTERSECT and EXCEPT here")
        return _with_clauses(query, self._answer_clauses())

    def _answer_clauses(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        while self._curr:
            clause = self._answer_clause()
            if clause is None and self._match_text_seq("PRODUCER", advance=False):
                break  # Of an INSERT.
            if clause is None:
                self.raise_error(f"unexpected {self._curr.text!r}")
            assert clause is not None
            if clause[0] in said:
                self.raise_error(f"{clause[0]} is said twice")
            said[clause[0]] = clause[1]
        return said

    def _frequent(self) -> exp.Expr:
        """The arguments of FREQUENT; the words of its promise become a text after them."""
        arguments = self._parse_csv(self._parse_disjunction)
        for promise in Promise:
            if self._match_text_seq(*promise.value.split()):
                arguments.append(exp.Literal.string(promise.value))
        if not self._match(TokenType.R_PAREN, advance=False):
            self.raise_error(f"expected ) or {' or '.join(each.value for each in Promise)}")
        return self.expression(exp.Anonymous(this="FREQUENT", expressions=arguments))

    def _answer_clause(self) -> tuple[str, Any] | None:
        if self._match_text_seq("WITHIN"):
            return "WITHIN", self._target()
        if self._match_text_seq("CONFIDENCE"):
            return "CONFIDENCE", (self._number(), self._percent())
        if self._match_text_seq("ELSE"):
            if not self._match_texts(("WIDEN", "OMIT", "EXACT", "FAIL")):
                self.raise_error("expected WIDEN, OMIT, EXACT or FAIL")
            return "ELSE", self._prev.text.upper()
        if self._match_text_seq("WEIGHT"):
            return "WEIGHT", self._number()
        if self._match_text_seq("REDUCE", "BY"):
            return "REDUCE BY", self._reduction()
        if self._match_text_seq("THINNING"):
            return "THINNING", read_share(self)
        if self._match_text_seq("COSTING"):
            return "COSTING", read_costing(self)
        if self._match_text_seq("REWRITE"):
            return "REWRITE", read_rewrites(self)
        return None

    def _target(self) -> tuple[RawNumber, str]:
        size = self._number()
        if self._percent():
            return size, "PERCENT RANK" if self._match_text_seq("RANK") else "PERCENT"
        if self._match_texts(("ABSOLUTE", "RANK")):
            return size, self._prev.text.upper()
        self.raise_error("expected PERCENT, ABSOLUTE or RANK")
        raise AssertionError("raise_error raises")

    def _percent(self) -> bool:
        return bool(self._match_text_seq("PERCENT") or self._match(TokenType.MOD))

    def _reduction(self) -> tuple[str, tuple[exp.Expr, ...]]:
        name = self._name("the name of a reduction")
        if not self._match(TokenType.L_PAREN):
            return name, ()
        arguments = self._parse_csv(self._parse_unary)
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected )")
        return name, tuple(arguments)

    # --- words --------------------------------------------------------------------------------

    def _number(self) -> RawNumber:
        return RawNumber(
            start=self._curr.start if self._curr else 0, value=self._parse_unary_literal()
        )

    def _parse_unary_literal(self) -> exp.Expr:
        """A number, string or parameter, perhaps with a sign."""
        if self._match(TokenType.DASH):
            return exp.Neg(this=self._parse_unary_literal())
        literal: exp.Expr | None = None
        if self._match_set((TokenType.NUMBER, TokenType.STRING), advance=False):
            literal = self._parse_primary()
        elif self._match(TokenType.PLACEHOLDER):
            literal = self._parameter()
        if literal is None:
            self.raise_error("expected a number")
        assert literal is not None
        return literal

    def _parameter(self) -> exp.Expr:
        token = self._prev
        return self.expression(exp.Placeholder(this=token.text)).update_positions(token)

    def _identifier(self, what: str) -> exp.Expr:
        found = self._parse_id_var(any_token=False)
        if not isinstance(found, exp.Identifier):
            self.raise_error(f"expected {what}")
        assert isinstance(found, exp.Identifier)
        return found

    def _text(self, what: str) -> str:
        if not self._match(TokenType.STRING):
            self.raise_error(f"expected {what}")
        return str(self._prev.text)

    def _name(self, what: str) -> str:
        return str(self._identifier(what).name)


def _with_clauses(select: exp.Select, said: dict[str, Any]) -> RawSelect:
    return RawSelect(
        select=select,
        target=said.get("WITHIN"),
        confidence=said.get("CONFIDENCE"),
        contract=said.get("ELSE"),
        weight=said.get("WEIGHT"),
        reduction=said.get("REDUCE BY"),
        thinning=said.get("THINNING", 0),
        costing=said.get("COSTING", ()),
        rewrites=said.get("REWRITE"),
    )


class Cql(Dialect):
    """CQL as a dialect of sqlglot."""

    DPIPE_IS_STRING_CONCAT = True
    NULL_ORDERING = "nulls_are_last"
    Tokenizer = CqlTokenizer
    Parser = CqlParser


class ThinningParser(CqlParser):
    """Parser of a text that stands alone, as it stands after ALTER QUERY name SET THINNING."""

    def _statement(self) -> RawAlterQuery:
        return self._thinning("")


class CqlThinning(Cql):
    """The dialect of `ThinningParser`."""

    Parser = ThinningParser

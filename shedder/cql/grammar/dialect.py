"""The grammar: a dialect of sqlglot whose statements and windows are those of CQL.

sqlglot parses everything that is SQL. It calls the tables and methods of `CqlParser`; these call
readers of the grammar, which are functions of the parser.
Functions stay as written (no builders), so that nothing is rewritten on the way; what a name means
is decided in functions.py.
A parsed statement travels in the meta of a `Var` node, because the parser returns only nodes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.alter_grammar import read_thinning
from shedder.cql.grammar.parse_nodes import RawAlterQuery
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.query_grammar import (
    COMMA,
    begins_query,
    read_ctes,
    read_exists,
    read_frequent,
    read_query_in_brackets,
    read_relation,
    read_stream_of,
)
from shedder.cql.grammar.statement_grammar import read_statement
from shedder.cql.grammar.window_grammar import read_interval
from shedder.cql.grammar.word_grammar import fail, read_parameter
from shedder.cql.text.reserved_words import PHRASES, WORDS

STATEMENT = "cql"  # The key of a node's meta.


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


class CqlParser(Parser):
    """sqlglot's parser with the statements, windows and clauses of CQL."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")},
        **{word: partial(read_stream_of, word=word) for word in ("ISTREAM", "DSTREAM", "RSTREAM")},
        "FREQUENT": read_frequent,
        "EXISTS": read_exists,
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {
        kind: Parser.COLUMN_OPERATORS[kind] for kind in (TokenType.DOT, TokenType.DCOLON)
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {TokenType.PLACEHOLDER: read_parameter}

    def _statement(self) -> object:
        return read_statement(self)

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        node = exp.Var(this=STATEMENT)
        node.meta[STATEMENT] = self._statement()
        return node

    def _parse_select(
        self, nested: bool = False, table: bool = False, *_: Any, **options: Any
    ) -> exp.Expr | None:
        """Read a query, perhaps after WITH; aliases of subqueries are read by `read_relation`."""
        ctes = read_ctes(self)
        options["parse_subquery_alias"] = False
        options["consume_pipe"] = False
        query: exp.Expr | None = super()._parse_select(nested, table, **options)
        if ctes:
            if not isinstance(query, exp.Query):
                fail(self, "expected a SELECT after WITH")
            query.set("with_", exp.With(expressions=ctes))
        return query

    def _parse_table(self, *_: Any, **__: Any) -> exp.Expr:
        """Read a relation. sqlglot calls this for FROM and JOIN."""
        return read_relation(self)

    def _parse_join(self, *arguments: Any, **options: Any) -> exp.Join | None:
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=read_relation(self), kind=COMMA))
        join: exp.Join | None = super()._parse_join(*arguments, **options)
        return join

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if self._match(TokenType.L_PAREN, advance=False) and begins_query(self):
            return self.expression(exp.In(this=this, query=read_query_in_brackets(self)))
        found: exp.In = super()._parse_in(this, alias)
        return found

    def _parse_interval(
        self,
        require_interval: bool = True,
        parse_function_unit: bool = True,  # noqa: ARG002
    ) -> exp.Interval | None:
        return read_interval(self) if require_interval else None


class Cql(Dialect):
    """CQL as a dialect of sqlglot."""

    DPIPE_IS_STRING_CONCAT = True
    NULL_ORDERING = "nulls_are_last"
    Tokenizer = CqlTokenizer
    Parser = CqlParser


class ThinningParser(CqlParser):
    """Parser of a text that stands alone, as it stands after ALTER QUERY name SET THINNING."""

    def _statement(self) -> RawAlterQuery:
        return read_thinning(self, "")


class CqlThinning(Cql):
    """The dialect of `ThinningParser`."""

    Parser = ThinningParser

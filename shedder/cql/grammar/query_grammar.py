"""The grammar of queries in queries: WITH, subqueries in FROM, and their aliases and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.expressions.functions import AGGREGATES
from shedder.cql.grammar.parse_nodes import RawNumber, RawWindow
from shedder.cql.grammar.pure_parser import pure_parser
from shedder.cql.text.unsupported import later

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser

WINDOW = "cql_window"  # The key of a relation's meta.
SAMPLE = "cql_sample"  # The key of a relation's meta.
DISTINCT = "cql_distinct"  # The key of the meta of ISTREAM(DISTINCT ...).
COMMA = "COMMA"  # The kind of a join that is written as a comma.

_ROWS_CLAUSES = ("joins", "laterals", "distinct", "offset", "with_")
_MORE_AGGREGATES = frozenset({"COUNT_IF", "COUNTIF", "HISTOGRAM", "CDF", "PERCENTILE_DISC"})
_ROWS_FUNCTIONS = frozenset({"NOW", "ISTREAM", "DSTREAM", "RSTREAM"})
_AFTER_QUERY = ("WITHIN", "CONFIDENCE", "WEIGHT", "REDUCE", "PRODUCER", "THINNING", "COSTING")
_OTHER_JOINS = ("SEMI", "ANTI", "ASOF", "POSITIONAL", "ARRAY")
_AFTER_RELATION = (*_AFTER_QUERY, "REWRITE")


class QueriesParser(Parser):
    """What CqlParser needs to read FROM; the words below are its own."""

    if TYPE_CHECKING:

        def _window(self) -> RawWindow: ...

        def _number(self) -> RawNumber: ...

        def _identifier(self, what: str) -> exp.Expr: ...

    def _parse_table(self, *_: Any, **__: Any) -> exp.Expr:
        """A relation, its window and its other name. sqlglot calls this for FROM and JOIN."""
        if self._match(TokenType.L_PAREN, advance=False):
            return self._described(exp.Subquery(this=self._query_in_brackets()))
        if self._match_texts(("LATERAL", "UNNEST", "VALUES"), advance=False):
            raise later(f"{self._curr.text.upper()} in FROM")
        table = self.expression(exp.Table(this=self._identifier("the name of a stream")))
        if self._match(TokenType.DOT, advance=False):
            self.raise_error("a stream has no schema before its name")
        if self._match(TokenType.L_PAREN, advance=False):
            raise later("a table function")
        return self._described(table)

    def _parse_select(
        self, nested: bool = False, table: bool = False, *_: Any, **options: Any
    ) -> exp.Expr | None:
        """A query, perhaps after WITH; the aliases of subqueries are read by `_described`."""
        ctes = self._with() if self._match(TokenType.WITH) else []
        options["parse_subquery_alias"] = False
        options["consume_pipe"] = False
        query: exp.Expr | None = super()._parse_select(nested, table, **options)
        if ctes:
            if not isinstance(query, exp.Query):
                self.raise_error("expected a SELECT after WITH")
            assert query is not None
            query.set("with_", exp.With(expressions=ctes))
        return query

    def _with(self) -> list[exp.Expr]:
        """name AS (query), ..."""
        if self._match_text_seq("RECURSIVE"):
            raise later("WITH RECURSIVE")
        ctes: list[exp.Expr] = []
        while True:
            name = self._identifier("the name of a subquery")
            if self._match(TokenType.L_PAREN, advance=False):
                raise later("names of columns in WITH; name them in the SELECT")
            if not self._match(TokenType.ALIAS):
                self.raise_error("expected AS and a query in brackets")
            query = self._query_in_brackets()
            ctes.append(exp.CTE(this=query, alias=exp.TableAlias(this=name)))
            if not self._match(TokenType.COMMA):
                return ctes

    def _begins_query(self) -> bool:
        """Return whether SELECT or WITH follows, perhaps behind opening brackets."""
        index = self._index
        while index < len(self._tokens) and self._tokens[index].token_type is TokenType.L_PAREN:
            index += 1
        following = self._tokens[index : index + 1]
        return any(each.token_type in (TokenType.SELECT, TokenType.WITH) for each in following)

    def _whole_query(self) -> exp.Expr:
        """A query with all its set operations, and ORDER BY and LIMIT behind brackets."""
        if not self._begins_query():
            self.raise_error("expected a SELECT")
        query = self._parse_select(nested=True)
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        assert query is not None
        return query

    def _query_in_brackets(self) -> exp.Expr:
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( and a SELECT")
        query = self._whole_query()
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected ) after the subquery")
        return query

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if self._match(TokenType.L_PAREN, advance=False) and self._begins_query():
            return self.expression(exp.In(this=this, query=self._query_in_brackets()))
        found: exp.In = super()._parse_in(this, alias)
        return found

    def _stream_of(self, word: str) -> exp.Expr:
        """The select list in the brackets of ISTREAM, DSTREAM or RSTREAM."""
        distinct = bool(self._match(TokenType.DISTINCT))
        items = self._parse_expressions()
        stream = self.expression(exp.Anonymous(this=word, expressions=items))
        stream.meta[DISTINCT] = distinct
        return stream

    def _exists(self) -> exp.Expr:
        """The query in the brackets of EXISTS."""
        return self.expression(exp.Exists(this=self._whole_query()))

    def _parse_join(self, *arguments: Any, **options: Any) -> exp.Join | None:
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=self._parse_table(), kind=COMMA))
        join: exp.Join | None = super()._parse_join(*arguments, **options)
        return join

    def _described(self, relation: exp.Expr) -> exp.Expr:
        """The relation with its window and its other name, in either order."""
        sample = self._sample()
        alias = self._relation_alias()
        sample = sample or self._sample()
        if sample is not None:
            relation.meta[SAMPLE] = sample
        if self._match(TokenType.L_BRACKET):
            relation.meta[WINDOW] = self._window()
            alias = alias or self._relation_alias()
        if alias is not None:
            relation.set("alias", exp.TableAlias(this=alias))
        return relation

    def _sample(self) -> RawNumber | None:
        """SAMPLE(percent)."""
        if not self._match_text_seq("SAMPLE", "("):
            return None
        percent = self._number()
        if not self._match(TokenType.R_PAREN):
            self.raise_error("expected ) after the percentage of SAMPLE")
        return percent

    def _relation_alias(self) -> exp.Expr | None:
        if self._match(TokenType.ALIAS):
            return self._identifier("another name for the stream")
        if self._match_texts(_AFTER_RELATION, advance=False):
            return None
        following = self._next.token_type if self._next else None
        if following is TokenType.JOIN and self._match_texts(_OTHER_JOINS, advance=False):
            raise later(f"{self._curr.text.upper()} JOIN")
        alias: exp.Expr | None = self._parse_id_var(any_token=False, tokens={TokenType.VAR})
        return alias


def is_relational(query: exp.Expr) -> bool:
    """Return whether the result of a query is rows; else it is aggregates over one stream."""
    if not isinstance(query, exp.Select) or any(map(query.args.get, _ROWS_CLAUSES)):
        return True
    table = query.args["from_"].this if query.args.get("from_") else None
    if table is None:
        return False
    if not isinstance(table, exp.Table):
        return True
    window = table.meta.get(WINDOW)
    if table.meta.get(SAMPLE) is not None or (window is not None and window.is_of_rows):
        return True
    functions = set()
    for part in query.walk():
        if isinstance(part, exp.Query) and part is not query:
            return True
        if isinstance(part, exp.Anonymous):
            functions.add(part.name.upper())
    if functions & _ROWS_FUNCTIONS:
        return True
    return not query.args.get("group") and not functions & (AGGREGATES.keys() | _MORE_AGGREGATES)

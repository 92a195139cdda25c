"""The grammar of queries in queries: WITH, subqueries in FROM, and their aliases and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.expressions.functions import AGGREGATES
from shedder.cql.grammar.parse_nodes import RawWindow
from shedder.cql.grammar.pure_parser import pure_parser
from shedder.cql.text.unsupported import later

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = pure_parser().Parser

WINDOW = "cql_window"  # The key of a relation's meta.

_ROWS_CLAUSES = ("joins", "laterals", "distinct", "offset", "with_")
_MORE_AGGREGATES = frozenset({"COUNT_IF", "COUNTIF", "HISTOGRAM", "CDF", "PERCENTILE_DISC"})
_ROWS_FUNCTIONS = frozenset({"NOW", "ISTREAM", "DSTREAM", "RSTREAM"})
_AFTER_QUERY = ("WITHIN", "CONFIDENCE", "WEIGHT", "REDUCE", "PRODUCER", "THINNING", "COSTING")
_AFTER_RELATION = (*_AFTER_QUERY, "REWRITE")


class QueriesParser(Parser):
    """What CqlParser needs to read FROM; the words below are its own."""

    if TYPE_CHECKING:

        def _window(self) -> RawWindow: ...

        def _identifier(self, what: str) -> exp.Expr: ...

    def _parse_table(self, *_: Any, **__: Any) -> exp.Expr:
        """A stream, its window and its other name. sqlglot calls this for FROM and JOIN."""
        if self._match(TokenType.L_PAREN, advance=False):
            raise later("a subquery in FROM")
        if self._match_texts(("LATERAL", "UNNEST", "VALUES"), advance=False):
            raise later(f"{self._curr.text.upper()} in FROM")
        table = self.expression(exp.Table(this=self._identifier("the name of a stream")))
        if self._match(TokenType.DOT, advance=False):
            self.raise_error("a stream has no schema before its name")
        if self._match(TokenType.L_PAREN, advance=False):
            raise later("a table function")
        return self._described(table)

    def _described(self, relation: exp.Expr) -> exp.Expr:
        """The relation with its window and its other name, in either order."""
        alias = self._relation_alias()
        if self._match(TokenType.L_BRACKET):
            relation.meta[WINDOW] = self._window()
            alias = alias or self._relation_alias()
        if alias is not None:
            relation.set("alias", exp.TableAlias(this=alias))
        return relation

    def _relation_alias(self) -> exp.Expr | None:
        if self._match(TokenType.ALIAS):
            return self._identifier("another name for the stream")
        if self._match_texts(_AFTER_RELATION, advance=False):
            return None
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
    functions = set()
    for part in query.walk():
        if isinstance(part, exp.Query) and part is not query:
            return True
        if isinstance(part, exp.Anonymous):
            functions.add(part.name.upper())
    if functions & _ROWS_FUNCTIONS:
        return True
    return not query.args.get("group") and not functions & (AGGREGATES.keys() | _MORE_AGGREGATES)

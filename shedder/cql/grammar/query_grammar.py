"""The grammar of queries in queries: WITH, subqueries in FROM, and their aliases and windows."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.expressions.functions import AGGREGATES
from shedder.cql.grammar.parse_nodes import RawNumber
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.window_grammar import read_window
from shedder.cql.grammar.word_grammar import expect, fail, read_identifier, read_number
from shedder.cql.text.unsupported import later
from synopses.frequent.heavy_share import Promise

WINDOW = "cql_window"  # The key of a relation's meta.
SAMPLE = "cql_sample"  # The key of a relation's meta.
DISTINCT = "cql_distinct"  # The key of the meta of ISTREAM(DISTINCT ...).
AS_OF = "cql_as_of"  # The key of a relation's meta.
COMMA = "COMMA"  # The kind of a join that is written as a comma.

_ROWS_CLAUSES = ("joins", "laterals", "distinct", "offset", "with_")
_MORE_AGGREGATES = frozenset({"COUNT_IF", "COUNTIF", "HISTOGRAM", "CDF", "PERCENTILE_DISC"})
_ROWS_FUNCTIONS = frozenset({"NOW", "ISTREAM", "DSTREAM", "RSTREAM"})
_AFTER_QUERY = ("WITHIN", "CONFIDENCE", "WEIGHT", "REDUCE", "PRODUCER", "THINNING", "COSTING")
_OTHER_JOINS = ("SEMI", "ANTI", "ASOF", "POSITIONAL", "ARRAY")
_AFTER_RELATION = (*_AFTER_QUERY, "REWRITE")


def read_relation(parser: Parser) -> exp.Expr:
    """Read a relation, its window and its other name."""
    if parser._match(TokenType.L_PAREN, advance=False):
        return _described(parser, exp.Subquery(this=read_query_in_brackets(parser)))
    if parser._match_texts(("LATERAL", "UNNEST", "VALUES"), advance=False):
        raise later(f"{parser._curr.text.upper()} in FROM")
    table = parser.expression(exp.Table(this=read_identifier(parser, "the name of a stream")))
    if parser._match(TokenType.DOT, advance=False):
        fail(parser, "a stream has no schema before its name")
    if parser._match(TokenType.L_PAREN, advance=False):
        raise later("a table function")
    moment = _as_of(parser)
    if moment is not None:
        table.meta[AS_OF] = moment
    return _described(parser, table)


def _as_of(parser: Parser) -> exp.Expr | None:
    """Read AS OF, or FOR SYSTEM_TIME AS OF, and an instant; None: it does not follow."""
    spellings = (("FOR", "SYSTEM_TIME", "AS", "OF"), ("AS", "OF"))
    if not any(parser._match_text_seq(*words) for words in spellings):
        return None
    moment: exp.Expr | None = parser._parse_bitwise()
    if moment is None:
        fail(parser, "expected an instant after AS OF, as in AS OF TIMESTAMP '2026-01-31'")
    return moment


def read_ctes(parser: Parser) -> list[exp.CTE]:
    """Read WITH name AS (query), ...; an empty list: WITH does not follow."""
    if not parser._match(TokenType.WITH):
        return []
    if parser._match_text_seq("RECURSIVE"):
        raise later("WITH RECURSIVE")
    ctes: list[exp.CTE] = []
    while True:
        name = read_identifier(parser, "the name of a subquery")
        if parser._match(TokenType.L_PAREN, advance=False):
            raise later("names of columns in WITH; name them in the SELECT")
        expect(parser, TokenType.ALIAS, "AS and a query in brackets")
        query = read_query_in_brackets(parser)
        ctes.append(exp.CTE(this=query, alias=exp.TableAlias(this=name)))
        if not parser._match(TokenType.COMMA):
            return ctes


def begins_query(parser: Parser) -> bool:
    """Return whether SELECT or WITH follows, perhaps behind opening brackets."""
    index = parser._index
    while index < len(parser._tokens) and parser._tokens[index].token_type is TokenType.L_PAREN:
        index += 1
    following = parser._tokens[index : index + 1]
    return any(each.token_type in (TokenType.SELECT, TokenType.WITH) for each in following)


def read_whole_query(parser: Parser) -> exp.Expr:
    """Read a query with all its set operations, and ORDER BY and LIMIT behind brackets."""
    if not begins_query(parser):
        fail(parser, "expected a SELECT")
    query = parser._parse_select(nested=True)
    query = parser._parse_query_modifiers(parser._parse_set_operations(query))
    assert query is not None
    return query


def read_query_in_brackets(parser: Parser) -> exp.Expr:
    """Read ( and a query and )."""
    expect(parser, TokenType.L_PAREN, "( and a SELECT")
    query = read_whole_query(parser)
    expect(parser, TokenType.R_PAREN, ") after the subquery")
    return query


def read_stream_of(parser: Parser, word: str) -> exp.Expr:
    """Read the select list in the brackets of ISTREAM, DSTREAM or RSTREAM."""
    distinct = bool(parser._match(TokenType.DISTINCT))
    items = parser._parse_expressions()
    stream = parser.expression(exp.Anonymous(this=word, expressions=items))
    stream.meta[DISTINCT] = distinct
    return stream


def read_exists(parser: Parser) -> exp.Expr:
    """Read the query in the brackets of EXISTS."""
    return parser.expression(exp.Exists(this=read_whole_query(parser)))


def read_frequent(parser: Parser) -> exp.Expr:
    """Read the arguments of FREQUENT; the words of its promise become a text after them."""
    arguments = parser._parse_csv(parser._parse_disjunction)
    for promise in Promise:
        if parser._match_text_seq(*promise.value.split()):
            arguments.append(exp.Literal.string(promise.value))
    if not parser._match(TokenType.R_PAREN, advance=False):
        fail(parser, f"expected ) or {' or '.join(each.value for each in Promise)}")
    return parser.expression(exp.Anonymous(this="FREQUENT", expressions=arguments))


def _described(parser: Parser, relation: exp.Expr) -> exp.Expr:
    """Read the window of a relation and its other name, in either order."""
    sample = _sample(parser)
    alias = _relation_alias(parser)
    sample = sample or _sample(parser)
    if sample is not None:
        relation.meta[SAMPLE] = sample
    if parser._match(TokenType.L_BRACKET):
        relation.meta[WINDOW] = read_window(parser)
        alias = alias or _relation_alias(parser)
    if alias is not None:
        relation.set("alias", exp.TableAlias(this=alias))
    return relation


def _sample(parser: Parser) -> RawNumber | None:
    """Read SAMPLE(percent)."""
    if not parser._match_text_seq("SAMPLE", "("):
        return None
    percent = read_number(parser)
    expect(parser, TokenType.R_PAREN, ") after the percentage of SAMPLE")
    return percent


def _relation_alias(parser: Parser) -> exp.Expr | None:
    if parser._match(TokenType.ALIAS):
        return read_identifier(parser, "another name for the stream")
    if parser._match_texts(_AFTER_RELATION, advance=False):
        return None
    following = parser._next.token_type if parser._next else None
    if following is TokenType.JOIN and parser._match_texts(_OTHER_JOINS, advance=False):
        raise later(f"{parser._curr.text.upper()} JOIN")
    alias: exp.Expr | None = parser._parse_id_var(any_token=False, tokens={TokenType.VAR})
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
    if any(table.meta.get(key) is not None for key in (SAMPLE, AS_OF)) or (
        window is not None and window.is_of_rows
    ):
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

"""The grammar of whole queries: a SELECT and the clauses that say how it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.cost_grammar import read_costing, read_rewrites, read_share
from shedder.cql.grammar.overload_grammar import read_rows_on_overload
from shedder.cql.grammar.parse_nodes import RawNumber, RawRelational, RawSelect
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.query_grammar import is_relational, read_whole_query
from shedder.cql.grammar.word_grammar import (
    dispatch,
    expect,
    fail,
    read_name,
    read_number,
    skip_percent,
)
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery


def read_query(parser: Parser) -> RawSelect | RawRelational:
    """Read a query of aggregates over one stream, or of rows."""
    query = read_whole_query(parser)
    said = _answer_clauses(parser)
    if isinstance(query, exp.Select) and not is_relational(query):
        return _with_clauses(query, said)
    confidence, sheds = said.pop("CONFIDENCE", None), said.pop(_ON_OVERLOAD, False)
    if sheds and confidence is not None:
        raise BadQuery(
            "CONFIDENCE: aggregates with CONFIDENCE have bounded bytes; leave ON OVERLOAD away"
        )
    for clause in said:
        raise BadQuery(f"{clause}: the rows of this query are exact; leave {clause} away")
    return RawRelational(query, confidence, sheds)


def read_select(parser: Parser) -> RawSelect:
    """Read a query over one stream."""
    query = parser._parse_select()
    if not isinstance(query, exp.Select):
        raise later("UNION, INTERSECT and EXCEPT here")
    return _with_clauses(query, _answer_clauses(parser))


def _answer_clauses(parser: Parser) -> dict[str, Any]:
    said: dict[str, Any] = {}
    while parser._curr:
        clause = dispatch(parser, _ANSWER_CLAUSES)
        if clause is None and parser._match_text_seq("PRODUCER", advance=False):
            break  # Of an INSERT.
        if clause is None:
            fail(parser, f"unexpected {parser._curr.text!r}")
        if clause[0] in said:
            fail(parser, f"{clause[0]} is said twice")
        said[clause[0]] = clause[1]
    return said


def _with_clauses(select: exp.Select, said: dict[str, Any]) -> RawSelect:
    if _ON_OVERLOAD in said:
        raise BadQuery(
            "ON OVERLOAD in a query is for one whose result is rows; load thins a query of "
            "aggregates over one stream, as its stream's ON OVERLOAD says"
        )
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


def _target(parser: Parser) -> tuple[RawNumber, str]:
    size = read_number(parser)
    if skip_percent(parser):
        return size, "PERCENT RANK" if parser._match_text_seq("RANK") else "PERCENT"
    if not parser._match_texts(("ABSOLUTE", "RANK")):
        fail(parser, "expected PERCENT, ABSOLUTE or RANK")
    return size, parser._prev.text.upper()


def _confidence(parser: Parser) -> tuple[RawNumber, bool]:
    return read_number(parser), skip_percent(parser)


def _contract(parser: Parser) -> str:
    if not parser._match_texts(("WIDEN", "OMIT", "EXACT", "FAIL")):
        fail(parser, "expected WIDEN, OMIT, EXACT or FAIL")
    return parser._prev.text.upper()


def _reduction(parser: Parser) -> tuple[str, tuple[exp.Expr, ...]]:
    name = read_name(parser, "the name of a reduction")
    if not parser._match(TokenType.L_PAREN):
        return name, ()
    arguments = parser._parse_csv(parser._parse_unary)
    expect(parser, TokenType.R_PAREN, ")")
    return name, tuple(arguments)


_ON_OVERLOAD = "ON OVERLOAD"
_ANSWER_CLAUSES: dict[str, Callable[[Parser], Any]] = {
    "WITHIN": _target,
    "CONFIDENCE": _confidence,
    "ELSE": _contract,
    "WEIGHT": read_number,
    "REDUCE BY": _reduction,
    "THINNING": read_share,
    "COSTING": read_costing,
    "REWRITE": read_rewrites,
    _ON_OVERLOAD: read_rows_on_overload,
}

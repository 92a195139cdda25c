"""The grammar of ALTER QUERY and ALTER STREAM."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.cost_grammar import read_share, read_size
from shedder.cql.grammar.layout_grammar import read_layout
from shedder.cql.grammar.overload_grammar import read_on_overload
from shedder.cql.grammar.parse_nodes import RawAlterQuery, RawAlterStream
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.word_grammar import fail, read_name
from shedder.cql.statements.statement import (
    WEIGHT_MAX,
    AlterActivity,
    AlterBytes,
    AlterOverload,
    AlterWeight,
)
from shedder.cql.text.sampling_fractions import AUTO
from shedder.cql.text.unsupported import later


def read_alter(
    parser: Parser,
) -> RawAlterQuery | RawAlterStream | AlterOverload | AlterWeight | AlterBytes | AlterActivity:
    """Read the rest of ALTER."""
    if parser._match_text_seq("QUERY"):
        return _alter_query(parser)
    if parser._match_text_seq("STREAM"):
        return _alter_stream(parser)
    raise later("ALTER of anything but a QUERY or a STREAM")


def read_thinning(parser: Parser, name: str) -> RawAlterQuery:
    """Read the rest of ALTER QUERY name SET THINNING."""
    level = None if parser._match_text_seq(AUTO) else read_share(parser)
    of = parser._parse_csv(parser._parse_disjunction) if parser._match_text_seq("FOR") else []
    if not of and parser._prev.text.upper() == "FOR":
        fail(parser, "expected outputs or aggregates of the query")
    return RawAlterQuery(name, level, tuple(of))


def _alter_query(parser: Parser) -> RawAlterQuery | AlterWeight | AlterBytes | AlterActivity:
    name = read_name(parser, "the name of the query")
    if parser._match_text_seq("SET", "WEIGHT"):
        return AlterWeight(name, _weight(parser))
    if parser._match_text_seq("SET", "BYTES"):
        return AlterBytes(name, read_size(parser))
    if parser._match_text_seq("SET", "ACTIVE"):
        return AlterActivity(name, active=True)
    if parser._match_text_seq("SET", "INACTIVE"):
        return AlterActivity(name, active=False)
    if not parser._match_text_seq("SET", "THINNING"):
        fail(
            parser,
            "expected SET THINNING and a share (1/8) or AUTO, SET WEIGHT and a number, "
            "SET BYTES and a size (8 MIB), SET ACTIVE or SET INACTIVE",
        )
    return read_thinning(parser, name)


def _alter_stream(parser: Parser) -> RawAlterStream | AlterOverload:
    stream = read_name(parser, "the name of the stream")
    if parser._match_text_seq("SET", "ON", "OVERLOAD"):
        return AlterOverload(stream, read_on_overload(parser))
    if not parser._match_text_seq("SET", "ARCHIVE"):
        fail(parser, "expected SET ARCHIVE and a layout, or SET ON OVERLOAD and a policy")
    return RawAlterStream(stream, read_layout(parser))


def _weight(parser: Parser) -> float:
    weight = float(parser._prev.text) if parser._match(TokenType.NUMBER) else 0.0
    if not 0 < weight <= WEIGHT_MAX:
        fail(parser, f"expected a number over 0, at most {WEIGHT_MAX:g}")
    return weight

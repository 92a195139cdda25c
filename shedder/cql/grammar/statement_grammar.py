"""The grammar of statements: the first words of each, and the reader of what follows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot.tokenizer_core import TokenType

from shedder.cql.grammar.alter_grammar import read_alter
from shedder.cql.grammar.answer_grammar import read_query, read_select
from shedder.cql.grammar.dml_grammar import read_delete, read_insert
from shedder.cql.grammar.explain_node import RawExplain, RawExplainPrecision
from shedder.cql.grammar.parse_nodes import RawCreateQuery, RawCreateRollup
from shedder.cql.grammar.pure_parser import Parser
from shedder.cql.grammar.query_grammar import begins_query
from shedder.cql.grammar.stream_grammar import read_create_stream
from shedder.cql.grammar.table_grammar import read_create_table, read_update
from shedder.cql.grammar.view_grammar import (
    RawCreateInsert,
    read_create_insert,
    read_create_view,
)
from shedder.cql.grammar.word_grammar import (
    dispatch,
    expect,
    fail,
    read_column_names,
    read_name,
    read_text,
)
from shedder.cql.statements.statement import (
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
from shedder.cql.text.unsupported import LATER, later

_EXPECTED = (
    "SELECT, CREATE, ALTER, DROP, INSERT, UPDATE, DELETE, BACKUP, SCRUB, PURGE, SHOW, DESCRIBE or "
    "EXPLAIN"
)
_SHOWN = ("STREAMS", "QUERIES", "VIEWS", "TABLES", "RUNS", "INDEXES", "ROLLUPS", "TENANTS")


def read_statement(parser: Parser) -> object:
    """Read a statement: a parse node, or a statement that needs no more checks."""
    if begins_query(parser):
        return read_query(parser)
    if parser._curr.token_type is TokenType.IDENTIFIER:  # In quotes, a word is a name.
        fail(parser, f"expected {_EXPECTED}")
    found = dispatch(parser, _STATEMENTS)
    if found is None:
        word = parser._curr.text.upper()
        if word in LATER:
            raise later(LATER[word])
        fail(parser, f"expected {_EXPECTED}")
    return found[1]


# --- CREATE -----------------------------------------------------------------------------------


def _create(parser: Parser) -> object:
    if parser._match_text_seq("OR", "REPLACE"):
        raise later("CREATE OR REPLACE")
    found = dispatch(parser, _CREATED)
    if found is None:
        if parser._match_texts(("SCHEMA", "MATERIALIZED", "TEMPORARY")):
            raise later(f"CREATE {parser._prev.text.upper()}")
        fail(parser, "expected STREAM, TABLE, VIEW, QUERY, ROLLUP or INDEX")
    return found[1]


def _create_index(parser: Parser) -> CreateIndex:
    return CreateIndex(*_indexed_column(parser, ("IF", "NOT", "EXISTS")))


def _create_query(parser: Parser) -> RawCreateQuery | RawCreateInsert:
    name, if_not_exists = _named(parser, "the name of the query", inserts=True)
    if parser._match_text_seq("INSERT"):
        return read_create_insert(parser, name, if_not_exists=if_not_exists)
    return RawCreateQuery(name, read_query(parser), if_not_exists)


def _create_rollup(parser: Parser, *, lazy: bool) -> RawCreateRollup:
    name, if_not_exists = _named(parser, "the name of the rollup")
    return RawCreateRollup(name, read_select(parser), if_not_exists, lazy)


def _named(parser: Parser, what: str, *, inserts: bool = False) -> tuple[str, bool]:
    """Read [IF NOT EXISTS] name AS, before a query: the name, and whether it may exist.

    inserts: INSERT may stand in the place of the query.
    """
    if_not_exists = bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = read_name(parser, what)
    expect(parser, TokenType.ALIAS, "AS and a SELECT")
    if inserts and parser._match_text_seq("INSERT", advance=False):
        return name, if_not_exists
    if not begins_query(parser):
        fail(parser, "expected a SELECT")
    return name, if_not_exists


def _indexed_column(parser: Parser, words: tuple[str, ...]) -> tuple[str, str, bool]:
    """Read [IF ...] ON stream (column); return both, and whether IF ... was there."""
    lenient = bool(parser._match_text_seq(*words))
    if not parser._match_text_seq("ON"):
        fail(parser, "expected ON, a stream and (column); an index has no name of its own")
    stream = read_name(parser, "the name of a stream")
    expect(parser, TokenType.L_PAREN, "( and the name of a column")
    names = read_column_names(parser)
    if len(names) > 1:
        raise later("an index on several columns")
    return stream, names[0], lenient


# --- DROP -------------------------------------------------------------------------------------


def _drop(parser: Parser) -> object:
    if parser._match_text_seq("INDEX"):
        return DropIndex(*_indexed_column(parser, ("IF", "EXISTS")))
    if not parser._match_texts(_DROPPED):
        if parser._match_text_seq("SCHEMA"):
            raise later("DROP SCHEMA")
        fail(parser, "expected STREAM, TABLE, VIEW, QUERY, ROLLUP or INDEX")
    kind = parser._prev.text.upper()
    if_exists = bool(parser._match_text_seq("IF", "EXISTS"))
    return _DROPPED[kind](read_name(parser, f"the name of the {kind.lower()}"), if_exists)


_DROPPED: dict[str, Callable[[str, bool], object]] = {
    "STREAM": DropStream,
    "TABLE": DropTable,
    "VIEW": DropView,
    "QUERY": DropQuery,
    "ROLLUP": DropRollup,
}


# --- administration ---------------------------------------------------------------------------


def _backup(parser: Parser) -> Backup:
    if not parser._match_text_seq("TO"):
        fail(parser, "expected TO and the name of a backup in quotes")
    return Backup(read_text(parser, "the name of a backup in quotes"))


def _scrub(_parser: Parser) -> Scrub:
    return Scrub()


def _purge(parser: Parser) -> Purge:
    parser._match_text_seq("STREAM")
    return Purge(read_name(parser, "the name of a stream"))


def _show(parser: Parser) -> Show:
    if not parser._match_texts(_SHOWN):
        fail(parser, f"expected {', '.join(_SHOWN[:-1])} or {_SHOWN[-1]}")
    return Show(parser._prev.text.upper())


def _describe(parser: Parser) -> Describe:
    parser._match_texts(("STREAM", "TABLE", "QUERY"))
    return Describe(read_name(parser, "the name of a stream, table or query"))


def _explain(parser: Parser) -> RawExplain | RawExplainPrecision | ExplainAllocation:
    if begins_query(parser):
        return RawExplain(read_query(parser))
    plain = parser._curr and parser._curr.token_type is not TokenType.IDENTIFIER
    if plain and parser._match_text_seq("ALLOCATION"):  # In quotes it is a query's name.
        return ExplainAllocation()
    if plain and _begins_precision(parser):
        if begins_query(parser):
            return RawExplainPrecision(read_query(parser))
        return RawExplainPrecision(read_name(parser, "a SELECT or the name of a standing query"))
    if parser._match(TokenType.CREATE):
        if parser._match_text_seq("VIEW"):
            return RawExplain(read_create_view(parser))
        if not parser._match_text_seq("QUERY"):
            fail(parser, "expected QUERY or VIEW, a name, AS and a SELECT")
        return RawExplain(_create_query(parser))
    return RawExplain(read_name(parser, "SELECT, CREATE QUERY, CREATE VIEW or the name of a query"))


def _begins_precision(parser: Parser) -> bool:
    """Read PRECISION before a name; alone it is the name of a query."""
    return bool(parser._next) and bool(parser._match_text_seq("PRECISION"))


_CREATED: dict[str, Callable[[Parser], object]] = {
    "INDEX": _create_index,
    "STREAM": read_create_stream,
    "TABLE": read_create_table,
    "QUERY": _create_query,
    "LAZY ROLLUP": partial(_create_rollup, lazy=True),
    "ROLLUP": partial(_create_rollup, lazy=False),
    "VIEW": read_create_view,
}

_STATEMENTS: dict[str, Callable[[Parser], object]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": read_alter,
    "DELETE": read_delete,
    "INSERT": read_insert,
    "UPDATE": read_update,
    "BACKUP": _backup,
    "SCRUB": _scrub,
    "PURGE": _purge,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
}

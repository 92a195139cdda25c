"""The statement table: one row per class, and no second list of classes in other modules."""

import ast
from collections.abc import Iterator
from typing import get_args

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.statements.statement import Statement
from shedder.engine.administration.statement_executor import HANDLERS
from shedder.engine.runtime.caller import Scope
from shedder.engine.tenants.statement_access import STATEMENTS, names_of, scope_of
from tests.repository import ROOT

CLASSES = {kind.__name__: kind for kind in get_args(Statement)}
CREATE = "CREATE STREAM s (at TIMESTAMP, x BIGINT) TIMESTAMP BY at"

# Scope and names of a text of each class.
ROWS = {
    "SELECT COUNT(*) FROM s": ("query", "stream or table s"),
    "SELECT * FROM s": ("query", "stream or table s"),
    "CREATE QUERY q AS SELECT * FROM s": ("query", "stream or table s, new query q"),
    "CREATE QUERY q AS SELECT COUNT(*) FROM s": ("query", "stream or table s, new query q"),
    "DROP QUERY q": ("query", "query q"),
    "DROP QUERY IF EXISTS q": ("query", "query q?"),
    "EXPLAIN q": ("query", "query q"),
    "EXPLAIN SELECT COUNT(*) FROM s": ("query", "stream or table s"),
    "EXPLAIN CREATE QUERY q AS SELECT COUNT(*) FROM s": (
        "query",
        "stream or table s, new query q",
    ),
    "EXPLAIN ALLOCATION": ("query", ""),
    "EXPLAIN PRECISION q": ("query", "query q"),
    "EXPLAIN PRECISION SELECT COUNT(*) FROM s": ("query", "stream or table s"),
    "SHOW STREAMS": ("query", ""),
    "SHOW TENANTS": ("query", ""),
    "DESCRIBE s": ("query", "stream, table or query s"),
    "INSERT INTO s VALUES (1, 2)": ("ingest", "stream or table s"),
    "INSERT INTO s SELECT * FROM t": ("ingest", "stream or table s, stream or table t"),
    "UPDATE t SET x = 1": ("ingest", "table t"),
    "CREATE TABLE t (x BIGINT PRIMARY KEY)": ("define", "new table t"),
    "DROP TABLE IF EXISTS t": ("define", "table t?"),
    CREATE: ("define", "new stream s"),
    "DROP STREAM s": ("define", "stream s"),
    "DROP STREAM IF EXISTS s": ("define", "stream s?"),
    "ALTER STREAM s SET ARCHIVE LAZY": ("define", "stream s"),
    "ALTER STREAM s SET ON OVERLOAD BLOCK": ("define", "stream s"),
    "ALTER QUERY q SET THINNING 1/8": ("define", "query q"),
    "ALTER QUERY q SET WEIGHT 3": ("define", "query q"),
    "ALTER QUERY q SET BYTES 8 MIB": ("define", "query q"),
    "ALTER QUERY q SET INACTIVE": ("define", "query q"),
    "CREATE ROLLUP r AS SELECT COUNT(*) FROM s [RANGE 1 HOUR]": (
        "define",
        "stream or table s, new rollup r",
    ),
    "CREATE VIEW v AS SELECT x FROM s": ("define", "stream or table s, new view v"),
    "DROP VIEW IF EXISTS v": ("define", "view v?"),
    "CREATE QUERY q AS INSERT INTO t SELECT x FROM s": (
        "define",
        "stream t, stream or table s, new query q",
    ),
    "DROP ROLLUP IF EXISTS r": ("define", "rollup r?"),
    "CREATE INDEX ON s (x)": ("define", "stream s"),
    "DROP INDEX IF EXISTS ON s (x)": ("define", "stream s"),
    "DELETE FROM s WHERE x = 1": ("define", "stream or table s"),
    "PURGE STREAM s": ("define", "stream s"),
    "BACKUP TO 'x'": ("admin", ""),
    "SCRUB": ("admin", ""),
}


def test_every_class_of_statement_has_a_row_and_a_handler():
    assert set(STATEMENTS) == set(HANDLERS) == set(CLASSES.values())


@pytest.mark.parametrize("text", ROWS)
def test_a_statement_needs_this_scope_and_uses_these_names(text):
    statement = parse(text)
    names = ", ".join(
        f"{used.kind.value} {used.name}{'?' if used.if_exists else ''}"
        for used in names_of(statement)
    )
    assert (scope_of(statement).value, names) == ROWS[text]


def test_every_class_and_scope_is_among_these_texts():
    statements = [parse(text) for text in ROWS]
    assert {type(each) for each in statements} == set(CLASSES.values())
    assert {scope_of(each) for each in statements} == set(Scope)


def matched_classes(tree: ast.AST) -> Iterator[str]:
    """The names of the classes that a module compares objects with."""
    for node in ast.walk(tree):
        match node:
            case ast.MatchClass(cls=kind):
                yield from named(kind)
            case ast.Call(func=ast.Name("isinstance"), args=[_, kinds]):
                yield from named(kinds)


def named(tree: ast.expr) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def assigned_unions(tree: ast.Module) -> Iterator[str]:
    """Members of the unions of classes that a module defines, such as `Both = Insert | Delete`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            yield from named(node.value)


def lists_statements(text: str) -> bool:
    tree = ast.parse(text)
    return len({*matched_classes(tree), *assigned_unions(tree)} & set(CLASSES)) > 1


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("match s:\n case Insert(): pass\n case Delete(): pass", True),
        ("match s:\n case cql.Insert() | cql.Delete(): pass", True),
        ("isinstance(s, Insert | Delete)", True),
        ("isinstance(s, (cql.Insert, Delete))", True),
        ("Both = Insert | Delete", True),
        ("isinstance(s, Insert)", False),
        ("match s:\n case Insert(): pass\n case str(): pass", False),
    ],
)
def test_a_list_of_classes_of_statements_is_found(text, lists):
    assert lists_statements(text) is lists


def test_no_other_module_lists_classes_of_statements():
    language = ROOT / "shedder" / "cql"
    modules = [path for path in ROOT.glob("shedder/**/*.py") if language not in path.parents]
    assert modules
    assert not [str(path) for path in modules if lists_statements(path.read_text())]

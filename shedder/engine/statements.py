"""Statements other than questions: what each of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from shedder.cql.shares import share_text
from shedder.cql.statement import (
    AlterQuery,
    CreateQuery,
    CreateStream,
    Describe,
    DropQuery,
    DropStream,
    Explain,
    Select,
    Show,
    Statement,
)
from shedder.engine import describe
from shedder.errors import UnknownQuery, UnknownStream
from shedder.queries.answer import Answer

if TYPE_CHECKING:
    from shedder.engine.engine import Engine


def execute(engine: Engine, statement: Statement, timeout_s: float | None) -> Answer:
    """Run a statement on an engine."""
    match statement:
        case Select():
            return engine.ask(statement, timeout_s)
        case CreateStream(name=name):
            made = engine.create_stream(statement)
            return Answer.status(f"stream {name} {'created' if made else 'exists'}")
        case DropStream(name, if_exists):
            return _drop_stream(engine, name, if_exists=if_exists)
        case CreateQuery(name, select, _):
            query = engine.register_select(name, select)
            return _pairs(query.granted)
        case DropQuery(name, if_exists):
            return _drop_query(engine, name, if_exists=if_exists)
        case AlterQuery(name, level):
            engine.set_thinning(name, level)
            return Answer.status(f"query {name} reads {share_text(level)} of the tuples")
        case Explain(subject):
            text = (
                engine.query(subject).explain()
                if isinstance(subject, str)
                else engine.explain_once(subject)
            )
            return Answer(pa.table({"plan": pa.array(text.splitlines(), pa.string())}))
        case Show(what):
            return Answer(engine.core.actor.call(lambda: describe.show(engine.core, what)).result())
        case Describe(name):
            return Answer(engine.core.actor.call(lambda: describe.one(engine.core, name)).result())
        case _:
            assert_never(statement)


def _drop_stream(engine: Engine, name: str, *, if_exists: bool) -> Answer:
    try:
        engine.drop_stream(name)
    except UnknownStream:
        if not if_exists:
            raise
        return Answer.status(f"stream {name} does not exist")
    return Answer.status(f"stream {name} dropped")


def _drop_query(engine: Engine, name: str, *, if_exists: bool) -> Answer:
    try:
        engine.drop_query(name)
    except UnknownQuery:
        if not if_exists:
            raise
        return Answer.status(f"query {name} does not exist")
    return Answer.status(f"query {name} dropped")


def _pairs(facts: object) -> Answer:
    assert isinstance(facts, dict)
    keys = pa.array(list(facts), pa.string())
    values = pa.array([str(v) for v in facts.values()], pa.string())
    return Answer(pa.table({"granted": keys, "value": values}))

"""Statement executor: the handler of each class of statement, and its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from shedder.cql.binding.new_names import check_outputs
from shedder.cql.binding.table_checks import relational
from shedder.cql.statements import statement as cql
from shedder.cql.statements.archive_layout import layout_text
from shedder.cql.statements.canonical_text import overload_text
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.administration import show_and_describe as describe
from shedder.engine.administration.delete import delete
from shedder.engine.administration.insert import insert
from shedder.engine.administration.table_statements import delete_rows, insert_rows, update_rows
from shedder.engine.allocation.row_plans import row_plans_table
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.services import Services
from shedder.engine.tenants.access_control import absent, check_statement
from shedder.errors import (
    BadQuery,
    BadSetting,
    IndexExists,
    UnknownIndex,
    UnknownQuery,
    UnknownStream,
    UnknownTable,
)
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.plan_lines import plan_table

_BACKUP_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class StatementCall:
    """One execution of a statement, as its handler needs it.

    caller: the caller, whose names the statement may use.
    timeout_s: time that the statement may take; s; None: as long as it needs.
    watch: receives the progress of a long statement, and may cancel it.
    """

    services: Services
    caller: Caller
    timeout_s: float | None
    watch: Watch | None


def execute(
    services: Services,
    statement: cql.Statement,
    timeout_s: float | None,
    watch: Watch | None = None,
    caller: Caller = OPERATOR,
) -> Answer:
    """Run a statement of a caller on the services of an engine."""
    gone = absent(services.core, caller, statement)
    if gone is not None:
        return Answer.status(f"{gone} does not exist")
    check_statement(services.core, caller, statement)
    return HANDLERS[type(statement)](statement, StatementCall(services, caller, timeout_s, watch))


def execute_batches(
    services: Services,
    select: RelationalSelect,
    timeout_s: float | None,
    watch: Watch | None = None,
    caller: Caller = OPERATOR,
) -> AnswerBatches:
    """Answer a row query batch by batch, while its rows are read."""
    check_statement(services.core, caller, select)
    return services.row_queries.batches(select, timeout_s, watch)


def _rows(statement: RelationalSelect, call: StatementCall) -> Answer:
    batches = call.services.row_queries.batches(statement, call.timeout_s, call.watch)
    with batches:
        return batches.read_all()


def _select(statement: cql.Select, call: StatementCall) -> Answer:
    if statement.stream in call.services.core.tables:
        return _rows(relational(statement, is_table=True), call)
    check_outputs(statement)
    return call.services.one_time.ask(statement, call.timeout_s, call.watch)


def _create_stream(statement: cql.CreateStream, call: StatementCall) -> Answer:
    is_new = call.services.definitions.create_stream(statement, call.caller.tenant)
    return _created(f"stream {statement.name}", is_new=is_new)


def _create_table(statement: cql.CreateTable, call: StatementCall) -> Answer:
    is_new = call.services.tables.create(statement, call.caller.tenant)
    return _created(f"table {statement.name}", is_new=is_new)


def _created(what: str, *, is_new: bool) -> Answer:
    return Answer.status(f"{what} {'created' if is_new else 'exists'}")


def _drop_stream(statement: cql.DropStream, call: StatementCall) -> Answer:
    return _dropped("stream", statement, call.services.definitions.drop_stream)


def _drop_table(statement: cql.DropTable, call: StatementCall) -> Answer:
    return _dropped("table", statement, call.services.tables.drop)


def _dropped(
    kind: str,
    statement: cql.DropStream | cql.DropTable | cql.DropQuery,
    drop: Callable[[str], object],
) -> Answer:
    """Drop a stream, table or query; with IF EXISTS, one that is not there is no error."""
    try:
        drop(statement.name)
    except (UnknownStream, UnknownTable, UnknownQuery):
        if not statement.if_exists:
            raise
        return Answer.status(f"{kind} {statement.name} does not exist")
    return Answer.status(f"{kind} {statement.name} dropped")


def _update(statement: cql.Update, call: StatementCall) -> Answer:
    return update_rows(call.services, statement)


def _create_query(statement: cql.CreateQuery, call: StatementCall) -> Answer:
    queries, name = call.services.queries, statement.name
    return _pairs(queries.register_select(name, statement.select, call.timeout_s).granted)


def _drop_query(statement: cql.DropQuery, call: StatementCall) -> Answer:
    return _dropped("query", statement, call.services.queries.drop_query)


def _create_view(statement: cql.CreateView, call: StatementCall) -> Answer:
    made = call.services.views.create(statement, call.caller.tenant, call.timeout_s)
    return Answer.status(f"view {statement.name} {'created' if made else 'exists'}")


def _drop_view(statement: cql.DropView, call: StatementCall) -> Answer:
    try:
        call.services.views.drop(statement.name)
    except UnknownStream:
        if not statement.if_exists:
            raise
        return Answer.status(f"view {statement.name} does not exist")
    return Answer.status(f"view {statement.name} dropped")


def _create_insert(statement: cql.CreateInsert, call: StatementCall) -> Answer:
    made = call.services.views.insert(statement, call.caller.tenant, call.timeout_s)
    return Answer.status(f"query {statement.name} {'created' if made else 'exists'}")


def _create_rollup(statement: cql.CreateRollup, call: StatementCall) -> Answer:
    made = call.services.files.create_rollup(
        statement.name,
        statement.select,
        if_not_exists=statement.if_not_exists,
        lazy=statement.lazy,
    )
    return Answer.status(f"rollup {statement.name} {'created' if made else 'exists'}")


def _drop_rollup(statement: cql.DropRollup, call: StatementCall) -> Answer:
    dropped = call.services.files.drop_rollup(statement.name, if_exists=statement.if_exists)
    return Answer.status(f"rollup {statement.name} {'dropped' if dropped else 'does not exist'}")


def _alter_query(statement: cql.AlterQuery, call: StatementCall) -> Answer:
    thinning = call.services.thinning
    return Answer.status(thinning.set_thinning(statement.name, statement.level, statement.of))


def _alter_overload(statement: cql.AlterOverload, call: StatementCall) -> Answer:
    policy = call.services.definitions.set_on_overload(statement.name, statement.on_overload)
    return Answer.status(f"stream {statement.name} has ON OVERLOAD {overload_text(policy)}")


def _alter_stream(statement: cql.AlterStream, call: StatementCall) -> Answer:
    name, layout = statement.name, statement.layout
    runs = call.services.files.set_layout(name, layout)
    these = "1 run is" if runs == 1 else f"{runs:,} runs are"
    suffix = f"; {these} being rewritten" if runs else ""
    return Answer.status(f"stream {name} has ARCHIVE {layout_text(layout)}{suffix}")


def _alter_weight(statement: cql.AlterWeight, call: StatementCall) -> Answer:
    call.services.budgets.set_weight(statement.name, statement.weight)
    return Answer.status(f"query {statement.name} has WEIGHT {statement.weight:g}")


def _alter_bytes(statement: cql.AlterBytes, call: StatementCall) -> Answer:
    budgets = call.services.budgets
    return Answer.status(budgets.set_join_bytes(statement.name, statement.size_bytes))


def _alter_activity(statement: cql.AlterActivity, call: StatementCall) -> Answer:
    call.services.budgets.set_active(statement.name, active=statement.active)
    return Answer.status(
        f"query {statement.name} is {'active' if statement.active else 'inactive'}"
    )


def _explain_select(services: Services, select: cql.Select) -> str:
    if select.stream in services.core.tables:
        return services.row_queries.explain(relational(select, is_table=True))
    return services.one_time.explain(select)


def _explain(statement: cql.Explain, call: StatementCall) -> Answer:
    subject, services = statement.subject, call.services
    if type(subject) in PREVIEWED:
        return _pairs(PREVIEWED[type(subject)](services, subject))
    if isinstance(subject, str):
        text = services.queries.query(subject).explain()
    else:
        text = EXPLAINED[type(subject)](services, subject)
    return Answer(plan_table(text))


def _explain_allocation(_: cql.ExplainAllocation, call: StatementCall) -> Answer:
    """Return the rows of the caller's queries, and the rows of no query."""
    shares = call.services.budgets.allocation()
    core = call.services.core
    own = set(core.query_names(call.caller))
    plans = core.look(lambda: row_plans_table(core.rows))
    found = pa.concat_tables([shares, plans])
    return Answer(found.filter([row is None or row in own for row in found["query"].to_pylist()]))


def _explain_precision(statement: cql.ExplainPrecision, call: StatementCall) -> Answer:
    query, services = statement.query, call.services
    if isinstance(query, str):
        return Answer(services.queries.precision(query))
    if isinstance(query, RelationalSelect) or query.stream in services.core.tables:
        raise BadQuery(
            "EXPLAIN PRECISION is for questions of aggregates over one stream, and for names of "
            "standing queries; EXPLAIN prints the plan of other questions"
        )
    return Answer(services.one_time.precision(query, call.timeout_s, call.watch))


def _insert(statement: cql.Insert, call: StatementCall) -> Answer:
    if statement.stream in call.services.core.tables:
        return insert_rows(call.services, statement, call.timeout_s)
    if statement.replaces:
        raise BadQuery(f"OR REPLACE is for tables; {statement.stream!r} is a stream without keys")
    return insert(call.services, statement, call.timeout_s, call.watch)


def _delete(statement: cql.Delete, call: StatementCall) -> Answer:
    if statement.select.stream in call.services.core.tables:
        return delete_rows(call.services, statement)
    return delete(call.services, statement, call.timeout_s, call.watch)


def _create_index(statement: cql.CreateIndex, call: StatementCall) -> Answer:
    stream, column = statement.stream, statement.column
    if call.services.files.create_index(stream, column, timeout_s=call.timeout_s, watch=call.watch):
        return Answer.status(f"index on {stream}({column}) created")
    if not statement.if_not_exists:
        raise IndexExists(f"there is an index on {stream}({column})")
    return Answer.status(f"index on {stream}({column}) exists")


def _drop_index(statement: cql.DropIndex, call: StatementCall) -> Answer:
    stream, column = statement.stream, statement.column
    if call.services.files.drop_index(stream, column):
        return Answer.status(f"index on {stream}({column}) dropped")
    if not statement.if_exists:
        raise UnknownIndex(
            f"there is no index on {stream}({column}); "
            "one that is being made is called off by cancelling its task"
        )
    return Answer.status(f"index on {stream}({column}) does not exist")


def _backup(statement: cql.Backup, call: StatementCall) -> Answer:
    """Back up into the operator's directory and nowhere else: the name comes from a client."""
    place = call.services.core.settings.backup_directory
    if place is None:
        raise BadSetting("BACKUP TO needs the setting backup_directory; it is not set")
    name = statement.name
    if not _BACKUP_NAME.fullmatch(name):
        raise BadSetting(
            f"a backup cannot be named {name[:80]!r}: letters, digits, '.', '_' and '-', "
            "not a dot first, at most 100"
        )
    made = call.services.files.backup(place / name, timeout_s=call.timeout_s, watch=call.watch)
    return Answer.status(
        f"backup {name} made: {made.linked_bytes:,} bytes linked, {made.copied_bytes:,} copied"
    )


def _scrub(_: cql.Scrub, call: StatementCall) -> Answer:
    found = call.services.files.scrub(timeout_s=call.timeout_s, watch=call.watch)
    text = f"{found.runs:,} runs with {found.read_bytes:,} bytes read"
    for run, problem in found.damaged:
        text += f"; quarantined {run.file}: {problem}"
    for run, problem in found.unread:
        text += f"; {run.file} was not read: {problem}"
    for run in found.released:
        text += f"; {run.file} is whole again"
    return Answer.status(text)


def _purge(statement: cql.Purge, call: StatementCall) -> Answer:
    rows = call.services.files.purge(statement.stream, timeout_s=call.timeout_s, watch=call.watch)
    return Answer.status(f"{rows:,} deleted rows purged from {statement.stream}")


def _show(statement: cql.Show, call: StatementCall) -> Answer:
    if statement.what == "TENANTS":
        return Answer(call.services.quotas.tenants(call.caller))
    core = call.services.core
    return Answer(core.look(lambda: describe.show(core, statement.what, call.caller)))


def _describe(statement: cql.Describe, call: StatementCall) -> Answer:
    core = call.services.core
    return Answer(core.look(lambda: describe.one(core, statement.name)))


def _pairs(facts: object) -> Answer:
    assert isinstance(facts, dict)
    keys = pa.array(list(facts), pa.string())
    values = pa.array([str(v) for v in facts.values()], pa.string())
    return Answer(pa.table({"granted": keys, "value": values}))


HANDLERS: Mapping[type[Any], Callable[[Any, StatementCall], Answer]] = MappingProxyType(
    {
        cql.Select: _select,
        RelationalSelect: _rows,
        cql.CreateStream: _create_stream,
        cql.DropStream: _drop_stream,
        cql.CreateTable: _create_table,
        cql.DropTable: _drop_table,
        cql.Update: _update,
        cql.CreateQuery: _create_query,
        cql.DropQuery: _drop_query,
        cql.CreateView: _create_view,
        cql.DropView: _drop_view,
        cql.CreateInsert: _create_insert,
        cql.CreateRollup: _create_rollup,
        cql.DropRollup: _drop_rollup,
        cql.AlterQuery: _alter_query,
        cql.AlterWeight: _alter_weight,
        cql.AlterBytes: _alter_bytes,
        cql.AlterActivity: _alter_activity,
        cql.AlterStream: _alter_stream,
        cql.AlterOverload: _alter_overload,
        cql.Insert: _insert,
        cql.Delete: _delete,
        cql.CreateIndex: _create_index,
        cql.DropIndex: _drop_index,
        cql.Backup: _backup,
        cql.Scrub: _scrub,
        cql.Purge: _purge,
        cql.Explain: _explain,
        cql.ExplainAllocation: _explain_allocation,
        cql.ExplainPrecision: _explain_precision,
        cql.Show: _show,
        cql.Describe: _describe,
    }
)
"""The handler of each class of statement; names and scopes are in `tenants.statement_access`."""

EXPLAINED: Mapping[type[Any], Callable[[Services, Any], str]] = MappingProxyType(
    {
        cql.Select: _explain_select,
        RelationalSelect: lambda services, select: services.row_queries.explain(select),
    }
)
"""The plan of each class of one-time query."""

PREVIEWED: Mapping[type[Any], Callable[[Services, Any], Mapping[str, str]]] = MappingProxyType(
    {
        cql.CreateQuery: lambda services, made: services.queries.explain_registration(made.select),
        cql.CreateView: lambda services, made: services.views.preview(made),
        cql.CreateInsert: lambda services, made: services.views.preview(made),
    }
)
"""What each class of statement that registers a query would grant."""

"""Statement executor: the effect of each statement that is not a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from shedder.cql.binding.new_names import check_outputs
from shedder.cql.statements.archive_layout import layout_text
from shedder.cql.statements.canonical_text import overload_text
from shedder.cql.statements.statement import (
    AlterActivity,
    AlterOverload,
    AlterQuery,
    AlterStream,
    AlterWeight,
    Backup,
    CreateIndex,
    CreateQuery,
    CreateRollup,
    CreateStream,
    Delete,
    Describe,
    DropIndex,
    DropQuery,
    DropRollup,
    DropStream,
    Explain,
    ExplainAllocation,
    Insert,
    Purge,
    Scrub,
    Select,
    Show,
    Statement,
)
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.administration import show_and_describe as describe
from shedder.engine.administration.budget_controls import Budgets
from shedder.engine.administration.delete import delete
from shedder.engine.administration.file_controls import Upkeep
from shedder.engine.administration.insert import insert
from shedder.engine.administration.quota_controls import TenantQuotas
from shedder.engine.administration.stream_definitions import StreamDefinitions
from shedder.engine.administration.thinning_controls import ToldLevels
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.caller import OPERATOR, Asker
from shedder.engine.services import Services
from shedder.engine.tenants.access_control import absent, check_statement, own_streams
from shedder.errors import BadSetting, IndexExists, UnknownIndex, UnknownQuery, UnknownStream
from shedder.queries.answers.answer import Answer

if TYPE_CHECKING:
    from shedder.archive.operations.scrub import Scrubbed
    from shedder.engine.runtime.background_tasks import Watch

_BACKUP_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def execute(
    services: Services,
    statement: Statement,
    timeout_s: float | None,
    watch: Watch | None = None,
    asker: Asker = OPERATOR,
) -> Answer:
    """Run a statement of a caller on the services of an engine."""
    core, files = services.core, Upkeep(services)
    gone = absent(core, asker, statement)
    if gone is not None:
        return Answer.status(f"{gone} does not exist")
    check_statement(core, asker, statement)
    match statement:
        case Select():
            check_outputs(statement)
            return services.one_time.ask(statement, timeout_s, watch)
        case CreateStream(name=name):
            made = StreamDefinitions(services).create_stream(statement, asker.tenant)
            return Answer.status(f"stream {name} {'created' if made else 'exists'}")
        case DropStream(name, if_exists):
            return _drop_stream(services, name, if_exists=if_exists)
        case CreateQuery(name, select, _):
            query = services.queries.register_select(name, select)
            return _pairs(query.granted)
        case DropQuery(name, if_exists):
            return _drop_query(services, name, if_exists=if_exists)
        case CreateRollup(name, select, if_not_exists, lazy):
            made = files.create_rollup(name, select, if_not_exists=if_not_exists, lazy=lazy)
            return Answer.status(f"rollup {name} {'created' if made else 'exists'}")
        case DropRollup(name, if_exists):
            dropped = files.drop_rollup(name, if_exists=if_exists)
            return Answer.status(f"rollup {name} {'dropped' if dropped else 'does not exist'}")
        case AlterQuery(name, level, of):
            outputs = ToldLevels(services).set_thinning(name, level, of)
            told = f"{', '.join(outputs)} of query {name} read" if of else f"query {name} reads"
            share = "what load leaves" if level is None else share_text(level)
            return Answer.status(f"{told} {share} of the tuples")
        case AlterOverload(name, asked):
            policy = files.set_on_overload(name, asked)
            return Answer.status(f"stream {name} has ON OVERLOAD {overload_text(policy)}")
        case AlterStream(name, layout):
            runs = files.set_layout(name, layout)
            these = "1 run is" if runs == 1 else f"{runs:,} runs are"
            told = f"; {these} being rewritten" if runs else ""
            return Answer.status(f"stream {name} has ARCHIVE {layout_text(layout)}{told}")
        case Explain(CreateQuery(_, select, _)):
            return _pairs(services.queries.explain_registration(select))
        case AlterWeight(name, weight):
            Budgets(services).set_weight(name, weight)
            return Answer.status(f"query {name} has WEIGHT {weight:g}")
        case AlterActivity(name, active):
            Budgets(services).set_active(name, active=active)
            return Answer.status(f"query {name} is {'active' if active else 'inactive'}")
        case ExplainAllocation():
            return Answer(_own_rows(core, Budgets(services).allocation(), asker))
        case Explain(subject):
            assert not isinstance(subject, CreateQuery)
            text = (
                services.queries.query(subject).explain()
                if isinstance(subject, str)
                else services.one_time.explain(subject)
            )
            return Answer(pa.table({"plan": pa.array(text.splitlines(), pa.string())}))
        case Insert():
            return insert(services, statement, timeout_s, watch)
        case Delete():
            return delete(services, statement, timeout_s, watch)
        case CreateIndex(stream, column, lenient):
            if files.create_index(stream, column, timeout_s=timeout_s, watch=watch):
                return Answer.status(f"index on {stream}({column}) created")
            if not lenient:
                raise IndexExists(f"there is an index on {stream}({column})")
            return Answer.status(f"index on {stream}({column}) exists")
        case DropIndex(stream, column, lenient):
            if files.drop_index(stream, column):
                return Answer.status(f"index on {stream}({column}) dropped")
            if not lenient:
                raise UnknownIndex(
                    f"there is no index on {stream}({column}); "
                    "one that is being made is called off by cancelling its task"
                )
            return Answer.status(f"index on {stream}({column}) does not exist")
        case Backup(name):
            return _backup(files, name, timeout_s, watch)
        case Scrub():
            return _scrubbed(files.scrub(timeout_s=timeout_s, watch=watch))
        case Purge(stream):
            rows = files.purge(stream, timeout_s=timeout_s, watch=watch)
            return Answer.status(f"{rows:,} deleted rows purged from {stream}")
        case Show("TENANTS"):
            return Answer(TenantQuotas(services).tenants(asker))
        case Show(what):
            return Answer(core.look(lambda: describe.show(core, what, asker)))
        case Describe(name):
            return Answer(core.look(lambda: describe.one(core, name)))
        case _:
            assert_never(statement)


def _own_rows(core: EngineState, shares: pa.Table, asker: Asker) -> pa.Table:
    """The rows of an allocation of a caller's queries, and those of no query."""
    own = {query for stream in own_streams(core, asker) for query in stream.queries}
    return shares.filter([row is None or row in own for row in shares["query"].to_pylist()])


def _drop_stream(services: Services, name: str, *, if_exists: bool) -> Answer:
    try:
        StreamDefinitions(services).drop_stream(name)
    except UnknownStream:
        if not if_exists:
            raise
        return Answer.status(f"stream {name} does not exist")
    return Answer.status(f"stream {name} dropped")


def _drop_query(services: Services, name: str, *, if_exists: bool) -> Answer:
    try:
        services.queries.drop_query(name)
    except UnknownQuery:
        if not if_exists:
            raise
        return Answer.status(f"query {name} does not exist")
    return Answer.status(f"query {name} dropped")


def _scrubbed(found: Scrubbed) -> Answer:
    text = f"{found.runs:,} runs with {found.read_bytes:,} bytes read"
    for run, problem in found.damaged:
        text += f"; quarantined {run.file}: {problem}"
    for run, problem in found.unread:
        text += f"; {run.file} was not read: {problem}"
    for run in found.released:
        text += f"; {run.file} is whole again"
    return Answer.status(text)


def _backup(files: Upkeep, name: str, timeout_s: float | None, watch: Watch | None) -> Answer:
    """Into the operator's directory of backups, and nowhere else: the name comes from a client."""
    place = files.core.settings.backup_directory
    if place is None:
        raise BadSetting("BACKUP TO needs the setting backup_directory; it is not set")
    if not _BACKUP_NAME.fullmatch(name):
        raise BadSetting(
            f"a backup cannot be named {name[:80]!r}: letters, digits, '.', '_' and '-', "
            "not a dot first, at most 100"
        )
    made = files.backup(place / name, timeout_s=timeout_s, watch=watch)
    return Answer.status(
        f"backup {name} made: {made.linked_bytes:,} bytes linked, {made.copied_bytes:,} copied"
    )


def _pairs(facts: object) -> Answer:
    assert isinstance(facts, dict)
    keys = pa.array(list(facts), pa.string())
    values = pa.array([str(v) for v in facts.values()], pa.string())
    return Answer(pa.table({"granted": keys, "value": values}))

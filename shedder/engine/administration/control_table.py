"""Control table: properties of every stream, table, query and other entity, one per row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from shedder.cql.statements.archive_layout import layout_text
from shedder.cql.statements.canonical_text import overload_text
from shedder.engine.administration.show_and_describe import relaid_share
from shedder.engine.dataflow.row_status import operator_status, row_status
from shedder.engine.engine_state import EngineState
from shedder.engine.services import Services
from shedder.engine.standing_queries.standing_query import status_of
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tenants.tenant_report import tenant_facts, tenants_table
from shedder.errors import BadSetting

Row = tuple[str, str, str, str]

_SCHEMA = pa.schema([(name, pa.string()) for name in ("entity", "name", "key", "value")])
_LOOK_SECONDS = 0.01  # Queries are looked at for so long before others may have the apply thread.


def control_table(services: Services, entity: str = "", name: str = "") -> pa.Table:
    """Its rows of an entity and a name; of all where a word is empty."""
    rows = [row for row in _rows(services, entity, name) if name in ("", row[1])]
    columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(_SCHEMA))]
    return pa.table(columns, schema=_SCHEMA)


def set_control(services: Services, entity: str, name: str, key: str, value: str) -> None:
    """Change a property of the control table, as `Engine.set_control`."""
    match entity, key:
        case "stream", "seal":
            services.cutter.seal(name)
        case "task", "cancel":
            services.tasks.cancel(name)
        case "query", "thinning":
            setting = services.statements.parse_thinning(name, value)
            services.thinning.set_thinning(name, setting.level, setting.of)
        case "overload", "mode" if value in ("on", "off"):
            services.lifetime.check_open()
            with services.ddl:
                services.overload.start() if value == "on" else services.overload.stop()
        case "query", "weight":
            services.budgets.weight_from(name, value)
        case "query", "bytes":
            services.budgets.join_bytes_from(name, value)
        case "query", "active" if value.lower() in ("true", "false"):
            services.budgets.set_active(name, active=value.lower() == "true")
        case "tenant", _:
            services.quotas.set_quota(name, key, value)
        case "budget", "bytes" if name == "synopses":
            services.budgets.budget_from(value)
        case "budget", "bytes" if name == "row_query":
            services.budgets.row_query_from(value)
        case "scheduler", "policy" | "latency_ms":
            services.scheduling.set_from(key, value)
        case _:
            raise BadSetting(
                f"no control {entity}.{key} = {value!r}; there are stream.seal, task.cancel, "
                "query.thinning, query.weight, query.active (true, false), query.bytes (of a join "
                "with CONFIDENCE), budget.bytes (of "
                "synopses, of row_query), tenant "
                "quotas (SHOW TENANTS), scheduler.policy (fifo, greedy, round_robin, chain), "
                "scheduler.latency_ms and overload.mode (on or off)"
            )


def _rows(services: Services, entity: str, name: str) -> Iterator[Row]:
    """Those of the entity; of other names, too, where leaving them out would save nothing."""
    core, overload = services.core, services.overload
    if entity in ("", "stream", "query"):
        yield from _streams_and_queries(core, entity, name)
    if entity in ("", "operator", "queue"):
        yield from (row for row in _operators(core) if entity in ("", row[0]))
    if entity in ("", "scheduler"):
        for path, facts in services.scheduling.facts():
            yield from _facts("scheduler", path, facts)
    if entity in ("", "table"):
        for table in core.tables.values():
            yield from _facts("table", table.schema.name, table.facts())
    if entity in ("", "tenant", "budget", "synopsis"):
        shares = services.budgets.allocation()
        if entity in ("", "tenant"):
            yield from tenant_facts(tenants_table(core, shares, overload.cpu_ns_per_s()))
        yield from (row for row in _shares(core, shares) if entity in ("", row[0]))
    if entity in ("", "overload"):
        yield from _facts("overload", "", overload.facts())
    if entity in ("", "archive"):
        yield from _facts("archive", "", core.store.facts())
    if entity in ("", "checkpoint"):
        yield from _facts("checkpoint", "", core.look(services.checkpoints.facts))
    if entity in ("", "repair"):
        yield from _facts("repair", "", services.repair.facts())
    if entity in ("", "scrub"):
        yield from _facts("scrub", "background", services.housekeeping.facts())
    if entity in ("", "audit"):
        yield from _facts("audit", "service", services.audit.facts())
    if entity in ("", "task"):
        for task, facts in services.tasks.facts():
            yield from _facts("task", task, facts)


def _streams_and_queries(core: EngineState, entity: str, name: str) -> Iterator[Row]:
    """Each stream, and its queries after it."""
    for stream in list(core.streams.values()):
        if entity != "query":
            yield from core.look(partial(_stream, core, stream))
        names = deque(() if entity == "stream" else stream.queries)
        if name:
            names = deque([name] if name in names else ())
        while names:
            yield from core.look(partial(_queries, core, stream, names))
    for query in list(core.rows.queries.values()) if entity != "stream" else ():
        if name in ("", query.name):
            yield from _facts("query", query.name, core.look(partial(row_status, query)))


def _operators(core: EngineState) -> Iterator[Row]:
    """Operators of row queries, and the tuples that wait before them."""
    for query in list(core.rows.queries.values()):
        operators = core.look(partial(core.rows.operators, query))
        for entity, name, facts in operator_status(query.name, operators):
            yield from _facts(entity, name, facts)


def _stream(core: EngineState, stream: Stream) -> list[Row]:
    """On the apply thread; nothing of one that was dropped meanwhile."""
    name = stream.schema.name
    if core.streams.get(name) is not stream:
        return []
    intake = core.intakes[name]
    facts = {
        "id": stream.id,
        "tenant": stream.schema.tenant,
        "position": stream.position,
        "backfilled": core.store.backfills.rows(stream.id),
        "durable_position": intake.durable.position,
        "watermark_us": "" if stream.watermark_us is None else stream.watermark_us,
        "late": stream.late,
        "dropped": stream.drops.rows,
        "lost": core.store.lost(stream.id),
        "on_overload": overload_text(stream.schema.on_overload),
        "summarised": stream.built,
        "to_follow": stream.expected_rows.rows,
        "duplicate": intake.duplicate,
        "refused_batches": intake.refused_batches,
        "refused_rows": intake.refused_rows,
        "sample_bytes": stream.sample.size_bytes,
        "archive": layout_text(stream.schema.layout),
        "relaid": f"{relaid_share(core, stream):.4f}",
        "tail_rows": core.store.tail_rows(stream.id),
        "runs": len(core.store.runs(stream.id)),
        "quarantined_runs": len(core.store.quarantine.runs(stream.id)),
        "repair_lost": "; ".join(
            what
            for repair in core.store.recovery.repairs
            if repair.covers(stream.id)
            for what in repair.lost
        ),
        "directory": core.store.directory,
    }
    return list(_facts("stream", name, facts))


def _queries(core: EngineState, stream: Stream, names: deque[str]) -> list[Row]:
    """On the apply thread, for a moment: the first of these, which are taken from them."""
    ends_s = core.machine.monotonic_s() + _LOOK_SECONDS
    rows: list[Row] = []
    while names:
        name = names.popleft()
        if name in stream.queries:  # Else it was dropped meanwhile.
            rows += _facts("query", name, status_of(stream.queries[name]))
        if core.machine.monotonic_s() >= ends_s:
            break
    return rows


def _shares(core: EngineState, shares: pa.Table) -> Iterator[Row]:
    """The budget of synopses and of a row query, and every synopsis' part of it.

    shares: as EXPLAIN ALLOCATION has them.
    """
    free_bytes = shares["size_bytes"][-1].as_py()
    yield "budget", "synopses", "bytes", str(core.synopsis_bytes)
    yield "budget", "synopses", "free_bytes", str(free_bytes)
    yield "budget", "row_query", "bytes", str(core.row_query_bytes)
    number: dict[str, int] = {}
    for row in shares.slice(0, len(shares) - 1).to_pylist():
        query = row.pop("query")
        number[query] = number.get(query, -1) + 1
        facts = {key: value for key, value in row.items() if value is not None}
        yield from _facts("synopsis", f"{query}/{number[query]}", facts)


def _facts(entity: str, name: str, facts: Mapping[str, object]) -> Iterator[Row]:
    return ((entity, name, key, str(value)) for key, value in facts.items())

"""Start and end of an engine: build its services, start them, and drain them."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import structlog

from shedder.archive.archive_store import Store
from shedder.archive.exact.client import ExactWorker
from shedder.cql.binding.statement_cache import StatementCache
from shedder.cql.text.size_limits import Limits
from shedder.engine.admission.admission_control import Admission
from shedder.engine.admission.stream_ingest import Ingest
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.apply.apply_loop import ApplyLoop
from shedder.engine.apply.load_levels import LoadLevels
from shedder.engine.apply.record_handler import RecordHandler
from shedder.engine.apply.size_records import PaneShrinker
from shedder.engine.apply.window_answers import WindowAnswers
from shedder.engine.audit.self_audit import Audit
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.controls.budget_controls import BudgetControls
from shedder.engine.controls.file_controls import FileControls
from shedder.engine.controls.quota_controls import QuotaControls
from shedder.engine.controls.scheduling_controls import SchedulingControls
from shedder.engine.controls.stream_definitions import StreamDefinitions
from shedder.engine.controls.table_controls import TableControls
from shedder.engine.controls.table_pushes import TablePushes
from shedder.engine.controls.thinning_controls import ThinningControls
from shedder.engine.controls.view_controls import ViewControls
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.load_shedding.spare_capacity import SpareCapacity
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.engine.maintenance.run_cutter import RunCutter
from shedder.engine.maintenance.run_rewriter import RunRewriter
from shedder.engine.maintenance.scrub_and_purge import ScrubAndPurge
from shedder.engine.one_time_queries.exact_reader import ExactReader
from shedder.engine.one_time_queries.exact_windows import ExactWindows
from shedder.engine.one_time_queries.executor import OneTime
from shedder.engine.one_time_queries.row_queries import RowQueries
from shedder.engine.rebuild.backfill import Backfills
from shedder.engine.rebuild.pane_repair import Repair
from shedder.engine.recovery.log_replay import recover
from shedder.engine.registration.query_registry import QueryRegistry
from shedder.engine.runtime.environment import Environment
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.services import Services
from shedder.settings import Settings

_log = structlog.get_logger("shedder.engine")


def build(
    store: Store, settings: Settings, machine: Environment, producer_limits: ProducerLimits | None
) -> Services:
    """Build the services of an engine; each is given the ones before it, and none runs yet."""
    lifetime, ddl = Lifetime(), threading.RLock()
    statements = StatementCache(_limits(settings))
    core = EngineState(store, settings, machine, producer_limits)
    checkpoints = Checkpoints(core)
    indexer = IndexBuilder(core)
    relayouts = RunRewriter(core, indexer)
    cutter = RunCutter(core, indexer, relayouts.wake)
    sharing = Rebalancer(core, ddl)
    load_levels = LoadLevels(core)
    windows = WindowAnswers(core)
    records = RecordHandler(core, windows, PaneShrinker(core))
    apply_loop = ApplyLoop(
        core, records, windows, load_levels, cutter, checkpoints, share_out=sharing.soon
    )
    admission = Admission(core)
    exact = ExactWorker(
        store.directory / "tmp" / "exact",
        memory_bytes=settings.exact_memory_bytes,
        threads=settings.exact_threads,
        timeout_s=settings.exact_timeout_s,
    )
    exact_reader = ExactReader(core, exact, relayouts.wake)
    exact_windows = ExactWindows(core, exact_reader)
    spare = SpareCapacity()
    repair = Repair(core, checkpoints, lambda: spare.idle, lambda: spare.share)
    overload = Overload(core, load_levels, spare, share_out=sharing.soon, on_idle=repair.wake)
    tables = TableControls(core, lifetime, ddl, checkpoints)
    definitions = StreamDefinitions(core, lifetime, ddl, checkpoints)
    queries = QueryRegistry(
        core, lifetime, ddl, sharing, overload, checkpoints, exact_windows.answer
    )
    budgets = BudgetControls(core, lifetime, ddl, sharing)
    return Services(
        lifetime=lifetime,
        ddl=ddl,
        statements=statements,
        core=core,
        tasks=core.tasks,
        checkpoints=checkpoints,
        indexer=indexer,
        relayouts=relayouts,
        cutter=cutter,
        sharing=sharing,
        load_levels=load_levels,
        records=records,
        apply_loop=apply_loop,
        admission=admission,
        ingest=Ingest(core, admission),
        backfills=Backfills(core, lifetime, ddl, checkpoints, indexer, relayouts),
        exact=exact,
        exact_windows=exact_windows,
        one_time=OneTime(core, exact_reader, relayouts.wake),
        row_queries=RowQueries(core, exact),
        repair=repair,
        overload=overload,
        housekeeping=ScrubAndPurge(core, relayouts),
        queries=queries,
        audit=Audit(core, checkpoints, relayouts.wake),
        definitions=definitions,
        views=ViewControls(core, lifetime, ddl, definitions, queries),
        tables=tables,
        table_pushes=TablePushes(core, tables),
        files=FileControls(core, lifetime, ddl, relayouts, indexer),
        thinning=ThinningControls(core, lifetime, ddl),
        budgets=budgets,
        scheduling=SchedulingControls(core, lifetime),
        quotas=QuotaControls(core, lifetime, ddl, sharing, budgets, overload),
    )


def start(services: Services) -> None:
    """Recover what the directory holds, and start every service.

    If one cannot start, the services that run are ended, and the directory is released.

    Raises:
      CorruptData, DiskFull, StorageFailed: the directory cannot be recovered.
    """
    try:
        _start(services)
    except BaseException:
        try:
            drain(services, 0.0)
        except Exception as error:  # The cause of the failed start is what the caller needs.
            _log.error("drain_failed", exc_info=error)
        raise


def _start(services: Services) -> None:
    core = services.core
    recover(core, services.checkpoints, services.records, services.exact_windows.answer)
    core.end_recovery()
    services.apply_loop.start()
    services.indexer.catch_up()
    for name in core.streams:
        services.relayouts.wake(name)
    services.housekeeping.start()
    services.overload.release()
    if core.settings.overload == "on":
        services.overload.start()
    if core.settings.audit == "on":
        services.audit.start()


def drain(services: Services, within_s: float) -> None:
    """End what runs beside ingest, apply what is durable, checkpoint, and release the directory.

    A service that fails to end keeps none of the others from ending.

    within_s: what is not applied by then stays in the log, and the next start applies it.
    """
    with ExitStack() as stack:  # The last callback is called first.
        stack.callback(services.core.store.close)
        stack.callback(services.indexer.close)
        stack.callback(services.apply_loop.close, within_s)
        stack.callback(services.sharing.close)
        stack.callback(services.relayouts.close)
        stack.callback(services.housekeeping.close)
        stack.callback(services.repair.close)
        stack.callback(services.tasks.close)
        stack.callback(services.exact.close)
        stack.callback(services.exact_windows.close)
        stack.callback(services.audit.close)
        stack.callback(services.overload.close)
        stack.callback(services.queries.close)


def _limits(settings: Settings) -> Limits:
    return Limits(
        text_bytes_max=settings.query_text_bytes_max,
        depth_max=settings.query_depth_max,
        nodes_max=settings.query_nodes_max,
        panes_max=settings.panes_max,
    )

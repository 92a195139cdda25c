"""Services of an engine: the objects that statements and controls use."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from shedder.archive.exact.client import ExactWorker
from shedder.cql.binding.statement_cache import StatementCache
from shedder.engine.admission.admission_control import Admission
from shedder.engine.admission.stream_ingest import Ingest
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.apply.apply_loop import ApplyLoop
from shedder.engine.apply.load_levels import LoadLevels
from shedder.engine.apply.record_handler import RecordHandler
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
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.engine.maintenance.run_cutter import RunCutter
from shedder.engine.maintenance.run_rewriter import RunRewriter
from shedder.engine.maintenance.scrub_and_purge import ScrubAndPurge
from shedder.engine.one_time_queries.exact_windows import ExactWindows
from shedder.engine.one_time_queries.executor import OneTime
from shedder.engine.one_time_queries.row_queries import RowQueries
from shedder.engine.rebuild.backfill import Backfills
from shedder.engine.rebuild.pane_repair import Repair
from shedder.engine.registration.query_registry import QueryRegistry
from shedder.engine.runtime.background_tasks import Tasks
from shedder.engine.runtime.lifetime import Lifetime


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """Each service of one engine, in the order in which they depend on each other.

    ddl: held while streams, queries or rollups are created, changed or dropped.
    statements: parsed texts.
    """

    lifetime: Lifetime
    ddl: threading.RLock
    statements: StatementCache
    core: EngineState
    tasks: Tasks
    checkpoints: Checkpoints
    indexer: IndexBuilder
    relayouts: RunRewriter
    cutter: RunCutter
    sharing: Rebalancer
    load_levels: LoadLevels
    records: RecordHandler
    apply_loop: ApplyLoop
    admission: Admission
    ingest: Ingest
    backfills: Backfills
    exact: ExactWorker
    exact_windows: ExactWindows
    one_time: OneTime
    row_queries: RowQueries
    repair: Repair
    overload: Overload
    housekeeping: ScrubAndPurge
    queries: QueryRegistry
    audit: Audit
    definitions: StreamDefinitions
    views: ViewControls
    tables: TableControls
    table_pushes: TablePushes
    files: FileControls
    thinning: ThinningControls
    budgets: BudgetControls
    scheduling: SchedulingControls
    quotas: QuotaControls

"""Setting records: weights, activity, budget and quotas, in force as soon as they are durable.

None of them changes what becomes of a tuple, so they need not wait for the batches before them. A
checkpoint may then have a setting before its record is below the checkpoint's sequence, and a
replay puts it in force again, in the order of the log. But there is no checkpoint beyond a record
that has not what the record says.
"""

from __future__ import annotations

from shedder.archive.files.data_directory import FORMAT_ALTERED, FORMAT_FOREIGN_KEYS
from shedder.archive.log.records import RecordType
from shedder.archive.log.setting_changes import (
    Alteration,
    BudgetAltered,
    QueryAltered,
    QuotasAltered,
    RowLimitAltered,
    alteration_to_parts,
)
from shedder.engine.engine_state import EngineState


def alter(core: EngineState, alteration: Alteration) -> None:
    """Make a setting durable and put it in force; returns then.

    The caller holds the lock of DDL, so no query or stream is made or dropped meanwhile.

    Raises:
      DiskFull, StorageFailed, Draining: nothing has changed.
    """
    has_limit = isinstance(alteration, RowLimitAltered)
    core.store.allow(FORMAT_FOREIGN_KEYS if has_limit else FORMAT_ALTERED)
    parts = alteration_to_parts(alteration, core.clock_us())
    core.log_queue.write(RecordType.ALTERED, parts, alteration, urgent=True)


def apply_alteration(core: EngineState, alteration: Alteration) -> None:
    """Put in force what is durable. On the disk thread, or replaying, in order of the log."""
    match alteration:
        case QueryAltered(stream_id, query, weight, active):
            known = core.query_of(stream_id, query)
            if known is not None:
                known[1].alter(weight=weight, active=active)
        case BudgetAltered(synopsis_bytes):
            core.set_synopsis_bytes(synopsis_bytes)
        case RowLimitAltered(row_query_bytes):
            core.set_row_query_bytes(row_query_bytes)
        case QuotasAltered(overrides):
            core.tenants.tell(overrides)

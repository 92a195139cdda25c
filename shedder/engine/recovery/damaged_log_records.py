"""Damaged log records: streams and tables of which the damaged bytes may have held something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from shedder.archive.archive_store import Store
from shedder.archive.log.log_segment import Damage, header_of
from shedder.archive.log.records import Batch, RecordType
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import LiveTable

_QUIET = frozenset(
    {
        RecordType.MARK,
        RecordType.HEARTBEAT,
        RecordType.LEVEL,
        RecordType.SIZES,
        RecordType.LEVEL_FROM,
        RecordType.ALTERED,
        RecordType.TABLE,
        RecordType.IDLE,
    }
)
"""Kinds of records without tuples of streams."""
_DROPS = frozenset({Policy.DROP, Policy.DROP_LEAST})


def uncounted(
    store: Store, streams: Mapping[str, Stream], held_to: Mapping[str, int]
) -> tuple[str, ...]:
    """The streams that may have lost tuples of which no position tells how many.

    A batch that is lost leaves a hole between the positions of those before and behind it. It does
    not where nothing of its stream is behind it; and summaries that were built elsewhere, and what
    was dropped at the door, have no positions at all.

    Args:
      store: after its log was read; what is below its checkpoint was applied before.
      streams: by name, with what they have lost.
      held_to: by name, the log's number of the last batch of a stream that is there.
    """
    start = store.catalog.checkpoint_sequence()
    found = set[str]()
    for damage in store.recovery.log.damages:
        if damage.end_sequence is not None and damage.end_sequence <= start:
            continue
        if damage.kind in _QUIET:
            continue
        owner = _owner(store, streams, damage)
        for name, stream in streams.items():
            behind = held_to.get(name, -1) > damage.first_sequence
            if owner in (None, name) and _hides(damage, stream, is_behind=behind):
                found.add(name)
    return tuple(sorted(found))


def lost_changes(
    store: Store, tables: Mapping[str, LiveTable], held_to: Mapping[int, int]
) -> dict[str, int]:
    """By name of a table, the changes behind its last one that are lost, or may be.

    A lost change leaves a gap between the numbers of the changes before and behind it. It does not
    where nothing of its table is behind it. Damaged bytes do not tell their table reliably, so each
    damage counts as a change of every table that has no later change.

    Args:
      store: after its log was read; what is below its checkpoint was applied before.
      tables: by name, after the changes in the log were applied.
      held_to: by id of a table, the log's number of its last change that is there.
    """
    start, found = store.catalog.checkpoint_sequence(), Counter[str]()
    for damage in store.recovery.log.damages:
        if damage.end_sequence is not None and damage.end_sequence <= start:
            continue
        if damage.kind not in (None, RecordType.TABLE):
            continue
        found.update(
            name
            for name, table in tables.items()
            if held_to.get(table.id, -1) < damage.first_sequence
        )
    return dict(found)


def _hides(damage: Damage, stream: Stream, *, is_behind: bool) -> bool:
    """Return whether damage may have taken tuples of a stream without a hole in its positions."""
    if damage.kind == RecordType.BUILT or not is_behind:
        return True
    if stream.schema.on_overload.policy in _DROPS:
        return True
    return damage.kind is None and stream.takes_summaries


def _owner(store: Store, streams: Mapping[str, Stream], damage: Damage) -> str | None:
    """Return the stream of a batch whose header is left and fits the hole; None: not known."""
    if damage.kind != RecordType.BATCH:
        return None
    data = header_of(store.files, damage)
    try:
        header = Batch.from_bytes(data)
    except UnicodeDecodeError:
        return None
    for name, stream in streams.items():
        if stream.id == header.stream and any(
            first <= header.first_position and header.end_position <= end
            for first, end in stream.lost.until
        ):
            return name
    return None

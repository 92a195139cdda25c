"""Recovery of log segments before the first append: verify, cut a torn tail, report damage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from shedder.archive.files.file_system import Files, WriteFile, atomic_write, unused
from shedder.archive.log.log_segment import (
    RECORD_HEAD_BYTES,
    SEGMENT_HEAD_BYTES,
    Damage,
    Record,
    SegmentHead,
    scan,
)
from shedder.errors import CorruptData

_COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogRecovery:
    """What opening a log found.

    records: valid records. torn_bytes: cut off the end because they were never acknowledged; not
    counted in a reused segment, where most of what is cut off are the bytes of the older one.
    damages: bytes that were durable once and hold no valid record any more. quarantined: copies of
    damaged bytes, and of whole records that were cut off with a torn tail. lost_segments: files
    whose head is gone, so that nothing in them can be verified.
    """

    first_sequence: int
    next_sequence: int
    records: int
    torn_bytes: int
    damages: tuple[Damage, ...]
    quarantined: tuple[Path, ...]
    lost_segments: tuple[Path, ...] = ()


@dataclass(slots=True, eq=False)
class SegmentState:
    """A segment of an open log. unproven: offset from which no record proves durability."""

    path: Path
    head: SegmentHead
    size: int
    unproven: int = SEGMENT_HEAD_BYTES

    def end(self, size: int) -> None:
        """Set the final size; the segment gets no more records."""
        self.size = size


@dataclass(slots=True)
class _Scanned:
    """A segment after its scan; found has the records' places without their bytes."""

    state: SegmentState
    found: list[Damage | tuple[int, int, int, int]]  # sequence, unsynced, offset, end

    @property
    def next_sequence(self) -> int:
        for item in reversed(self.found):
            if not isinstance(item, Damage):
                return item[0] + 1
            if item.end_sequence is not None:
                return item.end_sequence
        return self.state.head.first_sequence


def segment_paths(files: Files, directory: Path) -> list[Path]:
    """The segments in a directory, in order of their first sequence."""
    return [
        directory / name
        for name in files.names(directory)
        if name.endswith(".log") and len(name) == 24 and name[:20].isdigit()
    ]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a log's files say, before anything is done about it.

    segments: the readable ones; the last one's size is already without its torn tail, which has
    tail_bytes. copies: what belongs into quarantine. stillborn: a last segment that power failed on
    before it held anything.
    """

    segments: tuple[SegmentState, ...]
    tail_bytes: int
    report: LogRecovery
    copies: tuple[Damage, ...]
    stillborn: Path | None


def assess(
    files: Files, directory: Path, at_least: int, needed_from: int | None = None
) -> Assessment:
    """Read and verify all segments; change nothing.

    Args:
      files: the file system.
      directory: of the segments.
      at_least: everything below this sequence is known to have been durable.
      needed_from: no record at or above this sequence was dropped; None: not known.

    Raises:
      NewerFormat: a newer version wrote a segment.
      OSError: reading failed.
    """
    scanned, lost, stillborn = _scan_all(files, directory)
    damages, copies = list(lost), list[Damage]()
    tail_bytes = 0
    if scanned and not any(bad.path > scanned[-1].state.path for bad in lost):
        torn = _torn_from(scanned[-1], at_least)
        if torn is not None:
            tail_bytes, worth_keeping = _cut(scanned[-1], torn)
            if worth_keeping is not None:
                copies.append(worth_keeping)
    if scanned:
        damages += _gaps(scanned, at_least)
        first = scanned[0].state.head
        if needed_from is not None and needed_from < first.first_sequence and not lost:
            begins = Damage(scanned[0].state.path, 0, 0, needed_from, first.first_sequence)
            damages.insert(0, begins)
    elif at_least and not lost:
        damages.append(Damage(directory, 0, 0, 0, at_least))
    found = [item for part in scanned for item in part.found if isinstance(item, Damage)]
    report = LogRecovery(
        first_sequence=scanned[0].state.head.first_sequence if scanned else at_least,
        next_sequence=max(
            scanned[-1].next_sequence if scanned else 0,
            # A lost segment cannot have held more records than heads fit into it.
            max((bad.first_sequence + bad.length // RECORD_HEAD_BYTES for bad in lost), default=0),
        ),
        records=sum(len(part.found) for part in scanned) - len(found),
        torn_bytes=0 if scanned and scanned[-1].state.head.is_reused else tail_bytes,
        damages=tuple(_ended(damage, scanned) for damage in damages + found),
        quarantined=(),
        lost_segments=tuple(damage.path for damage in lost),
    )
    states = tuple(segment.state for segment in scanned)
    return Assessment(states, tail_bytes, report, tuple(copies + found), stillborn)


def inspect(
    files: Files,
    directory: Path,
    quarantine: Path,
    at_least: int,
    needed_from: int | None = None,
) -> tuple[list[SegmentState], LogRecovery]:
    """Verify all segments, cut the torn tail off the last one, and copy damaged bytes away.

    Args:
      files: the file system.
      directory: of the segments.
      quarantine: where copies go; made when needed.
      at_least, needed_from: as of `assess`.

    Returns:
      the readable segments, in order, and the report.
    """
    found = assess(files, directory, at_least, needed_from)
    copied = tuple(_copy(files, damage, quarantine) for damage in found.copies if damage.length)
    if found.stillborn is not None:
        files.unlink(found.stillborn)
    if found.tail_bytes:
        _truncate(files, found.segments[-1].path, found.segments[-1].size)
    return list(found.segments), replace(found.report, quarantined=copied)


def make_durable(files: Files, active: WriteFile, state: SegmentState) -> None:
    """Write the records that nothing proves durable again in place, and fsync.

    After a failed fsync a page may look clean without being on disk; only a new write helps.
    """
    file = files.open(state.path)
    try:
        for offset in range(state.unproven, state.size, _COPY_BYTES):
            length = min(_COPY_BYTES, state.size - offset)
            active.overwrite(offset, file.read(offset, length))
    finally:
        file.close()
    active.sync()


def _scan_all(files: Files, directory: Path) -> tuple[list[_Scanned], list[Damage], Path | None]:
    """Scan every segment. Those whose head is lost are damages as a whole, or stillborn."""
    scanned: list[_Scanned] = []
    lost: list[Damage] = []
    stillborn = None
    paths = segment_paths(files, directory)
    for path in paths:
        file = files.open(path)
        try:
            head = SegmentHead.from_bytes(file.read(0, SEGMENT_HEAD_BYTES), path)
            if head.first_sequence != int(path.name[:20]):
                raise CorruptData(f"{path} is not the segment that its name says")
            state = SegmentState(path, head, file.size)
            scanned.append(_Scanned(state, [_place(item) for item in scan(file, path, head)]))
        except CorruptData:
            if path == paths[-1] and file.size <= SEGMENT_HEAD_BYTES:
                stillborn = path
            else:
                lost.append(Damage(path, 0, file.size, int(path.name[:20]), None))
        finally:
            file.close()
    return scanned, lost, stillborn


def _place(item: Record | Damage) -> Damage | tuple[int, int, int, int]:
    if isinstance(item, Damage):
        return item
    return item.sequence, item.unsynced, item.offset, item.end


def _torn_from(last: _Scanned, at_least: int) -> int | None:
    """The index in last.found from which nothing was ever durable; sets state.unproven."""
    proven = max(last.state.head.first_sequence, at_least)
    for item in last.found:
        if not isinstance(item, Damage):
            proven = max(proven, item[0] - item[1])
    last.state.unproven = last.state.size
    torn = None
    for index, item in enumerate(last.found):
        first = item.first_sequence if isinstance(item, Damage) else item[0]
        if first < proven:
            continue
        offset = item.offset if isinstance(item, Damage) else item[2]
        last.state.unproven = min(last.state.unproven, offset)
        if isinstance(item, Damage):
            torn = index
            break
    return torn


def _cut(last: _Scanned, torn: int) -> tuple[int, Damage | None]:
    """Take the torn tail out of the scan; the second result is what deserves a copy."""
    tail = last.found[torn:]
    first = tail[0]
    assert isinstance(first, Damage)
    torn_bytes = last.state.size - first.offset
    whole = any(not isinstance(item, Damage) or item.complete for item in tail)
    del last.found[torn:]
    last.state.size = first.offset
    kept = replace(first, length=torn_bytes, end_sequence=None) if whole else None
    return torn_bytes, kept


def _gaps(scanned: list[_Scanned], at_least: int) -> list[Damage]:
    """Sequences that are missing between segments or below at_least, as damages of no bytes."""
    gaps = []
    for before, after in pairwise(scanned):
        missing, found = before.next_sequence, after.state.head.first_sequence
        if missing < found and not _reported(before):
            gaps.append(Damage(after.state.path, 0, 0, missing, found))
    last = scanned[-1]
    if last.next_sequence < at_least and not _reported(last):
        gaps.append(Damage(last.state.path, last.state.size, 0, last.next_sequence, at_least))
    return gaps


def _ended(damage: Damage, scanned: list[_Scanned]) -> Damage:
    """Find the end of a damage behind which its segment has no record, from the next segment."""
    begins = [segment.state.head.first_sequence for segment in scanned]
    behind = [first for first in begins if first > damage.first_sequence]
    if damage.end_sequence is not None or not behind:
        return damage
    return replace(damage, end_sequence=min(behind))


def _reported(segment: _Scanned) -> bool:
    """Return whether the segment already ends in damage with an unknown end."""
    tail = segment.found[-1] if segment.found else None
    return isinstance(tail, Damage) and tail.end_sequence is None


def _copy(files: Files, damage: Damage, quarantine: Path) -> Path:
    """Copy damaged bytes away; the same damage is copied once, however often the log is opened."""
    files.make_directory(quarantine)
    target = quarantine / f"{damage.path.name}-{damage.offset}-{damage.length}"
    data = _read(files, damage.path, damage.offset, damage.length)
    begin = target.name
    for name in files.names(quarantine):
        known = quarantine / name
        if name.startswith(begin) and _read(files, known, 0, damage.length + 1) == data:
            return known
    target = unused(files, target)
    temporary = target.with_name(f"{target.name}.tmp")
    with suppress(FileNotFoundError):
        files.unlink(temporary)
    atomic_write(files, temporary, target, [data])
    return target


def _read(files: Files, path: Path, offset: int, length: int) -> bytes:
    file = files.open(path)
    try:
        return file.read(offset, length)
    finally:
        file.close()


def _truncate(files: Files, path: Path, size: int) -> None:
    file = files.append(path)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()

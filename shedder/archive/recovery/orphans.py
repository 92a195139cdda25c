"""Files below `runs/` that no catalog row names: leftovers of a crash, or of unknown origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shedder.archive.files.file_system import Files
from shedder.archive.files.unknown_files import keep_unknown
from shedder.archive.log.log import Log
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.metadata.position_gaps import PositionRange, holes
from shedder.archive.metadata.run_name import RunName
from shedder.errors import CorruptData


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Runs and streams in the catalog.

    proven: it is known to be the newest. last_stream: the highest id that it has given. reached:
    by stream, the position below which all tuples are in runs, or were removed.
    """

    proven: bool
    last_stream: int
    reached: Mapping[int, int]


def clear_orphans(
    files: Files,
    directory: Path,
    names: Sequence[str],
    known: KnownFiles,
    log: Log,
) -> tuple[tuple[str, ...], list[Path]]:
    """Remove the leftovers of a crash; move all other unknown files into quarantine.

    The catalog is asked only if it is proven to be the newest. Then a file that it does not name
    was never part of the archive, or no longer is: what a commit replaces, and what the log drops
    because of it, goes only after the mark of that commit is durable.

    Args:
      files: the file system.
      directory: the data directory.
      names: of the files, below `runs/`.
      known: what the catalog knows.
      log: read only where needed.

    Returns:
      the names of the files that were removed, and where the others are now.

    Raises:
      CorruptData: the catalog is older than the runs prove; nothing was moved. OSError.
    """
    parsed = {name: RunName.parse(name) for name in names}
    if not known.proven:
        _refuse_newer_runs(directory, parsed, known, log)
    removed, kept = [], []
    for name, said in parsed.items():
        if known.proven and said is not None and said.stream_id <= known.last_stream:
            files.unlink(directory / "runs" / name)
            removed.append(name)
        else:
            kept.append(keep_unknown(files, directory, f"runs/{name}"))
    return tuple(removed), kept


def _refuse_newer_runs(
    directory: Path,
    parsed: Mapping[str, RunName | None],
    known: KnownFiles,
    log: Log,
) -> None:
    """Refuse a catalog that lacks runs whose tuples are in no log: the log was cut for them."""
    held: Mapping[int, Sequence[PositionRange]] | None = None
    for name, said in parsed.items():
        if said is None or said.first_position < 0:
            continue
        if said.stream_id > known.last_stream:
            raise CorruptData(
                f"{directory / 'runs' / name} is of a stream that catalog.sqlite does not know: "
                "the catalog is older than its runs"
            )
        reached = known.reached.get(said.stream_id)
        if not said.is_run or reached is None or said.end_position <= reached:
            continue
        held = _logged(log) if held is None else held
        inside = [
            (max(first, said.first_position), min(end, said.end_position))
            for first, end in held.get(said.stream_id, [])
            if first < said.end_position
        ]
        if holes(inside, removed=max(reached, said.first_position), end=said.end_position):
            raise CorruptData(
                f"{directory / 'runs' / name} holds tuples that are in no log, and catalog.sqlite "
                "does not name it: the catalog is older than its runs"
            )


def _logged(log: Log) -> dict[int, list[PositionRange]]:
    """Return the stretches of positions that a log holds, by stream."""
    found: dict[int, list[PositionRange]] = {}
    for record in log.read():
        if record.kind == RecordType.BATCH:
            header = Batch.from_bytes(record.header)
            stretch = (header.first_position, header.end_position)
            found.setdefault(header.stream, []).append(stretch)
    return found

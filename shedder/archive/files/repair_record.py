"""The record of repairs: what a repair of the catalog could not rebuild.

The lost commits may have deleted rows, or retired runs, that are there again. So answers over those
streams claim no bound while the record is there. An operator who has deleted these rows again
removes the file `REPAIRED`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import google_crc32c

from shedder.archive.files.file_system import Files, atomic_write

REPAIRED = "REPAIRED"


@dataclass(frozen=True, slots=True)
class RecordedRepair:
    """One repair that lost something.

    repaired_us: its time; us since 1970; None: the record cannot be read.
    last_stream: highest id of a stream at that time; None: the record cannot be read.
    lost: what could not be rebuilt.
    """

    repaired_us: int | None
    last_stream: int | None
    lost: tuple[str, ...]

    def covers(self, stream: int) -> bool:
        """Return whether the stream existed at the repair, so that it may have lost something."""
        return self.last_stream is None or stream <= self.last_stream

    def to_line(self) -> bytes:
        """The record as a line of the file, behind its checksum."""
        text = json.dumps(asdict(self)).encode()
        return b"%08x %s\n" % (google_crc32c.value(text), text)

    @classmethod
    def from_line(cls, line: bytes) -> RecordedRepair:
        """The record of a line; a damaged one covers all streams at any time."""
        crc, _, text = line.partition(b" ")
        if crc != b"%08x" % google_crc32c.value(text):
            return cls(None, None, ("not known: the record of the repair is damaged",))
        said = json.loads(text)
        return cls(said["repaired_us"], said["last_stream"], tuple(said["lost"]))


def read_repairs(directory: Path) -> tuple[RecordedRepair, ...]:
    """The repairs of a directory that lost something, newest first.

    Raises:
      OSError: the file is there and cannot be read.
    """
    try:
        data = (directory / REPAIRED).read_bytes()
    except FileNotFoundError:
        return ()
    return tuple(map(RecordedRepair.from_line, data.splitlines())) or (
        RecordedRepair.from_line(b""),
    )


def add_repair(files: Files, directory: Path, new: RecordedRepair) -> None:
    """Write a repair before the earlier ones, durably.

    The file may lose its end. So the newest repair is the first one, and it covers all streams and
    times that earlier ones cover.

    Raises:
      OSError.
    """
    repairs = (new, *read_repairs(directory))
    times_us = [each.repaired_us for each in repairs if each.repaired_us is not None]
    streams = [each.last_stream for each in repairs if each.last_stream is not None]
    new = replace(new, repaired_us=max(times_us), last_stream=max(streams))
    temporary = directory / "tmp" / REPAIRED
    files.make_directory(temporary.parent)
    if temporary.exists():
        files.unlink(temporary)
    lines = [repair.to_line() for repair in (new, *repairs[1:])]
    atomic_write(files, temporary, directory / REPAIRED, lines)

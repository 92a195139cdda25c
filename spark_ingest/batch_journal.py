"""Journal of micro-batches: notes how one began before sending, so that all attempts agree."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from pyarrow.fs import FileType

from shedder.errors import FailedPrecondition
from shedder.streams.batches import BatchLimits
from spark_ingest.runtime.remote_files import opened

NOTE = "_begun.json"  # Spark and Arrow take no file for data whose name begins so.


class Way(StrEnum):
    """What is done with rows; each goes by numbers of its own."""

    SUMMARISE = "summarise"
    FORWARD = "forward"
    WRITE = "write_stream"


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first try of a micro-batch went by.

    What has a default was not noted by earlier versions, and is not compared with what they noted.

    batch: its number. partitions: that its rows came in. newest_us: the latest event time that is
    believed. files_min: Spark's spark.sql.files.minPartitionNum as it was in force.
    limits: of a batch that is pushed, by which rows are cut. way: what was to be done with them.
    stream, producer: where they went, and under whose name.
    rows: what tells them from other rows (`writer.digest`); "" where Spark's checkpoint does.
    """

    batch: int
    partitions: int
    newest_us: int
    files_min: int = 1
    limits: BatchLimits | None = None
    way: Way | None = None
    stream: str = ""
    producer: str = ""
    rows: str = ""

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """The inverse of to_json.

        Raises:
          ValueError, TypeError: it is no note.
        """
        read = json.loads(text)
        if read.get("limits") is not None:
            read["limits"] = BatchLimits(**read["limits"])
        if read.get("way") is not None:
            read["way"] = Way(read["way"])
        return cls(**read)

    def to_json(self) -> bytes:
        """As a note has it."""
        return json.dumps(asdict(self)).encode()

    def check(self, partitions: int, remedy: str) -> None:
        """Refuse a try whose rows come in another number of partitions.

        Each partition pushes under a name of its own, by which the service knows what it has: rows
        that are dealt out otherwise would be stored twice.

        Raises:
          FailedPrecondition: says both numbers, and the remedy.
        """
        if partitions != self.partitions:
            raise FailedPrecondition(
                f"micro-batch {self.batch} was begun in {self.partitions} partition(s) and comes "
                f"in {partitions} now, so which of its tuples the service has is unknown; "
                f"{remedy}"
            )

    def check_limits(self, now: BatchLimits) -> None:
        """Refuse a service that does not take batches as large as those that were begun.

        The service knows batches by their numbers alone: rows that are cut otherwise have others,
        and what a number had already would never be stored.

        Raises:
          FailedPrecondition: says with which settings the service must be started.
        """
        begun = self.limits
        if begun is not None and (now.rows_max < begun.rows_max or now.bytes_max < begun.bytes_max):
            raise FailedPrecondition(
                f"micro-batch {self.batch} was begun in batches of up to {begun.rows_max:,} rows "
                f"and {begun.bytes_max:,} bytes, and the service takes {now.rows_max:,} rows and "
                f"{now.bytes_max:,} bytes now; start it with batch_rows_max={begun.rows_max} and "
                f"batch_bytes_max={begun.bytes_max} at least until this is done"
            )

    def check_owner(self, stream: str, producer: str) -> None:
        """Refuse a checkpoint that another stream or another producer name has used.

        The service would not know the batches sent under the other name, and would accept them
        again.

        Raises:
          FailedPrecondition: the stream and the name that used the checkpoint.
        """
        if self.producer and (stream, producer) != (self.stream, self.producer):
            raise FailedPrecondition(
                f"micro-batch {self.batch} of this checkpoint was begun for stream "
                f"{self.stream!r} as producer {self.producer!r}, and this is {producer!r} for "
                f"{stream!r}, which would send again what the service has; go on with that stream "
                "and name, or begin with another checkpoint"
            )

    def check_way(self, way: Way) -> None:
        """Refuse to end in one way what was begun in another.

        Raises:
          FailedPrecondition: says how it was begun.
        """
        if self.way not in (None, way):
            raise FailedPrecondition(
                f"micro-batch {self.batch} was begun by {self.way} and comes by {way} now, which "
                f"cannot tell what of it the service has; end it by {self.way}, after which {way} "
                "may go on, or begin with another checkpoint"
            )

    def check_rows(self, rows: str) -> None:
        """Refuse other rows than those that were begun: what has their numbers is not stored.

        Args:
          rows: what tells them from others, their number first.

        Raises:
          FailedPrecondition: says how many these are, and those were.
        """
        if self.rows not in ("", rows):
            was, now = (int(each.partition(":")[0]) for each in (self.rows, rows))
            raise FailedPrecondition(
                f"{self.producer!r} was begun for {was:,} row(s), and these are {now:,}, not the "
                "same ones; which of them the service has is unknown: give other rows another name"
            )


def noted(directory: str) -> Begun | None:
    """What was begun last; None: nothing was.

    Raises:
      FailedPrecondition: the note cannot be read.
    """
    system, root = opened(directory)
    name = f"{root}/{NOTE}"
    if system.get_file_info(name).type == FileType.NotFound:
        return None
    with system.open_input_stream(name) as file:
        text = file.read()
    try:
        return Begun.from_json(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise FailedPrecondition(
            f"{name} does not say how a micro-batch was begun ({error}); begin with another one"
        ) from None


def begin(directory: str, fresh: Begun) -> Begun:
    """What the first try of the micro-batch went by; the fresh one, now noted, if this is it.

    Args:
      directory: of any file system that Arrow knows. fresh: as this try would have it.

    Raises:
      FailedPrecondition: the note cannot be read.
    """
    found = noted(directory)
    if found is not None and found.batch == fresh.batch:
        return found
    system, root = opened(directory)
    system.create_dir(root, recursive=True)
    temporary = f"{root}/.{NOTE}"
    with system.open_output_stream(temporary) as file:
        file.write(fresh.to_json())
    system.move(temporary, f"{root}/{NOTE}")  # Whole or not at all.
    return fresh

"""How a micro-batch was begun: noted before anything of it is sent, so that all tries agree."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyarrow.fs import FileType

from shedder.errors import FailedPrecondition
from spark_ingest.places import opened

NOTE = "_begun.json"  # Spark and Arrow take no file for data whose name begins so.


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first try of a micro-batch went by.

    batch: its number. partitions: that its rows came in. newest_us: the latest event time that is
    believed. files_min: Spark's spark.sql.files.minPartitionNum as it was in force.
    """

    batch: int
    partitions: int
    newest_us: int
    files_min: int = 1

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
                f"in {partitions} now, so nobody can tell which of its tuples the service has; "
                f"{remedy}"
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
        return Begun(**json.loads(text))
    except (ValueError, TypeError) as error:
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
        file.write(json.dumps(asdict(fresh)).encode())
    system.move(temporary, f"{root}/{NOTE}")  # Whole or not at all.
    return fresh

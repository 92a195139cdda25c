"""Delivery check: a service still has what executors have pushed to it."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Row

from shedder.client.client import Client
from shedder.errors import FailedPrecondition


def check_kept(client: Client, stream: str, pushed: Iterable[Row]) -> None:
    """Refuse to report success if the service was restored from a backup and lost pushed batches.

    A partition that has ended pushes nothing more, so it would not notice the loss itself.

    Args:
      client: client of the service. stream: its name.
      pushed: rows by partition, as `executors.PUSHED`.

    Raises:
      FailedPrecondition: the partition, and what to do; starting again sends what is missing.
    """
    for part in pushed:
        last = client.last_sequence(stream, part.producer)
        has = -1 if last is None or last[0] < part.epoch else last[1]
        if part.next and (last is None or last < (part.epoch, part.next - 1)):
            raise FailedPrecondition(
                f"producer {part.producer!r} has pushed {part.next} batch(es) to stream "
                f"{stream!r}, of which the service has {has + 1} now: it came back with an older "
                "directory meanwhile; start this again as it was, and what is missing is sent again"
            )

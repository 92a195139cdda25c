"""A database whose connection is lost at the n-th push, before or after the push is durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from shedder.errors import Unavailable
from shedder.queries.answers.database_api import Database, NamedProducer, Receipt


@dataclass
class Fault:
    """The connection is lost at this push, counted from 0; None: never."""

    push: int | None = None
    is_stored: bool = False
    pushes: int = 0


class InterruptedDatabase:
    """What `Load` uses of a database, with a fault."""

    def __init__(self, database: Database, fault: Fault) -> None:
        self.database = database
        self.fault = fault

    def producer(self, stream: str, name: str, *, epoch: int | None = None) -> Any:
        return InterruptedProducer(self.database.producer(stream, name, epoch=epoch), self.fault)


class InterruptedProducer:
    """A producer with a fault."""

    def __init__(self, producer: NamedProducer, fault: Fault) -> None:
        self.producer = producer
        self.fault = fault
        self.epoch = producer.epoch
        self.next_sequence = producer.next_sequence

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        is_lost = self.fault.pushes == self.fault.push
        self.fault.pushes += 1
        if is_lost and not self.fault.is_stored:
            raise Unavailable("the connection is lost")
        number = self.producer.push(data, sequence=sequence)
        if is_lost:
            self.producer.flush()
            raise Unavailable("the connection is lost, and the receipt")
        return number

    def flush(self) -> Receipt:
        return self.producer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.producer.__exit__(None, None, None)

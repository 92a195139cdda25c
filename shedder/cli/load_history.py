"""History of loads: the contents that were begun and those that are complete.

Each content has a record: a producer that pushes no rows. Its epoch has the offset at which the
load begins and a hash of the load's producer. Number 0 is pushed before the first row of the load,
number 1 after the last one. Before the first row of files that are loaded together, their group is
recorded, too: until then, none of their records locks a file. The producers of a lineage have the
sizes of contents that begin with the same lines, so that a file that has grown finds the records of
its first bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from shedder.cli.load_identity import FileIdentity, Mark, MarkKind, content_epoch, producer_of
from shedder.errors import ProducerForgotten
from shedder.queries.answers.database_api import Database, NamedProducer

GREW = MarkKind.ONE_ROW  # In a lineage: the content was loaded after its first bytes.

_HASH_BITS = 17  # Of an epoch below 2^62: attempt, offset, hash.
_OFFSET_BITS = 40


@dataclass(frozen=True, slots=True)
class Record:
    """State of one content. epoch, next_sequence: of its producer."""

    epoch: int
    next_sequence: int

    @property
    def is_begun(self) -> bool:
        """Return whether rows of the content may be stored."""
        return self.next_sequence > 0

    @property
    def is_complete(self) -> bool:
        """Return whether all rows of the content are stored."""
        return self.next_sequence > 1

    @property
    def offset_bytes(self) -> int:
        """Size of the part that an earlier load has stored."""
        return (self.epoch >> _HASH_BITS) & ((1 << _OFFSET_BITS) - 1)

    @property
    def load(self) -> int:
        """Hash of the producer of the load that has begun the content."""
        return self.epoch & ((1 << _HASH_BITS) - 1)

    @property
    def attempt(self) -> int:
        """Number of loads that have begun the content before without storing any row."""
        return self.epoch >> (_HASH_BITS + _OFFSET_BITS)

    def is_of(self, load: str) -> bool:
        """Return whether the content was begun by the load with this producer."""
        return self.is_begun and self.load == _hash(load)


class LoadHistory:
    """Looks up and writes the history of the loads of one stream."""

    def __init__(self, database: Database, stream: str) -> None:
        self._database = database
        self._stream = stream

    def record(self, identity: FileIdentity) -> Record:
        """Return the state of a content."""
        return Record(*self._numbers(_record_of(identity)))

    def may_have_rows(self, identity: FileIdentity, record: Record) -> bool:
        """Return whether the load that has begun a content may have stored rows."""
        is_alone = record.is_of(_alone(identity, record))
        return record.is_begun and (is_alone or self.has_begun(_group_of(identity, record.load)))

    def mark(self, identity: FileIdentity) -> Mark:
        """Return what the mark of a file says."""
        return Mark(*self._numbers(identity.mark))

    def has_begun(self, name: str) -> bool:
        """Return whether a producer has pushed anything."""
        return self._numbers(name)[1] > 0

    def lineage(self, identity: FileIdentity) -> Iterator[Mark]:
        """Yield the size and the hash of each content that begins with the same lines."""
        if identity.digest.head is None:
            return
        for slot in count():
            found = Mark(*self._numbers(_lineage_of(identity, slot)))
            if not found.is_known:
                return
            yield found

    def begin(self, group: Sequence[FileIdentity]) -> None:
        """Record that rows of these contents may be stored from now on."""
        load = producer_of(list(group))
        for each in group:
            self._add_to_lineage(each)
        for each in group:
            record = self.record(each)
            if not record.is_complete and not record.is_of(load):
                attempt = record.attempt + 1 if record.is_begun else 0
                place = (attempt << _OFFSET_BITS | each.offset_bytes) << _HASH_BITS
                self._push(_record_of(each), place | _hash(load), 0)
        if len(group) > 1:
            self._push(_group_of(group[0], _hash(load)), 0, 0)

    def end(self, group: Sequence[FileIdentity]) -> None:
        """Record that all rows of these contents are stored."""
        for each in group:
            record = self.record(each)
            if not record.is_complete:
                self._push(_record_of(each), record.epoch, 1)

    def _add_to_lineage(self, identity: FileIdentity) -> None:
        """Write a content into a new slot, or over an ancestor that is not looked for any more."""
        slot = -1
        for slot, found in enumerate(self.lineage(identity)):  # noqa: B007
            if found.is_of(identity.digest):
                return
            if found.epoch == identity.ancestor:
                break
        else:
            slot += 1
        if identity.digest.head is not None:
            has_grown = identity.offset_bytes > 0
            epoch = content_epoch(identity.digest, GREW if has_grown else MarkKind.ALONE)
            self._push(_lineage_of(identity, slot), epoch, 0)

    def _numbers(self, name: str) -> tuple[int, int]:
        with opened(self._database, self._stream, name) as producer:
            return producer.epoch, producer.next_sequence

    def _push(self, name: str, epoch: int, number: int) -> None:
        with opened(self._database, self._stream, name, epoch) as producer:
            producer.push([], sequence=number)
            producer.flush()


def opened(database: Database, stream: str, name: str, epoch: int | None = None) -> NamedProducer:
    """Open a producer of a load.

    Raises:
      ProducerForgotten: no epoch is given, and the load may have been stored before.
    """
    try:
        return database.producer(stream, name, epoch=epoch)
    except ProducerForgotten:
        raise ProducerForgotten.from_message(
            f"{stream} has forgotten producers, and a load of this file may be one of them: its "
            "rows could be stored twice. If none of them is stored, --producer NAME loads them "
            "under that name"
        ) from None


def _hash(load: str) -> int:
    return int(hashlib.sha256(load.encode()).hexdigest()[:6], 16) >> (24 - _HASH_BITS)


def _alone(identity: FileIdentity, record: Record) -> str:
    return producer_of([replace(identity, offset_bytes=record.offset_bytes)])


def _group_of(identity: FileIdentity, load: int) -> str:
    return f"{identity.prefix}/group/{load:x}{identity.options}"


def _record_of(identity: FileIdentity) -> str:
    return f"{identity.prefix}/record/{identity.digest.sha256}{identity.options}"


def _lineage_of(identity: FileIdentity, slot: int) -> str:
    head = (identity.digest.head or "")[:32]
    return f"{identity.prefix}/lineage/{head}/{slot}{identity.options}"

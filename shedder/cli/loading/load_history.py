"""History of loads: the contents that were begun and those that are complete.

The history is kept in producers that push no rows. Each content has a load record. The epoch of the
record has the offset at which the load begins, and a hash of the load's producer. Its number 0 is
pushed before the first row of the load, and number 1 after the last one. Files that are loaded
together also have a record of their group, which is pushed before the first row. Until then, no
row of the group is stored, and its files may be loaded otherwise.

Contents that begin with the same header and first row are a lineage. Each member of a lineage has a
number: its size, bits of its hash, and whether it had grown from a member that was stored. The
numbers are the epochs of the lineage's producers. So a file that has grown finds the record of its
first bytes. Lineages that earlier versions gave to a content are looked up, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from shedder.cli.files.contents import Digest
from shedder.cli.loading.load_identity import FileIdentity, producer_of
from shedder.errors import ProducerForgotten
from shedder.queries.answers.database_api import Database, NamedProducer

_HASH_BITS = 17  # Of a record's epoch, which is below 2^62: attempt, offset, hash.
_OFFSET_BITS = 40
_CONTENT_BITS = 21  # Of a member's number, which is below 2^62: size, hash, has_grown.
_SIZE_BYTES_MAX = (1 << 40) - 1


@dataclass(frozen=True, slots=True)
class Member:
    """A content in the lineage of a file. number: size, hash, and whether it had grown."""

    number: int

    @classmethod
    def of(cls, digest: Digest, *, has_grown: bool) -> Member:
        """The member that a content is."""
        bits = int(digest.sha256[:6], 16) >> (24 - _CONTENT_BITS)
        size = min(digest.size_bytes, _SIZE_BYTES_MAX)
        return cls((size << _CONTENT_BITS | bits) << 1 | has_grown)

    @property
    def size_bytes(self) -> int:
        """Size of the content."""
        return self.number >> (_CONTENT_BITS + 1)

    @property
    def has_grown(self) -> bool:
        """Return whether only the end of the content was loaded under its own record."""
        return bool(self.number & 1)

    def is_of(self, digest: Digest) -> bool:
        """Return whether the member is this content."""
        return self.number >> 1 == Member.of(digest, has_grown=False).number >> 1


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """Load record: state of one content. epoch, next_sequence: of its producer."""

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

    def record(self, identity: FileIdentity) -> LoadRecord:
        """Return the state of a content."""
        return LoadRecord(*self._numbers(_record_of(identity)))

    def may_have_rows(self, identity: FileIdentity, record: LoadRecord) -> bool:
        """Return whether the load that has begun a content may have stored rows."""
        is_alone = record.is_of(_alone(identity, record))
        return record.is_begun and (is_alone or self.has_begun(_group_of(identity, record.load)))

    def has_begun(self, name: str) -> bool:
        """Return whether a producer has pushed anything."""
        return self._numbers(name)[1] > 0

    def lineage(self, identity: FileIdentity) -> Iterator[Member]:
        """Yield each content that was begun with the same header and first row."""
        for head in (identity.digest.head, *identity.digest.other_heads):
            if head is not None:
                yield from self._members(identity, head)

    def _members(self, identity: FileIdentity, head: str) -> Iterator[Member]:
        for slot in count():
            epoch, next_sequence = self._numbers(_lineage_of(identity, head, slot))
            if not next_sequence:
                return
            yield Member(epoch)

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
            for name in sorted({_group_of(each, _hash(load)) for each in group}):
                self._push(name, 0, 0)

    def end(self, group: Sequence[FileIdentity]) -> None:
        """Record that all rows of these contents are stored."""
        for each in group:
            record = self.record(each)
            if not record.is_complete:
                self._push(_record_of(each), record.epoch, 1)

    def _add_to_lineage(self, identity: FileIdentity) -> None:
        """Write a content into a new slot, or over an ancestor that is not looked for any more."""
        head = identity.digest.head
        if head is None:
            return
        slot = 0
        for found in self._members(identity, head):
            if found.is_of(identity.digest):
                return
            if found.number == identity.ancestor:
                break
            slot += 1
        member = Member.of(identity.digest, has_grown=identity.offset_bytes > 0)
        self._push(_lineage_of(identity, head, slot), member.number, 0)

    def _numbers(self, name: str) -> tuple[int, int]:
        with open_producer(self._database, self._stream, name) as producer:
            return producer.epoch, producer.next_sequence

    def _push(self, name: str, epoch: int, number: int) -> None:
        with open_producer(self._database, self._stream, name, epoch) as producer:
            producer.push([], sequence=number)
            producer.flush()


def open_producer(
    database: Database, stream: str, name: str, epoch: int | None = None
) -> NamedProducer:
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


def _alone(identity: FileIdentity, record: LoadRecord) -> str:
    return producer_of([replace(identity, offset_bytes=record.offset_bytes)])


def _group_of(identity: FileIdentity, load: int) -> str:
    return f"{identity.prefix}/group/{load:x}{identity.options}"


def _record_of(identity: FileIdentity) -> str:
    return f"{identity.prefix}/record/{identity.digest.sha256}{identity.options}"


def _lineage_of(identity: FileIdentity, head: str, slot: int) -> str:
    return f"{identity.prefix}/lineage/{head[:32]}/{slot}{identity.options}"

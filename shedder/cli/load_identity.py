"""Identity of loaded files: the producers under which their rows are stored once.

The rows of a load are pushed by a producer whose name has the SHA-256 of the content. The first and
the last row of each file are pushed by its mark: a producer whose name has the hash of the file's
first two lines, and whose epoch has the size of the content. So a mark tells whether a file, or one
that it has grown from, is complete or was interrupted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

from shedder.cli.files.contents import Digest

_KIND_BITS = 2  # Of a mark's epoch, which is below 2^62: size, bits of the SHA-256, kind.
_CONTENT_BITS = 21
_SIZE_MAX = 1 << (62 - _CONTENT_BITS - _KIND_BITS)


class MarkKind(IntEnum):
    """What the rows of a mark are; number 0 is the first row unless it is said otherwise."""

    ALONE = 0  # The first and the last row of a file that is loaded alone.
    TOGETHER = 1  # Rows of files that are loaded together.
    ONE_ROW = 2  # Number 0 is the only row of the mark, pushed after all others.


@dataclass(frozen=True, slots=True)
class Mark:
    """State of the last loaded file that begins with the same lines.

    epoch: of its producer. next_sequence: of its producer; 0: no such file was loaded.
    """

    epoch: int
    next_sequence: int

    @property
    def is_known(self) -> bool:
        """Return whether a file that begins with the same lines was loaded, or partly."""
        return self.next_sequence > 0

    @property
    def kind(self) -> MarkKind:
        """What the rows of the mark are."""
        return MarkKind(self.epoch & ((1 << _KIND_BITS) - 1))

    @property
    def is_complete(self) -> bool:
        """Return whether all rows of that file are stored."""
        return self.next_sequence > (0 if self.kind is MarkKind.ONE_ROW else 1)

    @property
    def size_bytes(self) -> int:
        """Size of that file's content."""
        return self.epoch >> (_CONTENT_BITS + _KIND_BITS)

    def is_of(self, digest: Digest) -> bool:
        """Return whether it is the mark of this content."""
        wanted = content_epoch(digest, MarkKind.ALONE) >> _KIND_BITS
        return self.is_known and self.epoch >> _KIND_BITS == wanted


def content_epoch(digest: Digest, kind: MarkKind) -> int:
    """The epoch of the mark of a content."""
    bits = int(digest.sha256[:6], 16) >> (24 - _CONTENT_BITS)
    size = min(digest.size_bytes, _SIZE_MAX - 1)
    return (size << _CONTENT_BITS | bits) << _KIND_BITS | kind


def content_of(mark: Mark) -> int:
    """Size and hash of the content of a mark, without its kind."""
    return mark.epoch >> _KIND_BITS


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Producers of the rows of a file.

    name: for messages. digest: of the content. prefix: begins the names of producers.
    options: hash of all that decides how rows are read; empty for the defaults.
    offset_bytes: size of the part of a grown file that was loaded before; 0: none.
    ancestor: epoch in the lineage of a content that this one replaces there; None: of none.
    """

    name: str
    digest: Digest
    prefix: str
    options: str
    offset_bytes: int = 0
    ancestor: int | None = None

    @property
    def mark(self) -> str:
        """The producer of the first and of the last row."""
        return f"{self.prefix}/begins/{(self.digest.head or self.digest.sha256)[:32]}{self.options}"


def producer_of(group: list[FileIdentity]) -> str:
    """The producer of the rows of files that are loaded together, in the order given."""
    parts = [
        f"{each.digest.sha256}/{each.offset_bytes}" if each.offset_bytes else each.digest.sha256
        for each in group
    ]
    joined = parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{group[0].prefix}/{joined}{group[0].options}"


def options_hash(*options: object) -> str:
    """A suffix for the options of a load; empty if none differs from its default."""
    if not any(options):
        return ""
    return "/" + hashlib.sha256(repr(options).encode()).hexdigest()[:12]

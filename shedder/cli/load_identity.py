"""Identity of loaded files: the producers under which their rows are stored once.

The rows of a load are pushed by a producer whose name has the SHA-256 of the content. The last row
of each file is pushed by its mark: a producer whose name has the hash of the file's first lines,
and whose epoch has the content's size. A mark tells that a file is complete, or that it has grown.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from shedder.cli.files.contents import Digest
from shedder.errors import FailedPrecondition

_CONTENT_BITS = 23  # Of a mark's epoch, which is an int63; the size has the other 40.
_SIZE_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class Marked:
    """What the mark of a file says of the last file that begins with the same lines.

    size_bytes: of its content; None: no such file was loaded. bits: of its SHA-256.
    """

    size_bytes: int | None
    bits: int


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Who pushes the rows of a file.

    name: for messages. digest: of the content. prefix: begins the names of producers.
    options: hash of all that decides how rows are read; empty for the defaults.
    """

    name: str
    digest: Digest
    prefix: str
    options: str

    @property
    def mark(self) -> str:
        """The producer of the last row."""
        return f"{self.prefix}/begins/{(self.digest.head or self.digest.sha256)[:32]}{self.options}"

    @property
    def epoch(self) -> int:
        """The epoch of the mark when the file is complete."""
        return min(self.digest.size_bytes, _SIZE_MAX - 1) << _CONTENT_BITS | bits(self.digest)


def bits(digest: Digest) -> int:
    """The first bits of a content's SHA-256."""
    return int(digest.sha256[:6], 16) >> (24 - _CONTENT_BITS)


def marked(epoch: int, next_sequence: int) -> Marked:
    """Read the state of a mark's producer."""
    if next_sequence == 0:
        return Marked(None, 0)
    return Marked(epoch >> _CONTENT_BITS, epoch & ((1 << _CONTENT_BITS) - 1))


def producer_of(group: list[FileIdentity], resumed: dict[str, int]) -> str:
    """The producer of the rows of files that are loaded together.

    Args:
      group: the files, in the order given. resumed: by SHA-256, the bytes that were loaded before.
    """
    first = group[0]
    parts = [each.digest.sha256 for each in group]
    parts = [f"{part}/{resumed[part]}" if part in resumed else part for part in parts]
    joined = parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{first.prefix}/{joined}{first.options}"


def options_hash(*options: object) -> str:
    """A suffix for the options of a load; empty if none differs from its default."""
    if not any(options):
        return ""
    return "/" + hashlib.sha256(repr(options).encode()).hexdigest()[:12]


def refuse_moved_on(identity: FileIdentity) -> FailedPrecondition:
    """The error for a file that was loaded, and then another one that begins with its lines."""
    return FailedPrecondition(
        f"{identity.name} was loaded before, at least in part, and then a longer file that begins "
        "with the same lines: nothing was stored. --producer NAME loads it again under that name"
    )


def refuse_grown(identity: FileIdentity, size_bytes: int) -> FailedPrecondition:
    """The error for a file whose first bytes were loaded."""
    return FailedPrecondition(
        f"{identity.name} has grown: its first {size_bytes:,} bytes of "
        f"{identity.digest.size_bytes:,} were loaded before. --resume loads the rest"
    )

"""Identity of loaded files: the names of the producers under which their rows are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from shedder.cli.files.contents import Digest


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identity of the rows of a file that a load pushes.

    name: for messages. digest: of the content. prefix: begins the names of producers.
    options: hash of all that decides how rows are read; empty for the defaults.
    offset_bytes: size of the part of a grown file that was loaded before; 0: none.
    ancestor: number in the lineage of a content that this one replaces there; None: of none.
    """

    name: str
    digest: Digest
    prefix: str
    options: str
    offset_bytes: int = 0
    ancestor: int | None = None


def producer_of(group: Sequence[FileIdentity]) -> str:
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

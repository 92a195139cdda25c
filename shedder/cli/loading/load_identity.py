"""Identity of loaded files: the names of the producers under which their rows are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from shedder.cli.files.contents import Digest
from shedder.cli.files.row_file import RowFile


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
    is_mixed = len({each.options for each in group}) > 1
    parts = [
        (f"{each.digest.sha256}/{each.offset_bytes}" if each.offset_bytes else each.digest.sha256)
        + (each.options if is_mixed else "")
        for each in group
    ]
    joined = parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{group[0].prefix}/{joined}{group[0].options}"


def option_hashes(file: RowFile, choices: Sequence[str | None], *, sorts: bool) -> tuple[str, ...]:
    """Suffixes of all options that read the same rows of a file; the first names new loads.

    Args:
      choices: values of `--columns` that read the same rows; None: it is not given.
      sorts: whether rows are pushed in order of event time.
    """
    how = file.dialect
    is_usual = how.delimiter == file.delimiter_if_not_given
    quoted = [] if how.quote == '"' else [how.quote or "none"]
    hashes = [
        _suffix(
            columns,
            delimiter,
            how.header,
            how.null_words,
            how.decimal_comma,
            how.time_format,
            how.time_unit,
            not sorts,
            *leaves_out,
            *quoted,
        )
        for columns in choices
        for delimiter in ((None, how.delimiter) if is_usual else (how.delimiter,))
        # --skip-untimed, --bad-rows: rows that can be read are the same.
        for leaves_out in product((False, True), repeat=2)
    ]
    return tuple(dict.fromkeys(hashes))


def _suffix(*options: object) -> str:
    """The hash of some options; empty if none differs from its default."""
    if not any(options):
        return ""
    return "/" + hashlib.sha256(repr(options).encode()).hexdigest()[:12]

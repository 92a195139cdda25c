"""Sources of a load: what of each file is not stored, by the history of earlier loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO

from shedder.cli.files.contents import Digest
from shedder.cli.files.event_order import DEFAULT_SORT_LIMITS, SortLimits
from shedder.cli.files.row_file import RowFile
from shedder.cli.loading.load_history import LoadHistory, Member
from shedder.cli.loading.load_identity import FileIdentity, producer_of
from shedder.cli.stderr import say
from shedder.errors import FailedPrecondition
from shedder.queries.answers.database_api import Database


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are loaded.

    prefix: begins the names of producers.
    sorts: whether rows are pushed in order of event time. resumes: whether files may have grown.
    bad_rows: takes rows that cannot be read; None: the first one refuses the load.
    limits: of sorting.
    """

    prefix: str
    sorts: bool = True
    resumes: bool = False
    bad_rows: IO[str] | None = None
    limits: SortLimits = DEFAULT_SORT_LIMITS


@dataclass(frozen=True, slots=True)
class LoadSource:
    """A file, or a part of a file, with the file's identity."""

    file: RowFile
    identity: FileIdentity

    def after(self, offset_bytes: int) -> LoadSource:
        """Return the part that begins at this offset."""
        return LoadSource(
            replace(self.file, after_bytes=offset_bytes),
            replace(self.identity, offset_bytes=offset_bytes),
        )


@dataclass(frozen=True, slots=True)
class Sources:
    """Files to load: first interrupted loads of files that have grown since, then all others."""

    interrupted: list[LoadSource]
    files: list[LoadSource]


def sources(
    database: Database | None,
    stream: str,
    files: Sequence[RowFile],
    options: LoadOptions,
    hashes: Sequence[Sequence[str]],
) -> Sources:
    """Identify files by content, and find those that have grown since they were loaded.

    Args:
      database: None if the stream is not there yet.
      hashes: of each file, hashes of options that read the same rows; the first names new loads.

    Raises:
      FailedPrecondition: a file has grown and the load does not resume, or rows of a file may be
        stored as those of another one.
    """
    interrupted: list[LoadSource] = []
    found: list[LoadSource] = []
    history = None if database is None else LoadHistory(database, stream)
    given = _distinct(files, options, hashes)
    digests = [source.identity.digest for source, _ in given]
    for source, equivalents in given:
        if history is None:
            found.append(source)
        else:
            known = _as_loaded(history, source, equivalents)
            begun, rest = _rest(history, known, digests, resumes=options.resumes)
            interrupted += begun
            found.append(rest)
    _refuse_parts(history, found)
    if options.sorts:  # The same files in any order are the same load.
        found.sort(key=lambda source: source.identity.digest.sha256)
    return Sources(interrupted, found)


def _distinct(
    files: Sequence[RowFile], options: LoadOptions, hashes: Sequence[Sequence[str]]
) -> list[tuple[LoadSource, Sequence[str]]]:
    """The files of different content, with the hashes of equivalent options."""
    found: list[tuple[LoadSource, Sequence[str]]] = []
    for file, (option, *equivalents) in zip(files, hashes, strict=True):
        digest = file.digest()
        identity = FileIdentity(file.path.name, digest, options.prefix, option)
        same = [each.file for each, _ in found if each.identity.digest.sha256 == digest.sha256]
        if same:
            say(f"{identity.name} has the content of {same[0].path.name}: it is stored once")
            continue
        # Rows that are appended from now on belong to the next load.
        part = replace(file, before_bytes=digest.size_bytes)
        found.append((LoadSource(part, identity), equivalents))
    return found


def _as_loaded(history: LoadHistory, source: LoadSource, equivalents: Sequence[str]) -> LoadSource:
    """Identify a source under the options of an earlier load that read the same rows."""
    hashes = (source.identity.options, *equivalents)
    known = [replace(source, identity=replace(source.identity, options=each)) for each in hashes]
    for each in known:
        if history.record(each.identity).is_begun:
            return each
    in_lineage = [(each, [*history.lineage(each.identity)]) for each in known]
    for each, members in in_lineage:
        size_bytes = each.identity.digest.size_bytes
        shorter = (member for member in members if member.size_bytes < size_bytes)
        if any(_stored(history, each, member) for member in shorter):
            return each
    return next((each for each, members in in_lineage if members), source)


def _refuse_parts(history: LoadHistory | None, found: Sequence[LoadSource]) -> None:
    """Refuse a file that another one begins with, unless the rows of either are stored."""
    for part in found:
        head, size_bytes = part.identity.digest.head, part.identity.digest.size_bytes
        for whole in found:
            digest, offset_bytes = whole.identity.digest, whole.identity.offset_bytes
            heads = (digest.head, *digest.other_heads)
            if head is None or head not in heads or digest.size_bytes <= size_bytes:
                continue
            if offset_bytes >= size_bytes or (
                history and history.record(part.identity).is_complete
            ):
                continue
            if whole.file.digest(size_bytes).sha256 == part.identity.digest.sha256:
                raise FailedPrecondition(
                    f"{whole.identity.name} begins with all of {part.identity.name}, whose rows "
                    f"would be stored twice: leave out {part.identity.name}"
                )


@dataclass(frozen=True, slots=True)
class _Stored:
    """An earlier load of the first bytes of a file.

    member: the content of these bytes. part: its source. is_alone: it had no other files.
    """

    member: Member
    part: LoadSource
    is_complete: bool
    is_alone: bool


def _rest(
    history: LoadHistory, source: LoadSource, given: Sequence[Digest], *, resumes: bool
) -> tuple[list[LoadSource], LoadSource]:
    """Find what is not stored: of an interrupted load of the file's first bytes, and of the file.

    Args:
      given: of all files of the command. `_refuse_parts` compares them byte by byte.

    Raises:
      FailedPrecondition: as `sources`.
    """
    identity = source.identity
    record, size_bytes = history.record(identity), identity.digest.size_bytes
    if record.is_complete:
        return [], source
    if history.may_have_rows(identity, record):
        return [], source.after(record.offset_bytes)
    lineage = sorted(history.lineage(identity), key=lambda each: -each.size_bytes)
    shorter = [each for each in lineage if each.size_bytes < size_bytes]
    longer = [each for each in lineage if each.size_bytes > size_bytes]
    found = [each for each in (_stored(history, source, member) for member in shorter) if each]
    unseen = [each for each in longer if not any(each.is_of(digest) for digest in given)]
    may_be_copy = any(each.has_grown for each in longer)
    if may_be_copy or (unseen and not found):
        compared = "" if may_be_copy else "a load of both files compares them, and "
        raise FailedPrecondition(
            f"{identity.name} may have been loaded before: a longer file was loaded that begins "
            f"with the same lines. Nothing was stored. If it is another file, {compared}"
            "--producer NAME loads all its rows under that name"
        )
    if not found:
        return [], source
    before = found[0]
    _check_grown(identity, before, resumes=resumes)
    rest = source.after(before.member.size_bytes)
    if len(found) > 2:  # The first content tells copies made before it was loaded again.
        rest = replace(rest, identity=replace(rest.identity, ancestor=found[1].member.number))
    return [] if before.is_complete else [before.part], rest


def _stored(history: LoadHistory, source: LoadSource, member: Member) -> _Stored | None:
    """Look up the load of a content; None: the file does not begin with it, or no row is stored."""
    digest = source.file.digest(member.size_bytes)
    if not member.is_of(digest):
        return None
    identity = replace(source.identity, digest=digest)
    record = history.record(identity)
    if not history.may_have_rows(identity, record):
        return None
    file = replace(source.file, before_bytes=member.size_bytes)
    part = LoadSource(file, identity).after(record.offset_bytes)
    is_alone = record.is_of(producer_of([part.identity]))
    return _Stored(member, part, record.is_complete, is_alone)


def _check_grown(identity: FileIdentity, before: _Stored, *, resumes: bool) -> None:
    size_bytes = before.member.size_bytes
    grown = (
        f"{identity.name} has grown: its first {size_bytes:,} bytes of "
        f"{identity.digest.size_bytes:,} were loaded before"
    )
    if not before.is_complete and not before.is_alone:
        raise FailedPrecondition(
            f"{grown} in part, together with other files, and that load was interrupted: repeat it "
            f"with the files as they were, of this one the first {size_bytes:,} bytes"
        )
    if not resumes:
        part = "" if before.is_complete else " in part, and that load was interrupted"
        raise FailedPrecondition(f"{grown}{part}. --resume loads the rest")

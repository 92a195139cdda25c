"""Summaries on the wire: panes of a micro-batch that were built in another process.

The bytes are the same on the wire and in the log: the length of a JSON header (uint32,
little-endian), the header, and the blobs that it gives the lengths of, one after another. Each
synopsis is in its own format (docs/synopsis_format.md), so a program with Apache DataSketches can
build most of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Final

from shedder.errors import BadBatch

FORMAT = 1

AT_LEAST_BYTES = 64 << 10
"""Summaries may have so many, whatever the limit for batches is."""

NO_PRODUCERS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})
"""No other producer, in what summaries follow."""

_LENGTH = struct.Struct("<I")
_INT64 = range(-(1 << 63), 1 << 63)
_COUNT = range(1 << 62)

Basics = tuple[int | float | None, ...]


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What one synopsis read at a level: place and basics as in engine.segment, and its bytes.

    shape: of moments that are asked for a variance; b"": there is none.
    """

    part: int
    level: int
    basics: Basics
    image: bytes
    shape: bytes = b""


@dataclass(frozen=True, slots=True)
class PaneSummary:
    """One pane of one standing query.

    pane: its number on the query's grid. tuples: of the stream in this pane; matching: those of
    them that pass the WHERE. thinned: how many tuples each synopsis skipped. groups: the key
    values as a batch (streams.batches), b"" without GROUP BY. others: the first group stands for
    those that found no room. images: of each synopsis of the query's plan, in order.
    """

    query: str
    pane: int
    tuples: int
    matching: int
    thinned: tuple[int, ...]
    images: tuple[bytes, ...]
    segments: tuple[SegmentSummary, ...] = ()
    groups: bytes = b""
    others: bool = False


@dataclass(frozen=True, slots=True)
class Summaries:
    """All that was built of so many tuples (rows) with event times in [oldest_us, newest_us]."""

    rows: int
    oldest_us: int
    newest_us: int
    panes: tuple[PaneSummary, ...]

    def to_bytes(self) -> bytes:
        """The bytes for wire and log."""
        blobs = [blob for pane in self.panes for blob in _blobs(pane)]
        header = {
            "format": FORMAT,
            "rows": self.rows,
            "oldest_us": self.oldest_us,
            "newest_us": self.newest_us,
            "panes": [_pane_header(pane) for pane in self.panes],
            "lengths": [len(blob) for blob in blobs],
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        return b"".join([_LENGTH.pack(len(text)), text, *blobs])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Summaries:
        """Read what `to_bytes` wrote; images and groups are not looked into yet.

        Raises:
          BadBatch: the bytes are something else; nothing is allocated beyond their length.
        """
        try:
            return _read(bytes(data))
        except (
            struct.error,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            StopIteration,
            RecursionError,
        ) as error:
            problem = str(error).partition("\n")[0][:200]
            raise BadBatch(f"these are no summaries of format {FORMAT}: {problem}") from None


def _blobs(pane: PaneSummary) -> Iterator[bytes]:
    yield pane.groups
    yield from pane.images
    for segment in pane.segments:
        yield segment.image
        yield segment.shape


def _pane_header(pane: PaneSummary) -> dict[str, Any]:
    return {
        "query": pane.query,
        "pane": pane.pane,
        "tuples": pane.tuples,
        "matching": pane.matching,
        "thinned": pane.thinned,
        "others": pane.others,
        "segments": [[it.part, it.level, *it.basics] for it in pane.segments],
    }


def _read(data: bytes) -> Summaries:
    (length,) = _LENGTH.unpack_from(data)
    header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
    if header["format"] != FORMAT:
        raise ValueError(f"format is {header['format']!r}")
    lengths = _wholes(header["lengths"], range(len(data) + 1))
    ends = list(accumulate(lengths, initial=_LENGTH.size + length))
    if ends[-1] != len(data):
        raise ValueError(f"{len(data)} bytes, where the header says {ends[-1]}")
    blobs = iter([data[first:last] for first, last in pairwise(ends)])
    panes = tuple([_pane(each, blobs) for each in header["panes"]])  # No generator may run out.
    if next(blobs, None) is not None:
        raise ValueError("more blobs than panes have")
    oldest, newest = (_whole(header[key], _INT64) for key in ("oldest_us", "newest_us"))
    if oldest > newest:
        raise ValueError(f"oldest_us is {oldest}, after newest_us, {newest}")
    return Summaries(_whole(header["rows"], _COUNT), oldest, newest, panes)


def _pane(header: Any, blobs: Iterator[bytes]) -> PaneSummary:
    tuples, matching, *thinned = _wholes(
        [header["tuples"], header["matching"], *header["thinned"]], _COUNT
    )
    groups, *images = [next(blobs) for _ in range(1 + len(thinned))]
    places = header["segments"]
    return PaneSummary(
        query=_is(header["query"], str),
        pane=_whole(header["pane"], _INT64),
        tuples=tuples,
        matching=matching,
        thinned=tuple(thinned),
        images=tuple(images),
        segments=tuple([_segment(place, next(blobs), next(blobs)) for place in places]),
        groups=groups,
        others=_is(header["others"], bool),
    )


def _segment(place: Sequence[Any], image: bytes, shape: bytes) -> SegmentSummary:
    part, level, *basics = place
    if len(basics) not in (4, 6):
        raise ValueError(f"a segment has {len(basics)} basics")
    population, read = (_whole(count, _COUNT) for count in basics[:2])
    ends = [None if end is None else _number(end) for end in basics[2:]]
    return SegmentSummary(
        _whole(part, range(1 << 16)),
        _whole(level, range(1, 64)),
        (population, read, *ends),
        image,
        shape,
    )


def _whole(value: Any, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{value!r} is no integer from {allowed.start} to {allowed.stop - 1}")
    return value


def _wholes(values: list[Any], allowed: range) -> list[int]:
    """The same of a list, looked at as a whole; the first that is none is named."""
    if set(map(type, values)) == {int} and min(values) in allowed and max(values) in allowed:
        return values
    return [_whole(value, allowed) for value in values]


def _number(value: Any) -> int | float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is no number")
    return value  # type: ignore[no-any-return]


def _is(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value

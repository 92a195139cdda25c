"""The live sample of a stream: rows kept by random key, with the basics of all rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import SEEK_CUR, BytesIO
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Column
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import CorruptData
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import arrow_schema
from shedder.streams.extreme_rows import ExtremeRows, ExtremesView
from shedder.streams.frame import Frame
from shedder.streams.row_sizes import CUT_SHARE, RowSizes, row_bytes
from shedder.streams.sample_payload import KeptRows
from shedder.streams.stratified_sample import Strata, StratifiedView
from shedder.streams.uniform_rows import UniformRows
from synopses.kernels.array_inputs import as_input
from synopses.kernels.hashing import salted, uniforms
from synopses.samples.admission_kernels import few_at_least
from synopses.samples.bottom_k import HashSample, WeightedBottomK

_LENGTH: Final = struct.Struct("<Q")
_FORMAT: Final = 2
_POSITIVE, _NEGATIVE = "+", "-"
NO_LIMIT: Final = 1 << 62  # Bytes.
_UNIFORM_SHARES: Final = 4  # Of the bytes, where each of the other samples has one.
_EXTREMES_SHARE: Final = 1.0 / 16.0  # Of the bytes, for the rows with extreme values.


@dataclass(frozen=True, slots=True, eq=False)
class WeightedView:
    """Rows kept by the weight of one column: by max(x, 0), or by max(-x, 0).

    rows: aligned with weights, float64. tau: as in WeightedBottomK.
    """

    rows: pa.RecordBatch
    weights: NDArray[np.float64]
    tau: float


@dataclass(frozen=True, slots=True, eq=False)
class HashedView:
    """All rows of a random part of one column's values; share: of the values, in (0, 1]."""

    rows: pa.RecordBatch
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class SampleView:
    """A stream's sample as of one position; never changed.

    rows: a simple random sample without replacement of the tuples at positions
      [first, position). basics: of all of them, by column.
    weighted: per column, the samples of its positive and of its negative part.
    stratified: per columns that a query groups by, a sample of each group.
    shuffle_seed: 64 random bits that no value depends on; the same in a replay.
    extremes: the rows of all tuples with extreme values; None: they were not kept.
    """

    schema: StreamSchema
    first: int
    position: int
    rows: pa.RecordBatch
    basics: Mapping[str, ColumnBasics]
    weighted: Mapping[str, tuple[WeightedView, WeightedView]]
    hashed: Mapping[str, HashedView]
    stratified: Sequence[StratifiedView] = ()
    shuffle_seed: int = 0
    extremes: ExtremesView | None = None

    @property
    def population(self) -> int:
        """Tuples that the sample is of."""
        return self.position - self.first

    @property
    def is_everything(self) -> bool:
        """Return whether every tuple is in `rows`."""
        return self.rows.num_rows == self.population


@dataclass(frozen=True, slots=True, eq=False)
class SampleImage:
    """A sample's state as of one position, before it is bytes; never changed."""

    sections: tuple[bytes | pa.RecordBatch, ...]

    def to_bytes(self) -> bytes:
        """Return each section after its length. Rows are copied once: they may be large."""
        image = BytesIO()
        for section in self.sections:
            begins = image.seek(_LENGTH.size, SEEK_CUR)
            if isinstance(section, bytes):
                image.write(section)
            else:
                with pa.ipc.new_stream(image, section.schema) as writer:
                    writer.write_batch(section)
            ends = image.tell()
            image.seek(begins - _LENGTH.size)
            image.write(_LENGTH.pack(ends - begins))
            image.seek(ends)
        return image.getvalue()


class StreamSample:
    """A uniform bottom-k sample of a stream; on request by weight, by hash or by group, too.

    While all rows fit into the bytes of `limit`, the sample depends on the stream's seed and the
    tuples at [first, position) alone. A replay then draws the same rows. If wide rows exceed these
    bytes, the sample keeps fewer rows. Their number also depends on where batches end, and on how
    the stream's share of the memory has changed. One thread uses the sample; any thread may read
    a `view`.
    """

    def __init__(
        self,
        schema: StreamSchema,
        *,
        rows: int,
        first: int = 0,
        weighted: Iterable[str] = (),
        hashed: Iterable[str] = (),
        strata: Mapping[tuple[str, ...], tuple[str, ...]] | None = None,
        basics: Mapping[str, ColumnBasics] | None = None,
        size_bytes_max: int = NO_LIMIT,
    ) -> None:
        """Begin empty.

        Args:
          schema: of the stream; its seed makes the random keys.
          rows: how many rows each of the samples may hold.
          first: the position of the first tuple to come.
          weighted: numeric columns whose sums should be sharp behind any filter.
          hashed: columns whose distinct values should be countable behind any filter.
          strata: columns whose groups should each be known, with the numeric columns whose spread
            decides how many rows each group gets.
          basics: of tuples before `first`, which ranges of columns shall hold for, too.
          size_bytes_max: as of `limit`.
        """
        self.schema = schema
        self.first = self.position = first
        self._arrow = arrow_schema(schema)
        self._typed = {each.name: Column(each.name, each.type) for each in schema.columns}
        self.rows_max = rows
        self.size_bytes_max = size_bytes_max
        self._sizes = RowSizes.of(self._arrow)
        self._uniform = UniformRows(self._arrow, rows)
        self._weighted = {
            (name, sign): (WeightedBottomK(rows), KeptRows(self._arrow))
            for name in weighted
            for sign in (_POSITIVE, _NEGATIVE)
        }
        self._hashed = {name: (HashSample(rows), KeptRows(self._arrow)) for name in hashed}
        self._strata = [
            Strata(schema, columns, rows=rows, measures=measures)
            for columns, measures in (strata or {}).items()
        ]
        self._extremes = ExtremeRows(schema, rows)
        self._basics = {column.name: ColumnBasics() for column in schema.columns} | dict(
            basics or {}
        )
        self._view: SampleView | None = None

    @property
    def basics(self) -> Mapping[str, ColumnBasics]:
        """Counts and range of every column over all tuples so far."""
        return self._basics

    @property
    def weighted(self) -> tuple[str, ...]:
        """The columns that are sampled by weight."""
        return tuple(name for name, sign in self._weighted if sign == _POSITIVE)

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns that are sampled by hash."""
        return tuple(self._hashed)

    @property
    def strata(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """The columns that are sampled by group, with their measures."""
        return {strata.columns: strata.measures for strata in self._strata}

    @property
    def population(self) -> int:
        """Tuples so far."""
        return self.position - self.first

    @property
    def size_bytes(self) -> int:
        """Bytes held by keys and rows."""
        by_group = sum(strata.size_bytes for strata in self._strata)
        by_value = sum(s.size_bytes + rows.size_bytes for s, rows in self._by_value())
        return self._uniform.size_bytes + by_group + by_value + self._extremes.size_bytes

    @property
    def wanted_bytes(self) -> float:
        """Bytes within which no sample has fewer rows because rows are wide."""
        rows = min(2 * self.rows_max, self.population)
        most = float(rows * self._sizes.greatest_bytes)
        drawn_bytes_max = self._share_bytes(self.shares)
        if most * self.shares > drawn_bytes_max:
            most = min(most, self._sizes.bytes_of(rows))
        return most * self.shares * self.size_bytes_max / max(drawn_bytes_max, 1.0)

    def limit(self, size_bytes: int) -> None:
        """Hold at most this many bytes of rows, now and later.

        The uniform sample keeps fewer rows; how many follows from the sizes of all tuples, so it is
        as fair as before. Samples by weight and by hash get a higher threshold. A sample by group
        that would know too little of its groups is dropped.
        """
        if size_bytes < self.size_bytes_max:
            self._view = None  # It may hold rows that are dropped now.
        self.size_bytes_max = size_bytes
        self._uniform.fit(self._sizes, self._share_bytes(_UNIFORM_SHARES))
        for sample, rows in self._by_value():
            _fit(sample, rows, self._share_bytes(1))
        self._extremes.fit(self.size_bytes_max * _EXTREMES_SHARE)
        greatest_bytes = self._sizes.greatest_bytes
        self._strata = [s for s in self._strata if s.fit(self._share_bytes(1), greatest_bytes)]

    @property
    def shares(self) -> int:
        """Equal shares that the bytes are split into: the uniform sample has several."""
        others = 2 * len(self.weighted) + len(self._hashed) + len(self._strata)
        return _UNIFORM_SHARES + others if others else 1

    def _share_bytes(self, shares: int) -> float:
        drawn = 1.0 - _EXTREMES_SHARE if self._extremes.columns else 1.0
        return drawn * self.size_bytes_max * min(shares / self.shares, 1.0)

    def update(self, first_position: int, frame: Frame) -> None:
        """Offer the next tuples.

        Args:
          first_position: must be the position after the last tuple offered.
          frame: a batch of the stream's schema, all of its rows.
        """
        assert first_position == self.position, (first_position, self.position)
        batch = frame.batch
        keys = frame.sample_keys(self.schema.seed, first_position)
        basics = {name: frame.basics(name) for name in self._basics}
        sizes = self._sizes.update(batch)
        self.position += batch.num_rows
        self._uniform.update(keys, frame, self.population)
        self._update_weighted(frame, basics, keys)
        self._update_hashed(frame)
        self._extremes.update(frame, basics)
        for strata in self._strata:
            strata.update(first_position, frame, sizes)
        self._basics = {name: self._basics[name].merged(found) for name, found in basics.items()}
        self._view = None
        self.limit(self.size_bytes_max)

    def view(self) -> SampleView:
        """The sample as of now."""
        if self._view is None:
            self._settle()
            weighted = {
                name: (self._weighted_view(name, _POSITIVE), self._weighted_view(name, _NEGATIVE))
                for name, sign in self._weighted
                if sign == _POSITIVE
            }
            hashed = {
                name: HashedView(rows.together(), sample.share)
                for name, (sample, rows) in self._hashed.items()
            }
            self._view = SampleView(
                self.schema,
                self.first,
                self.position,
                self._uniform.together(self.population),
                dict(self._basics),
                weighted,
                hashed,
                [strata.view() for strata in self._strata],
                self._uniform.shuffle_seed,
                self._extremes.view(),
            )
        return self._view

    def to_bytes(self) -> bytes:
        """The state, the same for the same tuples: a JSON head, then keys and rows per sample."""
        return self.image().to_bytes()

    def image(self) -> SampleImage:
        """Return the state as of now; another thread may make bytes of it."""
        self._settle()
        extremes, extreme_rows = self._extremes.state()
        head = {
            "format": _FORMAT,
            "first": self.first,
            "position": self.position,
            "rows": self.rows_max,
            "weighted": list(self.weighted),
            "hashed": list(self._hashed),
            "strata": list(self.strata.items()),
            "basics": {name: asdict(basics) for name, basics in self._basics.items()},
            "sizes": self._sizes.to_json(),
            "cut": self._uniform.cut,
            "strata_bytes": [strata.seen_bytes.tolist() for strata in self._strata],
            "extremes": extremes,
        }
        sections: list[bytes | pa.RecordBatch] = [json.dumps(head).encode()]
        sections += self._uniform.state()
        for sample, rows in self._by_value():
            sections += [sample.to_bytes(), rows.together()]
        for strata in self._strata:
            sections += [strata.rows.together(), *strata.to_parts()]
        sections.append(extreme_rows)  # The last one: earlier versions do not read it.
        return SampleImage(tuple(sections))

    @classmethod
    def from_bytes(cls, schema: StreamSchema, image: bytes) -> Self:
        """Rebuild what `to_bytes` wrote.

        Raises:
          CorruptData: the bytes are cut short or of another format.
        """
        sections = iter(_sections(image))
        head = json.loads(next(sections))
        if head["format"] not in (1, _FORMAT):  # 1 had no strata
            raise CorruptData(f"a sample of format {head['format']!r}; this reads 1 to {_FORMAT}")
        sample = cls(
            schema,
            rows=head["rows"],
            first=head["first"],
            weighted=head["weighted"],
            hashed=head["hashed"],
            strata={
                tuple(columns): tuple(measures) for columns, measures in head.get("strata", [])
            },
        )
        sample.position = head["position"]
        sample._basics = {name: ColumnBasics(**facts) for name, facts in head["basics"].items()}
        keys, rows = next(sections), _restored(next(sections), sample._arrow)
        cut, sizes = head.get("cut"), head.get("sizes")
        if sizes is None:  # Written by a version without a bound in bytes.
            sample._sizes = RowSizes.like(rows.together(), sample.population)
        else:
            sample._sizes.restore(sizes)
        sample._uniform.restore(keys, rows, None if cut is None else (cut[0], cut[1]))
        for key in sample._weighted:
            weighted = WeightedBottomK.from_bytes(next(sections))
            sample._weighted[key] = (weighted, _restored(next(sections), sample._arrow))
        for name in sample._hashed:
            by_hash = HashSample.from_bytes(next(sections))
            sample._hashed[name] = (by_hash, _restored(next(sections), sample._arrow))
        strata_bytes = head.get("strata_bytes") or [None] * len(sample._strata)
        for strata, seen_bytes in zip(sample._strata, strata_bytes, strict=True):
            rows = _restored(next(sections), sample._arrow)
            strata.restore(sections, rows, seen_bytes)
        if "extremes" in head:
            sample._extremes.restore(head["extremes"], _restored(next(sections), sample._arrow))
        else:  # Written by a version that did not keep them.
            sample._extremes.begin_within(sample._basics, sample.population)
        return sample

    def _update_weighted(
        self,
        frame: Frame,
        basics: Mapping[str, ColumnBasics],
        keys: NDArray[np.uint64],
    ) -> None:
        keys = as_input(keys, np.uint64)
        for (name, sign), (sample, rows) in self._weighted.items():
            low, high = basics[name].low, basics[name].high
            if low is None or high is None or (high <= 0 if sign == _POSITIVE else low >= 0):
                continue
            weights = as_input(frame.doubles(name), np.float64)
            # What is not above zero is passed over, and so is NaN.
            factor = 1.0 if sign == _POSITIVE else -1.0
            heavy = few_at_least(weights, factor, keys, sample.bar)
            if not len(heavy):
                continue
            kept = sample.update(factor * weights[heavy], uniforms(keys[heavy]))
            rows.move(kept.within(heavy), frame)

    def _update_hashed(self, frame: Frame) -> None:
        """By a hash of each row's value, independent of those that sketches use; NULL has one."""
        seed = np.uint64(self.schema.seed)
        for name, (by_hash, rows) in self._hashed.items():
            keys = frame.keys((self._typed[name],))  # As queries ask: hashed once.
            rows.move(by_hash.update(salted(keys, seed)), frame)

    def _by_value(self) -> Iterator[tuple[WeightedBottomK | HashSample, KeptRows]]:
        yield from self._weighted.values()
        yield from self._hashed.values()

    def _settle(self) -> None:
        for sample, rows in self._by_value():
            rows.move(sample.settle())

    def _weighted_view(self, name: str, sign: str) -> WeightedView:
        sample, rows = self._weighted[name, sign]
        return WeightedView(rows.together(), sample.weights, sample.tau)


def _fit(sample: WeightedBottomK | HashSample, rows: KeptRows, size_bytes: float) -> None:
    """Keep the rows that come first by weight or by hash, as many as fit.

    The threshold is that of the first row that does not fit. It stays the same if a kept row gets
    a better place, so sums by it are unbiased whatever the sizes of rows (Ting 2018, "Adaptive
    threshold sampling and estimation", substitutable thresholds).
    """
    if rows.content_bytes <= size_bytes:
        return
    if isinstance(sample, WeightedBottomK):
        order = np.argsort(-sample.priorities, kind="stable")
    else:
        order = np.argsort(sample.hashes, kind="stable")
    sizes = np.cumsum(row_bytes(rows.together())[order])
    rows_max = sample.size
    fitting = int(np.searchsorted(sizes, CUT_SHARE * size_bytes / 2.0, side="right"))
    rows.move(sample.resize(max(1, fitting)))
    sample.resize(rows_max)


def _restored(image: bytes, schema: pa.Schema) -> KeptRows:
    try:
        with pa.ipc.open_stream(image) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(f"a sample's rows cannot be read: {error}") from error
    batches = table.combine_chunks().to_batches()
    return KeptRows(schema, batches[0] if batches else None)


def _sections(image: bytes) -> list[bytes]:
    sections, at = [], 0
    while at < len(image):
        end = at + _LENGTH.size
        size = _LENGTH.unpack_from(image, at)[0] if end <= len(image) else len(image)
        if end + size > len(image):
            raise CorruptData(f"a sample of {len(image)} bytes is cut short at byte {at}")
        sections.append(image[end : end + size])
        at = end + size
    if not sections:
        raise CorruptData("a sample of 0 bytes")
    return sections

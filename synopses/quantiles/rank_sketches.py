"""One DataSketches quantile sketch per group: what KLL and REQ have in common."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import UNGROUPED, as_column, as_ids
from synopses.kernels.grouped_arrays import apart_from, same_kind
from synopses.kernels.radix_sort import sorted_floats
from synopses.kernels.value_buffers import ValueBuffers, quantiles
from synopses.model.binary_header import Body
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Estimates
from synopses.model.parameters import as_groups, as_whole
from synopses.model.ranks import discrete_rank
from synopses.model.resizing import Resizable

_PENDING_ROWS = 65_536
_PENDING_PARTS = 256


class RankSketches(Resizable):
    """Sketches of size k by group, which take batches: a group's values wait until they are one.

    A group that never had a full batch has no sketch: all of its values are held, and its answers
    are exact. Values that come without groups gather until there are 65,536 of them.
    """

    item_bytes: ClassVar[int]  # Of a value that a sketch keeps.
    sketch_bytes: ClassVar[int]  # What the library holds beside the values, about.
    __slots__ = ("_buffers", "_groups", "_pending", "_rows", "_sketches", "k")

    def __init__(self, groups: int, k: int) -> None:
        self.k = self._checked(k, self.profile.sizes[-1])
        self._groups = as_groups(groups)
        self._sketches: dict[int, Any] = {}
        self._buffers = ValueBuffers(groups, self._batch(k))
        self._pending: list[NDArray[np.float64]] = []
        self._rows = 0

    @classmethod
    def _checked(cls, k: int, most: int) -> int:
        """The k, which is one of the profile's sizes up to `most`."""
        sizes = cls.profile.sizes
        expected = f"{sizes[0]} to {most}"
        if sizes[1] - sizes[0] > 1:
            expected = f"even, {expected}"
        whole = as_whole("k", k, sizes[0], most, expected=expected)
        if whole not in sizes:
            raise BadParameter("k", k, expected)
        return whole

    @staticmethod
    @abstractmethod
    def _batch(k: int) -> int:
        """Return how many values of a group a sketch of this k takes at once."""

    @abstractmethod
    def _made(self, k: int) -> Any:
        """An empty sketch of the library."""

    @abstractmethod
    def _empty(self, groups: int) -> Self:
        """A summary of the same parameters, without values."""

    @abstractmethod
    def _take(self, group: int, values: NDArray[np.float64]) -> None:
        """Put values (no NaN, in ascending order) into the sketch of a group."""

    @abstractmethod
    def _read(self, image: bytes) -> Any:
        """The sketch that an image holds; of another size or form: CorruptSynopsis."""

    @abstractmethod
    def rank_error(self, q: float, confidence: float) -> NDArray[np.float64]:
        """By how much the rank of the q-quantile may be off, as a share of the group's size.

        float64 [groups].
        """

    @abstractmethod
    def quantile(self, q: float, confidence: float) -> Estimates:
        """The discrete q-quantile per group: float64; null where the group is empty."""

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held: retained items, rows that wait, and each sketch itself, about."""
        retained: int = sum(sketch.num_retained for sketch in self._sketches.values())
        waiting = 8 * self._rows + self._buffers.size_bytes
        return waiting + self.item_bytes * retained + self.sketch_bytes * len(self._sketches)

    def _to_merge(self, sketch: Any) -> Any:
        """What another sketch takes in of this one, so that its error stays what it is."""
        return sketch

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        self._groups = max(self._groups, groups)
        self._buffers.grow(groups)

    def update(self, ids: NDArray[np.int32] | None, values: NDArray[np.float64]) -> None:
        """Take values in; NaN is taken for absent.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          values: float64 [n].

        Raises:
          BadParameter: an id is not that of a group, or there are not as many as values.
        """
        column = as_column(values, np.float64)
        if ids is not None:
            self._buffers.add(as_ids(ids, column.size, self._groups), column, self._take)
            return
        self.grow(1)
        self._pending.append(column.copy())
        self._rows += column.size
        if self._rows >= _PENDING_ROWS or len(self._pending) >= _PENDING_PARTS:
            self._flush()

    def _flush(self) -> None:
        """Values without groups go into the sketch, or into the buffer if they are few."""
        if not self._pending:
            return
        values = np.concatenate(self._pending)
        self._pending.clear()
        self._rows = 0
        if values.size < self._buffers.room_max:
            self._buffers.add(UNGROUPED, values, self._take)
            return
        present = values[~np.isnan(values)]
        if present.size:
            self._take(0, sorted_floats(present))

    def settle(self) -> None:
        """Give back the room for values to come: groups that have a sketch have all in it."""
        self._settle()
        self._buffers.trim()

    def _settle(self) -> None:
        """What groups with a sketch have in their buffers goes into it."""
        self._flush()
        for group in np.flatnonzero(self._buffers.held).tolist():
            if group in self._sketches:
                self._buffers.drain(group, self._take)

    def _exact(self, q: float) -> NDArray[np.float64]:
        """The discrete q-quantile of the groups without sketch; float64 [groups], else 0."""
        return quantiles(*self._buffers.entries(), discrete_rank(q, self._buffers.held))

    def _sketch(self, group: int) -> Any:
        sketch = self._sketches.get(group)
        if sketch is None:
            sketch = self._sketches[group] = self._made(self.k)
        return sketch

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: k differs.
        """
        same_kind(self, other)
        if self.k != other.k:
            raise CannotMerge("k", self.k, other.k)
        other = apart_from(self, other)
        self.grow(other.groups)
        self._flush()
        other._flush()
        for group, sketch in other._sketches.items():
            if group in self._sketches:
                self._sketches[group].merge(self._to_merge(sketch))
            else:  # There is nothing: a copy will do.
                self._sketches[group] = copy.copy(self._to_merge(sketch))
        self._wait(*other._buffers.entries())
        return self

    def resize(self, k: int, /) -> Self:
        """Keep sketches of this k from now on, in place; their error is that of the smaller k.

        Raises:
          BadParameter: k is no size, or more than now; what was forgotten does not come back.
        """
        k = self._checked(k, self.k)
        self._flush()
        self.k = k
        for group, sketch in self._sketches.items():
            self._sketches[group] = self._made(k)
            self._sketches[group].merge(self._to_merge(sketch))
        waiting, self._buffers = self._buffers, ValueBuffers(self._groups, self._batch(k))
        self._wait(*waiting.entries())
        return self

    def counts(self) -> NDArray[np.int64]:
        """Values per group; int64 [groups]."""
        self._flush()
        counts = self._buffers.held
        for group, sketch in self._sketches.items():
            counts[group] += sketch.n
        return counts

    def image(self, group: int) -> bytes:
        """A group as DataSketches writes it, for its `deserialize`."""
        self._flush()
        self._buffers.drain(group, self._take)
        sketch = self._sketches.get(group)
        return bytes((self._made(self.k) if sketch is None else sketch).serialize())

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        self._flush()
        chosen = self._empty(len(ids))
        for place, group in enumerate(ids.tolist()):
            if group in self._sketches:
                chosen._sketches[place] = copy.copy(self._sketches[group])
        chosen._wait(*self._buffers.entries(ids))
        return chosen

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        self._flush()
        spread = self._empty(groups)
        for group, sketch in self._sketches.items():
            spread._sketches[int(ids[group])] = copy.copy(sketch)
        waiting, values = self._buffers.entries()
        spread._wait(ids.astype(np.int32)[waiting], values)
        return spread

    def _wait(self, groups: NDArray[np.int32], values: NDArray[np.float64]) -> None:
        """Values come that wait, and no more for now."""
        if not values.size:
            return  # As of all groups that have a sketch, once nothing more comes.
        self._buffers.reserve(np.bincount(groups, minlength=self._groups))
        self._buffers.add(groups, values, self._take)

    def _packed(self) -> list[NDArray[Any] | bytes]:
        """Return the parts of the bytes, in order.

        A bit for each group that has a sketch, the lengths of the images, the images, and the
        values that wait.
        """
        self._flush()
        held = sorted(self._sketches)
        images = [bytes(self._sketches[group].serialize()) for group in held]
        sizes = np.array([len(image) for image in images], np.int64)
        present = np.zeros(self._groups, np.bool_)
        present[held] = True
        _, values = self._buffers.entries()
        return [np.packbits(present), sizes, b"".join(images), self._buffers.held, values]

    def _unpack(self, body: Body, groups: int) -> None:
        """Take so many groups that `_packed` wrote; they end the body. This one is empty."""
        bits = body.array(np.uint8, (-(-groups // 8),))
        held = np.flatnonzero(np.unpackbits(bits))
        if held.size and held[-1] >= groups:
            raise CorruptSynopsis("group", int(held[-1]), f"0 to {groups - 1}")
        sizes = body.array(np.int64, held.shape)
        images = body.raw()
        self._unpack_waiting(body, groups)
        if sizes.size and not 0 <= int(sizes.min()) <= int(sizes.max()) <= len(images):
            raise CorruptSynopsis("length of an image", sizes.tolist(), f"0 to {len(images)}")
        ends = np.cumsum(sizes).tolist()
        if (ends or [0])[-1] != len(images):
            raise CorruptSynopsis("length of all images", len(images), ends)
        for group, start, end in zip(held.tolist(), [0, *ends], ends, strict=False):
            self._sketches[group] = self._read(images[start:end])

    def _unpack_waiting(self, body: Body, groups: int) -> None:
        held, values = body.array(np.int64, (groups,)), body.array(np.float64)
        body.end()
        most = self._buffers.room_max
        if held.size and not 0 <= int(held.min()) <= int(held.max()) <= most:
            raise CorruptSynopsis("values that wait", int(held.max()), f"0 to {most} a group")
        if int(held.sum()) != values.size or np.isnan(values).any():
            raise CorruptSynopsis("values that wait", values.size, f"{held.sum()}, and no NaN")
        ids = np.repeat(np.arange(groups, dtype=np.int32), held)
        self.grow(groups)
        self._buffers.add(ids, values, self._take)
        self._buffers.trim()


def at_rank(sketch: Any, rank: float) -> float:
    """The value at a normalised rank; the extremes are those of all values."""
    if rank <= 0.0:
        return float(sketch.get_min_value())
    if rank >= 1.0:
        return float(sketch.get_max_value())
    return float(sketch.get_quantile(rank, True))

"""RSTREAM: the whole relation as tuples, at each evaluated instant.

If all windows of the query slide by s > 1 us, the evaluated instants are the multiples of s, from
the first one on at which a tuple has changed the relation. Otherwise they are the instants at which
the relation changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.consolidation import consolidated, rows_by_value
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.errors import BudgetExceeded
from shedder.streams.batches import TIME_MIN_US

_INSTANT_BYTES = 4096  # Memory of the tuples of an instant beside their values.


class WholeRelation:
    """Operator of RSTREAM; the event time of a tuple is 1 us before its instant, as in ISTREAM.

    The rows of an instant are ordered by their values. The order in which they came may be older
    than the tuples from which a restart makes the relation again.
    """

    def __init__(self, schema: pa.Schema, slide_us: int, bytes_max: int) -> None:
        """An operator over an empty relation.

        Args:
          schema: of the relation. slide_us: of all windows; 1: they have no common slide.
          bytes_max: of the tuples of one step.
        """
        self._net = Multiplicities(Multiplicity.BAG, schema)
        self._held = ChangeBatch.empty(schema)
        self._slide_us = slide_us
        self._bytes_max = bytes_max
        self._next_us: int | None = None  # Multiple of the slide; None: no row has come.

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the tuples of one step."""
        self._bytes_max = bytes_max

    @property
    def next_us(self) -> int | None:
        """The next evaluated instant; None: no row has come, or there is no common slide."""
        return self._next_us

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows."""
        return self._net.size_bytes + self._held.size_bytes

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """The relation as of each evaluated instant up to `as_of_us`.

        Raises:
          BudgetExceeded: the tuples of this step need more bytes than the limit.
        """
        net = self._net.apply(as_of_us, changes)
        if self._slide_us > 1:
            net = self._without_beginning(net)
        made = [ChangeBatch.empty(net.columns.schema)]
        size_bytes = 0
        first = 0
        for instant_us in self._instants(net, as_of_us):
            last = int(np.searchsorted(net.born_us, instant_us, side="right"))
            if last > first:
                parts = [self._held, net.take(np.arange(first, last))]
                self._held = rows_by_value(consolidated(ChangeBatch.concat(parts)))
                first = last
            rows = np.repeat(np.arange(len(self._held)), self._held.weight)
            times = np.full(len(rows), instant_us - 1)
            made.append(ChangeBatch.of_tuples(self._held.take(rows).columns, times))
            size_bytes += made[-1].size_bytes + _INSTANT_BYTES
            if size_bytes > self._bytes_max:
                raise BudgetExceeded(
                    f"RSTREAM made more than {self._bytes_max:,} bytes in one step; ISTREAM gives "
                    "the differences, a longer SLIDE fewer instants"
                )
        return ChangeBatch.concat(made)

    def go_on(self, as_of_us: int) -> None:
        """Go on behind an instant up to which there were tuples, which may have left."""
        if self._next_us is None:
            self._next_us = (as_of_us // self._slide_us + 1) * self._slide_us

    def _without_beginning(self, net: ChangeBatch) -> ChangeBatch:
        """Hold the row of an aggregate without GROUP BY over no tuples, and leave it out.

        It is in the relation from the beginning of time, which is not an evaluated instant.
        """
        first = net.born_us <= TIME_MIN_US + 1
        if not first.any():
            return net
        self._held = consolidated(ChangeBatch.concat([self._held, net.where(first)]))
        return net.where(~first)

    def _instants(self, net: ChangeBatch, as_of_us: int) -> Iterator[int]:
        """The evaluated instants. `_held` is as of each one before the next one is asked for.

        An empty relation is skipped to its next change, however far the watermark has moved.
        """
        slide_us = self._slide_us
        if slide_us == 1:
            yield from np.unique(net.born_us).tolist()
            return
        if self._next_us is None:
            if not len(net):
                return
            self._next_us = int(net.born_us[0])
        at_us, self._next_us = self._next_us, (as_of_us // slide_us + 1) * slide_us
        while at_us <= as_of_us:
            yield at_us
            changed = int(np.searchsorted(net.born_us, at_us, side="right"))
            at_us += slide_us
            if not len(self._held):
                if changed == len(net):
                    return
                born_us = int(net.born_us[changed])
                at_us = max(at_us, -(-born_us // slide_us) * slide_us)

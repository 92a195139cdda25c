"""Division of the memory for live samples among streams, by need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import numpy as np

from shedder.overload.admission_rate import weighted_shares
from shedder.streams.live_sample import StreamSample

SAMPLES_SHARE: Final = 8  # All live samples take at most 1/8 of the memory budget.
_SHARE_TO_NEED: Final = 1.5  # A share is 1.5 times the present need, so a sample may grow.
_GROWTH: Final = 1.0625  # A stream asks for a new division after this growth.


class SampleBudget:
    """Bytes of all live samples; a stream's share depends on counts and sizes of its tuples alone.

    A share that depended on the rows that were kept would make the number of kept rows depend on
    them, too: such a sample is not uniform. Used by the apply thread.
    """

    def __init__(self, memory_bytes: int) -> None:
        """memory_bytes: the budget of the process."""
        self._size_bytes = memory_bytes // SAMPLES_SHARE
        self._divided_at: dict[StreamSample, int] = {}  # By sample, its population.

    def fair_bytes(self, streams: int) -> int:
        """The share of each of so many streams that need as much as they can get."""
        return self._size_bytes // max(streams, 1)

    def make_room(
        self, sample: StreamSample, batch_bytes: int, samples: Iterable[StreamSample]
    ) -> None:
        """Divide anew if a sample is about to need more than its share.

        Args:
          sample: that a batch is going to be offered to. batch_bytes: of the batch.
          samples: of all streams.
        """
        if sample.wanted_bytes + sample.shares * batch_bytes <= sample.size_bytes_max:
            return
        if sample.population >= _GROWTH * self._divided_at.get(sample, 0):
            self.divide(list(samples), about_to_come=(sample, batch_bytes))

    def divide(
        self,
        samples: Collection[StreamSample],
        about_to_come: tuple[StreamSample, int] | None = None,
    ) -> None:
        """Give each sample its share; unused memory goes to the other samples."""
        self._divided_at = {sample: self._divided_at.get(sample, 0) for sample in samples}
        if not samples:
            return
        needs = np.array([sample.wanted_bytes for sample in samples])
        if about_to_come is not None:
            sample, batch_bytes = about_to_come
            self._divided_at[sample] = sample.population
            needs += [sample.shares * batch_bytes * (each is sample) for each in samples]
        shares = weighted_shares(_SHARE_TO_NEED * needs, np.ones(len(needs)), self._size_bytes)
        left = (self._size_bytes - shares.sum()) / len(needs)
        for each, share in zip(samples, shares.tolist(), strict=True):
            each.limit(int(share + left))

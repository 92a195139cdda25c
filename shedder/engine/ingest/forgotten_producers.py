"""Upper bounds of the epochs of forgotten producers, by the hash of a name.

A sketch: each forgotten name raises four slots out of many to the bit length of its epoch. The
lowest of its slots is an upper bound of its epoch. A name with a slot that was never raised was
not forgotten, so it may begin in any epoch.

The bound grows with the client's epochs, and epochs end at 2^62. Above 2^62 the server counts: a
client may use the next epoch only, and that epoch advances when a name in it is forgotten. So each
name has an epoch in which it may begin, whatever epochs other clients have used.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.engine.ingest.producer_sequences import NUMBER_MAX

_HASHES: Final = np.arange(4, dtype=np.uint64)


class ForgottenProducers:
    """Upper bounds of the epochs of forgotten producers, by the hash of a name. For one thread.

    epoch_max: the largest epoch that a client may use.
    """

    def __init__(self, stored: bytes = b"", epoch_max: int = 0) -> None:
        """stored, epoch_max: of a checkpoint."""
        self._slots: NDArray[np.uint8] = np.frombuffer(stored, np.uint8).copy()
        self.epoch_max = max(NUMBER_MAX + 1, epoch_max)

    @property
    def size_bytes(self) -> int:
        """Bytes of the slots; 0 before a name is forgotten."""
        return self._slots.nbytes

    def add(self, hashed: int, epoch: int, *, slots: int) -> None:
        """Raise the bounds of a name that is forgotten in this epoch.

        slots: bytes to begin with, when the first name is forgotten.
        """
        if not self._slots.size:
            self._slots = np.zeros(slots, np.uint8)
        places = self._places(hashed)
        self._slots[places] = np.maximum(self._slots[places], 1 + epoch.bit_length())
        self.epoch_max = max(self.epoch_max, epoch + 1)

    def epoch_min(self, hashed: int) -> int:
        """Return the smallest epoch in which a name may begin; 0: it was not forgotten."""
        if not self._slots.size:
            return 0
        length = int(self._slots[self._places(hashed)].min()) - 1
        if length < 0:
            return 0
        return self.epoch_max if 1 << length > NUMBER_MAX else 1 << length

    def to_bytes(self) -> bytes:
        """The slots, for a checkpoint; b"": no name was forgotten."""
        return self._slots.tobytes()

    def _places(self, hashed: int) -> NDArray[Any]:
        first, step = np.uint64(hashed & 0xFFFFFFFF), np.uint64(hashed >> 32 | 1)
        return (first + step * _HASHES) % np.uint64(self._slots.size)

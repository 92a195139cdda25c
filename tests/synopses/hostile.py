"""Hostile bytes: a summary's own, with some of them changed and the checksum made right again."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import CorruptSynopsis, SynopsisError

_HEAD = 8  # Magic, version, kind: what is changed here is refused at once.
_CHECKSUM = 4
_CHUNK = 4_096
_PAGE_BYTES = resource.getpagesize()
# Ends of counts, sizes and signs, where arithmetic wraps and memory is asked for.
_BYTES = np.array([0, 1, 2, 7, 127, 128, 254, 255], np.uint8)
_WORDS = np.array(
    [0, 1, 2, 2**24, 2**31 - 1, 2**31, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1], np.uint64
)


def mutations(data: bytes, count: int, seed: int, *, sealed: bool) -> Iterator[bytes]:
    """So many variants: some bytes changed to any, or to ends of their range, or a whole word.

    sealed: it is an envelope, whose checksum comes last.
    """
    rng = np.random.default_rng(seed)
    body = np.frombuffer(data[:-_CHECKSUM] if sealed else data, np.uint8)
    for done in range(0, count, _CHUNK):
        rows = min(_CHUNK, count - done)
        changed = np.tile(body, (rows, 1))
        _change(changed, rng, _HEAD if sealed else 0)
        for row in changed:
            image = row.tobytes()
            end = google_crc32c.value(image).to_bytes(_CHECKSUM, "little") if sealed else b""
            yield image + end


def _change(images: NDArray[np.uint8], rng: np.random.Generator, first: int) -> None:
    rows, size = images.shape
    for least in (0.0, 0.4, 0.8):  # All get one change, some two or three.
        chosen = np.flatnonzero(rng.random(rows) >= least)
        at = rng.integers(first, size, chosen.size)
        any_byte = rng.integers(0, 256, chosen.size).astype(np.uint8)
        ends = rng.choice(_BYTES, chosen.size)
        images[chosen, at] = np.where(rng.random(chosen.size) < 0.5, any_byte, ends)
    chosen = np.flatnonzero(rng.random(rows) < 0.25)
    at = rng.integers(first, size - 8, chosen.size)
    words = rng.choice(_WORDS, chosen.size).view(np.uint8).reshape(-1, 8)
    images[chosen[:, None], at[:, None] + np.arange(8)] = words


@contextmanager
def memory_bounded(more_bytes: int) -> Iterator[None]:
    """In here nothing can be allocated beyond what is held now and so much more.

    What is allocated and never touched counts, too.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * _PAGE_BYTES + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def survive(
    read: Callable[[bytes], Any],
    use: Callable[[Any], object],
    data: bytes,
    *,
    count: int,
    seed: int,
    used_every: int,
    sealed: bool = True,
) -> Counter[str]:
    """Read so many variants; each is refused by name, or is a summary that can be used.

    use: what is done with every `used_every`-th that was not refused.

    Returns:
      How many were `refused`, `read` and `used`.
    """
    ends: Counter[str] = Counter()
    for image in mutations(data, count, seed, sealed=sealed):
        try:
            found = read(image)
        except CorruptSynopsis:
            ends["refused"] += 1
            continue
        ends["read"] += 1
        if ends["read"] % used_every == 0:
            ends["used"] += 1
            with suppress(SynopsisError):  # A total beyond int64, say.
                use(found)
    return ends

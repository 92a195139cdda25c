"""Writing behind: in order, durable in steps, and what fails is told."""

from contextlib import closing, suppress

import google_crc32c
import pytest

from shedder.archive.files.background_writer import WriteBehind
from shedder.archive.tasks.progress import SYNC_BYTES


class Held:
    """A file in memory that fails at one of its writes."""

    def __init__(self, fails_at: int = -1) -> None:
        self.parts: list[bytes] = []
        self.synced: list[int] = []
        self._fails_at = fails_at

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))

    def write(self, parts) -> None:
        if len(self.parts) == self._fails_at:
            raise OSError(28, "No space left on device")
        self.parts += map(bytes, parts)

    def sync(self) -> None:
        self.synced.append(self.size)


PIECES = [bytes([number]) * (1 + number * 37 % 50) for number in range(200)]


def test_pieces_are_written_in_order_and_summed_up():
    file = Held()
    with closing(WriteBehind(file)) as behind:
        for piece in PIECES:
            behind.write(piece)
        behind.settle()
        assert file.parts == PIECES
        assert behind.pieces == [(len(p), google_crc32c.value(p)) for p in PIECES]
        assert behind.crc == google_crc32c.value(b"".join(PIECES))
        behind.begin_last()
        behind.write(b"foot")
        behind.write(b"er")
        behind.settle()
    assert behind.crc_of_last == google_crc32c.value(b"footer")
    assert behind.crc == google_crc32c.value(b"".join(PIECES) + b"footer")
    assert file.synced == []


def test_much_is_made_durable_in_steps():
    file, piece = Held(), bytes(1 << 20)
    with closing(WriteBehind(file)) as behind:
        for _ in range(40):
            behind.write(piece)
        behind.settle()
    assert len(file.synced) == 2
    assert file.synced[0] == SYNC_BYTES + len(piece)


@pytest.mark.parametrize("fails_at", [0, 7, 199])
def test_what_fails_is_told_and_nothing_is_written_after_it(fails_at):
    file = Held(fails_at)
    with closing(WriteBehind(file)) as behind:
        with suppress(OSError):  # Told as soon as it is known.
            for piece in PIECES:
                behind.write(piece)
        with pytest.raises(OSError, match="No space"):
            behind.settle()
        with pytest.raises(OSError, match="No space"):
            behind.write(b"more")
    assert file.parts == PIECES[:fails_at]

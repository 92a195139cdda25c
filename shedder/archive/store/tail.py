"""The tail of a stream: its newest tuples, in memory, in no run yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

import pyarrow as pa

PIECE_ROWS_MAX = 65_536
PIECE_BYTES_MAX = 32 << 20
"""Pieces are not merged to more than this; Arrow's text columns end at 2 GiB."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows in the tail; sequence is that of the (first) record in the log that holds them."""

    first_position: int
    batch: pa.RecordBatch
    sequence: int
    size_bytes: int = -1  # computed once: asking Arrow costs more than merging

    def __post_init__(self) -> None:
        """Take the size from the batch when it is not given."""
        if self.size_bytes < 0:
            object.__setattr__(self, "size_bytes", self.batch.nbytes)

    @property
    def end_position(self) -> int:
        """The position after its last row."""
        return self.first_position + self.batch.num_rows


@dataclass(slots=True, eq=False)
class Tail:
    """Pieces in order of position. Gaps are there only where the log has lost records.

    Small pieces are merged as they come, like the digits of a binary counter, so that readers see
    few and every row is copied at most log2(65,536) times. frozen: pieces that begin below this
    position are being written and stay as they are.
    """

    pieces: deque[Piece] = field(default_factory=deque)
    rows: int = 0
    size_bytes: int = 0
    frozen: int = 0

    def add(self, piece: Piece) -> None:
        """Append a piece; it begins at or after the end of the last one."""
        assert not self.pieces or piece.first_position >= self.pieces[-1].end_position
        self.rows += piece.batch.num_rows
        self.size_bytes += piece.size_bytes
        while self.pieces and self._merges(self.pieces[-1], piece):
            last = self.pieces.pop()
            merged = pa.concat_batches([last.batch, piece.batch])  # type: ignore[attr-defined]
            size = last.size_bytes + piece.size_bytes
            piece = Piece(last.first_position, merged, last.sequence, size)
        self.pieces.append(piece)

    def freeze(self, end_position: int) -> None:
        """Keep the pieces before a position as they are: they are being written."""
        self.frozen = end_position

    def stretch(self, size_bytes_max: int | None = None) -> list[Piece]:
        """The pieces up to the first gap, at most `size_bytes_max`; the first may be split."""
        found: list[Piece] = []
        left_bytes = inf if size_bytes_max is None else size_bytes_max
        first = self.pieces[0] if self.pieces else None
        if first is not None and first.size_bytes > left_bytes:
            rows = int(first.batch.num_rows * left_bytes / first.size_bytes)
            return self.split(first.first_position + max(1, rows))
        for piece in self.pieces:
            left_bytes -= piece.size_bytes
            if found and (left_bytes < 0 or piece.first_position != found[-1].end_position):
                break
            found.append(piece)
        return found

    def split(self, position: int) -> list[Piece]:
        """Let a piece end at a position inside of the first stretch; the pieces before it."""
        found: list[Piece] = []
        for number, piece in enumerate(self.pieces):
            if piece.first_position >= position:
                break
            if piece.end_position > position:
                rows = position - piece.first_position
                parts = [
                    Piece(piece.first_position, piece.batch.slice(0, rows), piece.sequence),
                    Piece(position, piece.batch.slice(rows), piece.sequence),
                ]
                self.size_bytes += sum(part.size_bytes for part in parts) - piece.size_bytes
                self.pieces[number] = parts[0]
                self.pieces.insert(number + 1, parts[1])
                return [*found, parts[0]]
            found.append(piece)
        return found

    def drop(self, count: int) -> None:
        """Remove the first pieces."""
        for _ in range(count):
            piece = self.pieces.popleft()
            self.rows -= piece.batch.num_rows
            self.size_bytes -= piece.size_bytes

    def _merges(self, last: Piece, piece: Piece) -> bool:
        return (
            last.end_position == piece.first_position
            and last.first_position >= self.frozen
            and last.batch.num_rows < 2 * piece.batch.num_rows
            and last.batch.num_rows + piece.batch.num_rows <= PIECE_ROWS_MAX
            and last.size_bytes + piece.size_bytes <= PIECE_BYTES_MAX
        )

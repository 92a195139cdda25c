"""The tail of a stream: its newest tuples, in memory, in no run yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch in the tail; sequence is that of its record in the log."""

    first_position: int
    batch: pa.RecordBatch
    sequence: int

    @property
    def end_position(self) -> int:
        """The position after its last row."""
        return self.first_position + self.batch.num_rows


@dataclass(slots=True, eq=False)
class Tail:
    """Pieces in order of position. Gaps are there only where the log has lost records."""

    pieces: deque[Piece] = field(default_factory=deque)
    rows: int = 0
    size_bytes: int = 0

    def add(self, piece: Piece) -> None:
        """Append a piece; it begins at or after the end of the last one."""
        assert not self.pieces or piece.first_position >= self.pieces[-1].end_position
        self.pieces.append(piece)
        self.rows += piece.batch.num_rows
        self.size_bytes += piece.batch.nbytes

    def stretch(self) -> list[Piece]:
        """The pieces up to the first gap."""
        found: list[Piece] = []
        for piece in self.pieces:
            if found and piece.first_position != found[-1].end_position:
                break
            found.append(piece)
        return found

    def drop(self, count: int) -> None:
        """Remove the first pieces."""
        for _ in range(count):
            piece = self.pieces.popleft()
            self.rows -= piece.batch.num_rows
            self.size_bytes -= piece.batch.nbytes

"""Replays: repeated parts of a push, compared with the stored push."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shedder.engine.ingest.producer_sequences import PushProgress, check_replay
from shedder.errors import SequenceReused
from shedder.streams.content_fingerprint import joined
from shedder.streams.push_parts import Part

RUNNING_MAX: Final = 1_024  # Producers in the middle of a replay; beyond, values are not compared.


@dataclass(frozen=True, slots=True)
class _Running:
    """A replay of a push, received up to end_row. fingerprint: of these rows."""

    epoch: int
    sequence: int
    end_row: int
    fingerprint: int | None


class Replays:
    """Compares replays, however they are split, at the row where the stored push ends.

    For one thread.
    """

    def __init__(self, running_max: int = RUNNING_MAX) -> None:
        self._running: dict[str, _Running] = {}
        self._running_max = running_max

    def check(
        self,
        producer: str,
        known: PushProgress,
        *,
        sequence: int,
        part: Part,
        rows: int,
        fingerprint: int | None,
    ) -> None:
        """Check one repeated part; its rows are among the stored rows.

        Args:
          producer: its name. known: its progress. sequence: of the push. part: of the push.
          rows: of the part, as pushed. fingerprint: of these rows; None: not known.

        Raises:
          SequenceReused: the push has other rows than the stored one.
        """
        before = self._running.pop(producer, None)
        end_row = part.first_row + rows
        stored = check_replay(producer, known, sequence=sequence, end_row=end_row, part=part)
        whole = fingerprint
        if part.first_row:
            begun = _begun(before, known, sequence, part.first_row)
            whole = None if begun is None else joined(begun.fingerprint, fingerprint)
        if end_row < stored:
            self._running[producer] = _Running(known.epoch, sequence, end_row, whole)
            if len(self._running) > self._running_max:
                del self._running[next(iter(self._running))]
            return
        content = known.content(sequence)
        if content is None or None in (whole, content.fingerprint):
            return
        if whole != content.fingerprint:
            raise SequenceReused.other_content(producer, sequence, end_row)


def _begun(
    running: _Running | None, known: PushProgress, sequence: int, first_row: int
) -> _Running | None:
    """The replay that this part goes on from; None: there is none."""
    if running is None:
        return None
    here = (running.epoch, running.sequence, running.end_row)
    return running if here == (known.epoch, sequence, first_row) else None

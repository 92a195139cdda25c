"""Names of the files of runs, and what each name says about its file."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"([0-9]{1,18})/(-[0-9]{19}|[0-9]{20})-(-[0-9]{19}|[0-9]{20})"
    r"(-r[0-9.]+(?:e-?[0-9]+)?|-w[0-9]+)?(?:\.[0-9]+)?\.parquet"
)


@dataclass(frozen=True, slots=True)
class RunName:
    """The stretch [first_position, end_position) of a stream that a file is of.

    is_run: the file has the rows of a run; else a sampled copy of them, or partial aggregates.
    """

    stream_id: int
    first_position: int
    end_position: int
    is_run: bool

    @classmethod
    def parse(cls, name: str) -> RunName | None:
        """Read a path below `runs/`; None: no version gives such names."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found[1]), int(found[2]), int(found[3]), found[4] is None)

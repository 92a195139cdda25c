"""Insertion beside 0 to 8 simultaneous questions, per layout (OSCAR's figures 13 to 18)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.measure import Report
from benchmarks.oscar_parts.oscar_archive import (
    BATCH_ROWS,
    RUN_ROWS,
    Archive,
    Crowd,
    copies,
    crowd,
    path_of,
)
from benchmarks.oscar_parts.oscar_plots import Curves, draw_crowds, draw_rates
from shedder.cql.statements.archive_layout import Eager, Hybrid, Layout, Lazy, Plain

SIZES: Final = (0, 1, 2, 4, 8)
LEVELS: Final = (0.25, 0.75)
MORE_SIZES: Final = (2, 8)
MORE_LEVELS: Final = (0.0, 0.25, 0.5, 0.75, 0.99)


@dataclass(frozen=True, slots=True)
class ArchiveVariant:
    """A layout, the name of its archive, and whether the vacuum comes before the questions."""

    layout: Layout
    archive: str
    vacuumed: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.archive}, vacuumed" if self.vacuumed else self.archive


KINDS: Final = (
    ArchiveVariant(Plain(), "plain"),
    ArchiveVariant(Lazy(), "lazy"),
    ArchiveVariant(Lazy(), "lazy", vacuumed=True),
    ArchiveVariant(Eager(), "eager, 4 copies"),
    ArchiveVariant(Hybrid(), "hybrid, 64 blocks"),
)

Case = tuple[float, int]
"""The reduction of the questions, and how many are asked at once."""

_CASES: Final = sorted({*product(LEVELS, SIZES), *product(MORE_LEVELS, MORE_SIZES)})
_ALONE_REPEATS: Final = 3
_NOTE = (
    "Each asks COUNT(*) and SUM(value) of a stream of its own, cold, again as soon as it is "
    "answered, in a thread of the process that inserts. Questions under way at the end count by "
    "the part that they had seen. One measurement each; of N = 0 the fastest of 3."
)
_APART = (
    "Not as in the paper: there the disk was contended, and its elevator shielded the writer from "
    "the third question on. Here the disk is far from its limits; two cores are contended, by "
    "decoding on one side and encoding on the other, so insertion goes on slowing with N, "
    "and what a layout leaves unread is given to the writer, too. All threads have the same "
    "priority here; in the engine those that write runs give way to those that answer. Lazy before "
    "its vacuum is as plain, for the reason above."
)


def crowds(
    folder: Path, batches: Sequence[pa.RecordBatch], pictures: Path
) -> tuple[Report, Report]:
    """Measure all kinds; the archives that are asked lie in folder."""
    runs = max(1, len(batches) * BATCH_ROWS // RUN_ROWS // 4)
    some = batches[: runs * RUN_ROWS // BATCH_ROWS]
    found = {kind.name: _measured(folder, kind, some) for kind in KINDS}
    seconds = _by_size(found, lambda crowd: crowd.seconds)
    questions = _by_size(found, lambda crowd: crowd.questions)
    rates: list[Curves] = [
        {name: [cases[lv, size].per_1000_s for lv in MORE_LEVELS] for name, cases in found.items()}
        for size in MORE_SIZES
    ]
    draw_crowds(SIZES, LEVELS, seconds, questions, pictures / "oscar/crowds.svg")
    draw_rates(MORE_LEVELS, MORE_SIZES, rates, pictures / "oscar/rates.svg")
    return _together(found, sum(batch.num_rows for batch in some)), _rates(found)


def _by_size(
    found: Mapping[str, Mapping[Case, Crowd]], what: Callable[[Crowd], float]
) -> list[Curves]:
    """For each of LEVELS, a curve over SIZES per kind."""
    return [
        {name: [what(cases[level, size]) for size in SIZES] for name, cases in found.items()}
        for level in LEVELS
    ]


# --- measuring ------------------------------------------------------------------------------------


def _measured(
    folder: Path, kind: ArchiveVariant, batches: Sequence[pa.RecordBatch]
) -> dict[Case, Crowd]:
    """All cases of a kind, in order of reduction."""
    found: dict[Case, Crowd] = {}
    archive = Archive(path_of(folder, kind.archive))
    levels = groupby(_CASES, key=lambda case: case[0])
    if kind.vacuumed:
        for level, cases in levels:
            archive.scan(level)
            archive.vacuum()
            found |= _crowds(folder, kind, archive, list(cases), batches)
            archive.drop_copies()
    else:
        found = _crowds(folder, kind, archive, _CASES, batches)
    archive.close()
    return found


def _crowds(
    folder: Path,
    kind: ArchiveVariant,
    archive: Archive,
    cases: Sequence[Case],
    batches: Sequence[pa.RecordBatch],
) -> dict[Case, Crowd]:
    """Cases that ask the same archives."""
    found: dict[Case, Crowd] = {}
    with copies(archive, folder, max(SIZES)) as sources:
        for level, size in cases:
            repeats = 1 if size else _ALONE_REPEATS
            done = [_once(folder, kind, level, batches, sources[:size]) for _ in range(repeats)]
            found[level, size] = min(done, key=lambda crowd: crowd.seconds)
    return found


def _once(
    folder: Path,
    kind: ArchiveVariant,
    level: float,
    batches: Sequence[pa.RecordBatch],
    sources: Sequence[Archive],
) -> Crowd:
    into = Archive(folder / "into", kind.layout)
    try:
        if kind.vacuumed:
            into.give_copy(batches, level)
        return crowd(into, batches, sources, level)
    finally:
        into.close()
        shutil.rmtree(into.directory)


# --- reporting ------------------------------------------------------------------------------------


def _together(found: Mapping[str, Mapping[Case, Crowd]], rows: int) -> Report:
    table = []
    for name, cases in found.items():
        for level in LEVELS:
            all_sizes = [cases[level, size] for size in SIZES]
            cells = [f"{c.seconds:.1f} s, {c.questions:,.1f}" for c in all_sizes]
            table.append((name, f"{level:.0%}", *cells))
    most = max(SIZES)
    plain, hybrid = (found[name][0.75, most] for name in ("plain", "hybrid, 64 blocks"))
    return Report(
        f"Inserting {rows:,} tuples beside N questions (figures 13 to 16): at 75 % reduction and "
        f"N = {most}, hybrid answers {hybrid.per_1000_s / plain.per_1000_s:.1f} times as many "
        f"questions per second as plain, and inserts in {hybrid.seconds / plain.seconds:.2f} "
        "times its time.",
        ("layout", "reduction", *(f"N = {size}" for size in SIZES)),
        table,
        ("Seconds of the insertion, questions answered meanwhile.", _NOTE, _APART),
        ("oscar/crowds.svg", "Insertion time and questions answered by simultaneous questions"),
    )


def _rates(found: Mapping[str, Mapping[Case, Crowd]]) -> Report:
    return Report(
        "Questions answered per 1,000 seconds of insertion, by reduction (figures 17 and 18).",
        ("layout", "N", *(f"{level:.0%}" for level in MORE_LEVELS)),
        [
            (name, str(size), *(f"{cases[lv, size].per_1000_s:,.0f}" for lv in MORE_LEVELS))
            for size in MORE_SIZES
            for name, cases in found.items()
        ],
        (),
        ("oscar/rates.svg", "Questions answered per 1,000 seconds by reduction"),
    )

"""Pictures of the walks in docs/architecture.md: steps in lanes, by where each step runs.

`make docs` writes them beside this module. A number in a picture is a step of the walk's table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from shedder.svg import WIDTH, rect, text

MARGIN, HEADER = 12.0, 46.0  # Around the picture, and above the steps; pixels.
PITCH, HEIGHT = 66.0, 46.0  # From one row of steps to the next, and of one step; pixels.
GAP, STEP_WIDTH_MAX = 9.0, 196.0  # From a step to the border of its lane, and its width; pixels.
CLIENT, LOOP, DISK, APPLY, BACK = "client", "loop", "disk", "apply", "back"

STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  .panel { fill: #ffffff; } .lane { fill: #f5f7fa; rx: 8px; }
  .title { font-size: 13.5px; font-weight: 600; fill: #1b2330; }
  .detail { font-size: 11px; fill: #4a5565; } .label { font-size: 11px; fill: #4a5565; }
  .header { font-size: 12.5px; font-weight: 600; }
  .step { fill: #ffffff; stroke: #c9d1dc; rx: 7px; } .end { fill: none; stroke: #8490a1; rx: 23px; }
  .number { font-size: 11.5px; font-weight: 700; fill: #ffffff; } .badge { rx: 9px; }
  .arrow { fill: none; stroke: #66758a; stroke-width: 1.5; } .head { fill: #66758a; }
  .client { fill: #5b6573; } .loop { fill: #1f66b8; } .disk { fill: #a3520a; }
  .apply { fill: #1c7a43; } .back { fill: #7a3fb0; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0f141b; } .lane { fill: #171e28; } .title { fill: #e8edf4; }
    .detail { fill: #a9b4c3; } .label { fill: #a9b4c3; } .step { fill: #202936; stroke: #3b4757; }
    .end { stroke: #7d899a; } .number { fill: #0f141b; } .arrow { stroke: #8b98aa; }
    .head { fill: #8b98aa; } .client { fill: #aab4c2; }
    .loop { fill: #74b0f5; } .disk { fill: #f0a35c; } .apply { fill: #62cc8c; }
    .back { fill: #c49bf0; }
  }
"""


@dataclass(frozen=True, slots=True)
class Station:
    """A step of a walk, or what enters or leaves it.

    lane: one of the picture's lanes.
    row: from the top, from 0 on; steps of one row may happen at the same time.
    name, detail: two lines of text.
    number: the step in the table of the page; None: an input or an output.
    """

    lane: str
    row: float
    name: str
    detail: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Walk:
    """One picture.

    lanes: kind and name of each lane, from left to right.
    arrows: from one step's name to another's, with a label or "".
    """

    file: str
    title: str
    lanes: tuple[tuple[str, str], ...]
    steps: tuple[Station, ...]
    arrows: tuple[tuple[str, str, str], ...]


WALKS = (
    Walk(
        "batch.svg",
        "The way of a batch: from the client through admission, log, panes and answers into a run",
        (
            (CLIENT, "client"),
            (LOOP, "event loop"),
            (DISK, "disk thread"),
            (APPLY, "apply thread"),
            (BACK, "runs thread"),
        ),
        (
            Station(CLIENT, 0, "Batch", "Arrow IPC bytes"),
            Station(LOOP, 0, "Call", "identity, credits", 1),
            Station(LOOP, 1, "Admission", "quotas, load, room", 2),
            Station(LOOP, 2, "Intake", "checks and numbers", 3),
            Station(DISK, 3, "Log", "one fsync for a group", 4),
            Station(CLIENT, 3, "Receipt", "the batch is durable"),
            Station(APPLY, 4, "Apply queue", "batches into a frame", 5),
            Station(APPLY, 5, "Live sample", "smallest random keys", 6),
            Station(APPLY, 6, "Panes", "arrays into synopses", 7),
            Station(APPLY, 7, "Windows", "closed panes, merged", 8),
            Station(APPLY, 8, "Answer", "evidence with intervals", 9),
            Station(CLIENT, 8, "Subscriber", "the newest answer"),
            Station(BACK, 6, "Run", "tail to Parquet", 10),
        ),
        (
            ("Batch", "Call", ""),
            ("Call", "Admission", ""),
            ("Admission", "Intake", ""),
            ("Intake", "Log", ""),
            ("Log", "Receipt", ""),
            ("Log", "Apply queue", ""),
            ("Apply queue", "Live sample", ""),
            ("Live sample", "Panes", ""),
            ("Panes", "Windows", ""),
            ("Windows", "Answer", ""),
            ("Answer", "Subscriber", "watermark passed the window"),
            ("Apply queue", "Run", "tail"),
        ),
    ),
    Walk(
        "question.svg",
        "The way of a one-time query: parsed, bound, planned, then sample, part, or all",
        (
            (CLIENT, "client"),
            (LOOP, "worker of the call"),
            (APPLY, "apply thread"),
            (BACK, "exact process"),
        ),
        (
            Station(CLIENT, 0, "Text", "… WITHIN 1 PERCENT"),
            Station(LOOP, 0, "Parse", "limits, grammar, statement", 1),
            Station(LOOP, 1, "Statement", "names, tenant, task", 2),
            Station(LOOP, 2, "Bind", "columns, types, reduction", 3),
            Station(APPLY, 3, "Snapshot", "sample, runs and tail", 4),
            Station(LOOP, 4, "Plan", "sources, cheapest first", 5),
            Station(LOOP, 5, "Sample", "first look, part of delta", 6),
            Station(LOOP, 6, "Part of the archive", "look by look, until it meets", 7),
            Station(BACK, 8, "All tuples", "DuckDB, within a deadline", 8),
            Station(LOOP, 8, "Answer", "evidence with intervals", 9),
            Station(CLIENT, 8, "Table", "value, low, high, bound"),
        ),
        (
            ("Text", "Parse", ""),
            ("Parse", "Statement", ""),
            ("Statement", "Bind", ""),
            ("Bind", "Snapshot", ""),
            ("Snapshot", "Plan", ""),
            ("Plan", "Sample", ""),
            ("Sample", "Part of the archive", "target missed"),
            ("Sample", "Answer", "target met"),
            ("Part of the archive", "All tuples", "target missed again"),
            ("Part of the archive", "Answer", "target met"),
            ("All tuples", "Answer", ""),
            ("Answer", "Table", ""),
        ),
    ),
    Walk(
        "level.svg",
        "The way of a level change: measured, decided, logged, in force in the panes",
        (
            (LOOP, "controller, every 100 ms"),
            (APPLY, "apply thread"),
            (DISK, "disk thread"),
        ),
        (
            Station(LOOP, 0, "Load", "age of the queue, rates, CPU", 1),
            Station(LOOP, 1, "Costs", "of each synopsis, measured", 2),
            Station(LOOP, 2, "Ladder", "all levels in one order", 3),
            Station(LOOP, 3, "Decision", "a budget in ns per tuple", 4),
            Station(LOOP, 4, "Limits", "admission rate, drop share", 5),
            Station(APPLY, 4, "Level", "in force before the next batch", 6),
            Station(DISK, 5, "Log record", "behind the waiting batches", 7),
            Station(APPLY, 5, "Thinned frame", "nested rows by random key", 8),
            Station(APPLY, 6, "Level segment", "a synopsis for each level", 9),
            Station(APPLY, 7, "Wider intervals", "a stratum for each level", 10),
        ),
        (
            ("Load", "Costs", "once a second"),
            ("Costs", "Ladder", ""),
            ("Ladder", "Decision", ""),
            ("Decision", "Limits", ""),
            ("Decision", "Level", "levels that fit the budget"),
            ("Level", "Log record", ""),
            ("Level", "Thinned frame", ""),
            ("Thinned frame", "Level segment", ""),
            ("Level segment", "Wider intervals", ""),
        ),
    ),
    Walk(
        "recovery.svg",
        "The way of a recovery: directory verified, checkpoint restored, log replayed, started",
        (
            (DISK, "files of the directory"),
            (LOOP, "opening thread"),
            (APPLY, "live state"),
        ),
        (
            Station(LOOP, 0, "Lock", "format, owner", 1),
            Station(DISK, 1, "Catalog", "checksum of every row", 2),
            Station(DISK, 2, "Log segments", "torn tail cut, damage noted", 3),
            Station(DISK, 3, "Other files", "orphans, repairs", 4),
            Station(LOOP, 3, "Services", "built, none runs yet", 5),
            Station(LOOP, 4, "Checkpoint", "read from the catalog", 6),
            Station(APPLY, 4, "Streams, queries", "samples, panes, levels", 7),
            Station(LOOP, 5, "Replay", "records in log order", 8),
            Station(APPLY, 5, "Effects", "the same as when live", 9),
            Station(APPLY, 6, "Producers", "numbers, lost positions", 10),
            Station(LOOP, 7, "Start", "threads, controller", 11),
        ),
        (
            ("Lock", "Catalog", ""),
            ("Catalog", "Log segments", ""),
            ("Log segments", "Other files", ""),
            ("Other files", "Services", ""),
            ("Services", "Checkpoint", ""),
            ("Checkpoint", "Streams, queries", ""),
            ("Checkpoint", "Replay", ""),
            ("Replay", "Effects", "one by one"),
            ("Effects", "Producers", ""),
            ("Producers", "Start", ""),
        ),
    ),
)


def picture(walk: Walk) -> str:
    """Draw a walk as an SVG document with colours for a light and a dark page."""
    width = (WIDTH - 2 * MARGIN) / len(walk.lanes)
    left = {kind: MARGIN + at * width for at, (kind, _) in enumerate(walk.lanes)}
    height = HEADER + PITCH * (1 + max(step.row for step in walk.steps)) + MARGIN
    boxes = {step.name: _Box.of(step, left[step.lane], width) for step in walk.steps}
    parts = [rect(0, 0, WIDTH, height, "panel")]
    for kind, name in walk.lanes:
        parts.append(rect(left[kind] + 3, MARGIN, width - 6, height - 2 * MARGIN, "lane"))
        parts.append(text(left[kind] + width / 2, MARGIN + 21, name, "middle", f"header {kind}"))
    for source, target, label in walk.arrows:
        parts += _arrow(boxes[source], boxes[target], label)
    for box in boxes.values():
        parts += box.parts()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img" aria-label="{escape(walk.title)}">\n<title>{escape(walk.title)}</title>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Box:
    """A step in its place; x, y: of its left upper corner."""

    step: Station
    x: float
    y: float
    width: float

    @classmethod
    def of(cls, step: Station, left: float, width: float) -> _Box:
        own = min(width - 2 * GAP, STEP_WIDTH_MAX)
        return cls(step, left + (width - own) / 2, HEADER + PITCH * step.row, own)

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + HEIGHT / 2

    def parts(self) -> Iterator[str]:
        """Draw the box, its number in the colour of the lane, and its two lines of text."""
        step = self.step
        yield rect(self.x, self.y, self.width, HEIGHT, "end" if step.number is None else "step")
        x, anchor = self.middle[0], "middle"
        if step.number is not None:
            wide = 18 if step.number < 10 else 23
            yield rect(self.x + 9, self.y + 7, wide, 18, f"badge {step.lane}")
            yield text(self.x + 9 + wide / 2, self.y + 20, str(step.number), "middle", "number")
            x, anchor = self.x + 16 + wide, "start"
        yield text(x, self.y + 20.5, step.name, anchor, "title")
        x = self.x + 11 if step.number is not None else x
        yield text(x, self.y + 37, step.detail, anchor, "detail")


def _arrow(source: _Box, target: _Box, label: str) -> Iterator[str]:
    """Draw an arrow: down, or across, or across and down; past the steps between in one lane."""
    (x, y), (to_x, to_y) = source.middle, target.middle
    side = 1 if to_x > x else -1
    start = x + side * source.width / 2
    if x == to_x and to_y - y > 2 * PITCH:
        beside, end = source.x - 14, target.y - 20
        corner = f"h-6q-8 0 -8 8V{end - 8:.1f}q0 8 8 8H{target.x + 10:.1f}q8 0 8 8"
        path = f"M{source.x:.1f} {y:.1f}{corner}"
        yield from _path(f"{path}V{target.y - 5:.1f}", target.x + 18, target.y, 0)
        yield text(beside - 7, (y + to_y) / 2, label, "end") if label else ""
    elif x == to_x:
        yield from _path(f"M{x:.1f} {y + HEIGHT / 2:.1f}V{target.y - 5:.1f}", x, target.y, 0)
        yield text(x + 8, target.y - 7, label, "start") if label else ""
    elif y == to_y:
        end = to_x - side * target.width / 2
        yield from _path(f"M{start:.1f} {y:.1f}H{end - side * 5:.1f}", end, y, side)
        yield text((start + end) / 2, y - 7, label, "middle") if label else ""
    else:
        turn = f"Q{to_x:.1f} {y:.1f} {to_x:.1f} {y + 8:.1f}V{target.y - 5:.1f}"
        yield from _path(f"M{start:.1f} {y:.1f}H{to_x - side * 8:.1f}{turn}", to_x, target.y, 0)
        yield text((start + to_x) / 2, y - 7, label, "middle") if label else ""


def _path(path: str, x: float, y: float, side: int) -> Iterator[str]:
    """Draw a line and its head at x, y: downwards (0), to the right (1) or to the left (-1)."""
    head = f"l{-7.5 * side:.1f} -4.5v9z" if side else "l-4.5 -7.5h9z"
    yield f'<path class="arrow" d="{path}"/>'
    yield f'<path class="head" d="M{x:.1f} {y:.1f}{head}"/>'


if __name__ == "__main__":
    for each in WALKS:
        (Path(__file__).parent / each.file).write_text(picture(each))

"""Plots as inline SVG: no script, no font and no library to load; colours come from the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.svg import WIDTH, axis_line, circle, line, percent, rect, svg, text, ticks
from spark_ingest.scores import BESIDE_VALUES, Attainment, Judged, Score

_LABEL = 280  # px left of the axes for names
_ROW = 28
_POINTS_MAX = 3_000
_DECADES_MAX = 6
_WIDEST = 2  # 10,000 %: what is wider lies at the edge


def coverage_plot(scores: Sequence[Score]) -> str:
    """A row per aggregate and source: share of intervals that held, claim, chance band, gate."""
    right = WIDTH - 150
    floor = min([0.8, *(min(s.coverage, s.band_low) for s in scores)])
    floor = max(0.0, math.floor(floor * 20) / 20)

    def at(share: float) -> float:
        return _LABEL + (max(share, floor) - floor) / (1 - floor) * (right - _LABEL)

    height = _ROW * len(scores) + 44
    parts = [axis_line(at(t), 8, height - 36, percent(t)) for t in ticks(floor, 1.0, 5)]
    for row, score in enumerate(scores):
        y = 8 + _ROW * row + _ROW / 2
        kind = "good" if score.passed else "bad"
        lost = f"{score.values_held:,} / {score.values:,} values"
        gate = score.required / score.trials
        parts += [
            text(_LABEL - 12, y + 4, f"{score.aggregate} · {score.source}", "end"),
            rect(at(score.band_low), y - 8, at(score.band_high) - at(score.band_low), 16, "band"),
            line(at(score.confidence), y - 10, at(score.confidence), y + 10, "claim"),
            line(at(gate), y - 10, at(gate), y + 10, "gate") if gate > floor else "",
            circle(at(score.coverage), y, 5.5, kind, f"{percent(score.coverage)} held"),
            text(right + 12, y + 4, lost, "start", "small"),
        ]
    return svg(parts, height, "Share of intervals that held, per aggregate and source")


def error_plot(judged: Sequence[Judged]) -> str:
    """Claimed half width against true error, both relative and logarithmic; misses stand out."""
    pairs = [
        (j.verdict.half_width, j.verdict.error, j)
        for j in judged
        if j.verdict.half_width
        and j.verdict.error is not None
        and j.verdict.claim.bound == "interval"
        and j.verdict.place is not None
        and j.aggregate not in BESIDE_VALUES
    ]
    if not pairs:
        return ""
    misses = [pair for pair in pairs if not pair[2].verdict.held]
    held = [pair for pair in pairs if pair[2].verdict.held]
    shown = held[:: max(1, math.ceil(len(held) / _POINTS_MAX))] + misses
    positive = [width for width, _, _ in shown] + [error for _, error, _ in shown if error > 0]
    high = min(math.ceil(math.log10(max(positive))), _WIDEST)
    low = max(math.floor(math.log10(min(positive))), high - _DECADES_MAX)
    low = min(low, high - 1)
    left, right, top, bottom = 90, WIDTH - 36, 30, 440

    def place(share: float) -> float:
        return (min(max(math.log10(share), low), high) - low) / (high - low)

    def x(width: float) -> float:
        return left + place(width) * (right - left)

    def y(error: float) -> float:
        share = 0.0 if error <= 0 else place(error)
        return bottom - 24 - share * (bottom - top - 24) if error > 0 else bottom

    sources = sorted({j.source for _, _, j in shown})
    parts = []
    for decade in range(low, high + 1):
        name = percent(10.0**decade)
        parts += [
            line(x(10.0**decade), top, x(10.0**decade), bottom, "grid"),
            line(left, y(10.0**decade), right, y(10.0**decade), "grid"),
            text(x(10.0**decade), bottom + 18, name, "middle", "small"),
            text(left - 8, y(10.0**decade) + 4, name, "end", "small"),
        ]
    parts.append(text(left - 8, bottom + 4, "none", "end", "small"))
    parts.append(line(x(10.0**low), y(10.0**low), x(10.0**high), y(10.0**high), "claim"))
    for width, error, one in shown:
        kind = f"dot s{sources.index(one.source) % 6}" if one.verdict.held else "miss"
        parts.append(circle(x(width), y(error), 2.6 if one.verdict.held else 4.2, kind))
    parts.append(text((left + right) / 2, bottom + 40, "claimed half width", "middle"))
    parts.append(text(left - 8, top - 16, "true error", "end"))
    for at, source in enumerate([*sources, "missed"]):
        kind = "miss" if source == "missed" else f"dot s{at % 6}"
        parts.append(circle(left + 16, top + 14 + 20 * at, 4.5, kind))
        parts.append(text(left + 28, top + 18 + 20 * at, source, "start", "small"))
    return svg(parts, bottom + 50, "Claimed half width against true error")


def place_plot(judged: Iterable[Judged]) -> str:
    """Return where in its interval the truth lay: -1 and 1 are the ends, outside is a miss."""
    places = np.array(
        [
            j.verdict.place
            for j in judged
            if j.verdict.place
            and j.verdict.claim.bound == "interval"
            and j.aggregate not in BESIDE_VALUES
        ],
        np.float64,
    )
    if len(places) == 0:
        return ""
    counts, edges = np.histogram(np.clip(places, -1.599, 1.599), np.linspace(-1.6, 1.6, 65))
    left, right, top, bottom = 60, WIDTH - 20, 14, 220

    def x(place: float) -> float:
        return left + (place + 1.6) / 3.2 * (right - left)

    parts = [rect(x(-1), top, x(1) - x(-1), bottom - top, "band")]
    parts += _bars(counts, [x(float(edge)) for edge in edges], top + 8, bottom)
    for tick, name in ((-1, "low"), (0, "the value"), (1, "high")):
        parts += [
            line(x(tick), top, x(tick), bottom, "claim"),
            text(x(tick), bottom + 18, name, "middle", "small"),
        ]
    outside = int((np.abs(places) > 1).sum())
    parts.append(text(right, top + 14, f"{outside:,} of {len(places):,} outside", "end", "small"))
    return svg(parts, bottom + 28, "Where in its interval the truth lay")


def spread_plot(judged: Sequence[Judged]) -> str:
    """True errors per aggregate: median, middle half and 5th to 95th percentile, logarithmic."""
    errors: dict[str, list[float]] = {}
    for one in judged:
        judgeable = one.verdict.claim.bound == "interval" and one.aggregate not in BESIDE_VALUES
        if judgeable and one.verdict.error is not None:
            name = one.aggregate + (" (rank)" if one.verdict.place is None else "")
            errors.setdefault(name, []).append(one.verdict.error)
    known = {n: np.array(e) for n, e in sorted(errors.items()) if len(e) >= 5 and max(e) > 0}
    if not known:
        return ""
    high = max(math.ceil(math.log10(float(np.quantile(e, 0.95)) or 1e-4)) for e in known.values())
    low, right = high - 6, WIDTH - 110

    def x(error: float) -> float:
        share = (math.log10(error) - low) / 6 if error > 0 else 0.0
        return _LABEL + min(max(share, 0.0), 1.0) * (right - _LABEL)

    height = _ROW * len(known) + 44
    decades = range(low, high + 1)
    parts = [axis_line(x(10.0**d), 8, height - 36, percent(10.0**d)) for d in decades]
    for row, (name, values) in enumerate(known.items()):
        y = 8 + _ROW * row + _ROW / 2
        p5, p25, p50, p75, p95 = (
            float(v) for v in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
        )
        parts += [
            text(_LABEL - 12, y + 4, name, "end"),
            line(x(p5), y, x(p95), y, "whisker"),
            rect(x(p25), y - 7, max(x(p75) - x(p25), 2), 14, "box"),
            line(x(p50), y - 9, x(p50), y + 9, "median"),
            text(right + 12, y + 4, f"n = {len(values):,}", "start", "small"),
        ]
    return svg(parts, height, "True errors per aggregate")


def attainment_plot(found: Sequence[Attainment]) -> str:
    """Per aggregate: share of values said to meet their target, and of these, truly within it."""
    if not found:
        return ""
    right = WIDTH - 200
    height = _ROW * len(found) + 44

    def x(share: float) -> float:
        return _LABEL + share * (right - _LABEL)

    parts = [axis_line(x(t), 8, height - 36, percent(t)) for t in ticks(0.0, 1.0, 5)]
    for row, one in enumerate(found):
        y = 8 + _ROW * row + _ROW / 2
        met, kept = one.met / one.values, one.met_and_attained / one.values
        parts += [
            text(_LABEL - 12, y + 4, one.aggregate, "end"),
            rect(x(0), y - 8, x(1) - x(0), 16, "band"),
            rect(x(0), y - 8, x(met) - x(0), 16, "bar"),
            rect(x(kept), y - 8, x(met) - x(kept), 16, "lost") if kept < met else "",
            text(
                right + 12,
                y + 4,
                f"{one.met:,} of {one.values:,} said, {one.met_and_attained:,} kept",
                "start",
                "small",
            ),
        ]
    return svg(parts, height, "Targets said to be met, and kept")


def _bars(
    counts: NDArray[np.int64], edges: Sequence[float], top: float, bottom: float
) -> list[str]:
    tallest = max(int(counts.max()), 1)
    return [
        rect(
            edges[at] + 0.5,
            bottom - (bottom - top) * int(count) / tallest,
            edges[at + 1] - edges[at] - 1,
            (bottom - top) * int(count) / tallest,
            "lost" if abs(at + 0.5 - len(counts) / 2) > len(counts) / 3.2 else "bar",
        )
        for at, count in enumerate(counts)
        if count
    ]

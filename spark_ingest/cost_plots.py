"""Plots of what precision cost: errors against thinning, and against bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

import numpy as np

from shedder.svg import WIDTH, axis_line, circle, line, percent, rect, svg, text
from spark_ingest.scores import BESIDE_VALUES, Judged

_LABEL = 130  # px left of the axes for names
_NAMES = 160  # ... and right of them, where no dot is
_ROW = 30
_DECADES = 6
_FEWEST = 5  # values, below which there is no picture of them
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def thinning_plot(judged: Iterable[Judged]) -> str:
    """A row per power of two of what was read: true errors as a box, claimed ones as a mark."""
    by_share: dict[int, list[tuple[float, float]]] = {}
    for one in judged:
        error, width = one.verdict.error, one.verdict.half_width
        known = error is not None and width is not None and one.verdict.place is not None
        if known and one.verdict.claim.bound == "interval" and one.aggregate not in BESIDE_VALUES:
            assert error is not None
            assert width is not None
            level = round(-math.log2(max(one.made.thinning, 2.0**-40)))
            by_share.setdefault(level, []).append((error, width))
    rows = {level: pairs for level, pairs in sorted(by_share.items()) if len(pairs) >= _FEWEST}
    if len(rows) < 2:
        return ""
    widths = [np.quantile([width for _, width in pairs], 0.75) for pairs in rows.values()]
    high = math.ceil(math.log10(max(*widths, 1e-4)))
    low, right = high - _DECADES, WIDTH - 110

    def x(error: float) -> float:
        share = (math.log10(error) - low) / _DECADES if error > 0 else 0.0
        return _LABEL + min(max(share, 0.0), 1.0) * (right - _LABEL)

    height = _ROW * len(rows) + 44
    parts = [axis_line(x(10.0**d), 8, height - 36, percent(10.0**d)) for d in range(low, high + 1)]
    for row, (level, pairs) in enumerate(rows.items()):
        y = 8 + _ROW * row + _ROW / 2
        errors = np.array([error for error, _ in pairs])
        p5, p25, p50, p75, p95 = np.quantile(errors, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
        claimed = x(median(width for _, width in pairs))
        parts += [
            text(_LABEL - 12, y + 4, "all read" if level == 0 else f"1/{2**level:,} read", "end"),
            line(x(p5), y, x(p95), y, "whisker"),
            rect(x(p25), y - 7, max(x(p75) - x(p25), 2), 14, "box"),
            line(x(p50), y - 9, x(p50), y + 9, "median"),
            line(claimed, y - 11, claimed, y + 11, "gate"),
            text(right + 12, y + 4, f"n = {len(pairs):,}", "start", "small"),
        ]
    return svg(parts, height, "True and claimed errors by the share of the tuples that was read")


def bytes_plot(judged: Iterable[Judged]) -> str:
    """Bytes against the median error of an answer's values, both logarithmic."""
    answers: dict[tuple[int, str], tuple[int, list[float]]] = {}
    for one in judged:
        size, error = one.made.size_bytes, one.verdict.error
        if size and error is not None and one.verdict.claim.bound == "interval":
            answers.setdefault((one.question, one.source), (size, []))[1].append(error)
    points = [(size, median(errors), source) for (_, source), (size, errors) in answers.items()]
    errors = [error for _, error, _ in points if error > 0]
    if len(points) < _FEWEST or not errors:
        return ""
    left, right, top, bottom = 90, WIDTH - _NAMES, 30, 360
    least, most = (math.log2(bound(size for size, _, _ in points)) for bound in (min, max))
    first, last = math.floor(least / 2) * 2, max(math.ceil(most / 2) * 2, math.floor(least) + 2)
    high = math.ceil(math.log10(max(errors)))
    low = max(math.floor(math.log10(min(errors))), high - _DECADES)

    def x(size: float) -> float:
        return left + (math.log2(size) - first) / (last - first) * (right - left)

    def y(error: float) -> float:
        if error <= 0:
            return bottom
        share = (max(math.log10(error), low) - low) / max(high - low, 1)
        return bottom - 24 - share * (bottom - top - 24)

    step = max(2, (last - first) // 8 // 2 * 2)
    powers = range(first, last + 1, step)
    parts = [axis_line(x(2.0**power), top, bottom, _size(2**power)) for power in powers]
    for decade in range(low, high + 1):
        parts += [
            line(left, y(10.0**decade), right, y(10.0**decade), "grid"),
            text(left - 8, y(10.0**decade) + 4, percent(10.0**decade), "end", "small"),
        ]
    parts += [
        text(left - 8, bottom + 4, "none", "end", "small"),
        text(left - 8, top - 16, "true error", "end"),
        text((left + right) / 2, bottom + 42, "bytes that the answer was made of", "middle"),
    ]
    sources = sorted({source for _, _, source in points})
    for size, error, source in points:
        parts.append(circle(x(size), y(error), 3.2, f"dot s{sources.index(source) % 6}", source))
    for at, source in enumerate(sources):
        parts.append(circle(right + 24, top + 14 + 20 * at, 4.5, f"dot s{at % 6}"))
        parts.append(text(right + 36, top + 18 + 20 * at, source, "start", "small"))
    return svg(parts, bottom + 52, "Bytes against the true error")


def _size(size_bytes: int) -> str:
    for unit, name in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes // unit:,} {name}"
    return f"{size_bytes} B"

"""Plots over time as inline SVG; colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from shedder.svg import WIDTH, axis_line, line, rect, svg, text

Values = Sequence[float | int | None]

_LEFT, _RIGHT, _TOP, _HEIGHT = 64, 12, 22, 130


@dataclass(frozen=True, slots=True, eq=False)
class PlottedCurve:
    """Values at the moments of a series; None where there is none. kind: its colour's class."""

    name: str
    values: Values
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class PlottedBand:
    """An area between two values of each moment; None where there is none."""

    name: str
    low: Values
    high: Values
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture. top: of the axis, if it is to be this at least. mark: a line across.

    is_share: of powers of two, 1 at most; each half is as high as the one before.
    bands: areas behind the curves.
    """

    title: str
    curves: tuple[PlottedCurve, ...]
    top: float = 0.0
    mark: float | None = None
    is_share: bool = False
    bands: tuple[PlottedBand, ...] = ()


def drawn(panel: Panel, times_s: Values, until_s: float = 0.0) -> str:
    """The panel over time; "" where nothing is known. until_s: end of the axis, if it is later."""
    drawn_values = [curve.values for curve in panel.curves] + [band.high for band in panel.bands]
    known = [value for values in drawn_values for value in values if value is not None]
    ends = [time for time in times_s if time is not None]
    if not known or not ends:
        return ""
    right, end_s = WIDTH - _RIGHT, max(ends[-1], until_s)
    marks, up = _halves(known) if panel.is_share else _linear(panel, known)

    def x(time_s: float) -> float:
        return _LEFT + (right - _LEFT) * time_s / end_s

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - up(value))

    bottom = float(_TOP + _HEIGHT)
    parts = [
        *(line(_LEFT, y(mark), right, y(mark), "grid") for mark in marks),
        *(text(_LEFT - 8, y(mark) + 4, name, "end") for mark, name in marks.items()),
        *(axis_line(x(time), _TOP, bottom, f"{time:g} s") for time in steps(end_s, 8)),
        *_legend([*panel.curves, *panel.bands]),
    ]
    for band in panel.bands:
        for piece in _areas(times_s, band):
            corners = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in piece)
            parts.append(
                f'<polygon class="{band.kind} band" points="{corners}">'
                f"<title>{escape(band.name)}</title></polygon>"
            )
    if panel.mark is not None:
        parts.append(line(_LEFT, y(panel.mark), right, y(panel.mark), "mark"))
    for curve in panel.curves:
        for piece in _pieces(times_s, curve.values):
            points = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in piece)
            parts.append(
                f'<polyline class="{curve.kind}" points="{points}">'
                f"<title>{escape(curve.name)}</title></polyline>"
            )
    return svg(parts, _TOP + _HEIGHT + 28, panel.title)


def _linear(panel: Panel, known: Values) -> tuple[dict[float, str], Callable[[float], float]]:
    """Marks of the axis with their names, and how far up a value is, from 0 to 1."""
    top = max(panel.top, panel.mark or 0.0, *(value or 0.0 for value in known)) or 1.0
    marks = steps(top)
    high = max(marks[-1], top)
    return {mark: shown(mark) for mark in marks}, lambda value: value / high


def _halves(known: Values) -> tuple[dict[float, str], Callable[[float], float]]:
    """The same of shares, by their logarithm."""
    deepest = max(2, *(math.ceil(-math.log2(share)) for share in known if share))
    every = math.ceil(deepest / 5)
    marks = {2.0**-at: f"1/{1 << at}" if at else "1" for at in range(0, deepest + 1, every)}
    return marks, lambda share: 1 + math.log2(share) / deepest


def steps(top: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to `top` or just below, about so many."""
    rough = top / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= rough * (1 - 1e-9))
    return [step * at for at in range(math.floor(top / step + 1e-9) + 1)]


def shown(value: float) -> str:
    """A number of an axis: 2.5 k, 10 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _legend(curves: Sequence[PlottedCurve | PlottedBand]) -> Iterator[str]:
    at = float(_LEFT)
    for curve in curves:
        if isinstance(curve, PlottedBand):
            yield rect(at, 4, 16, 10, f"{curve.kind} band")
        else:
            yield line(at, 9, at + 16, 9, curve.kind)
        yield text(at + 21, 13, curve.name, "start", "small")
        at += 42 + 6.6 * len(curve.name)


def _areas(times_s: Values, band: PlottedBand) -> Iterator[list[tuple[float, float]]]:
    """The corners of each stretch of a band without a gap."""
    ends = list(zip(band.low, band.high, strict=True))
    lows = [None if high is None else low for low, high in ends]
    highs = [None if low is None else high for low, high in ends]
    for low, high in zip(_pieces(times_s, lows), _pieces(times_s, highs), strict=True):
        yield [*high, *reversed(low)]


def _pieces(times_s: Values, values: Values) -> Iterator[list[tuple[float, float]]]:
    """Stretches without a gap."""
    piece: list[tuple[float, float]] = []
    for time, value in zip(times_s, values, strict=True):
        if time is None or value is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((float(time), float(value)))
    if piece:
        yield piece

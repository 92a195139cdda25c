"""Pictures of OSCAR's figures: insertion per layout, scans by reduction, both at once; as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

Curves = Mapping[str, Sequence[float]]
"""What was measured per layout, in the order of the axis that it is drawn over."""

_PANEL: Final = 4.6, 3.2  # inches
_BAR_HEIGHT: Final = 0.32  # inches
_STYLES: Final[Mapping[str, tuple[str, str, str]]] = {  # colour, line, mark
    "plain": ("#222222", "-", "s"),
    "lazy": ("#9c6b1e", "--", "v"),
    "lazy, 1st scan": ("#d9a441", "--", "v"),
    "lazy, 2nd scan": ("#9c6b1e", ":", "^"),
    "lazy, vacuumed": ("#9c6b1e", "-", "o"),
    "eager, 4 copies": ("#b03030", "-", "D"),
    "hybrid, 16 blocks": ("#9ecae1", "-", "o"),
    "hybrid, 64 blocks": ("#2171b5", "-", "o"),
    "hybrid, 512 blocks": ("#08306b", "--", "o"),
}


def draw_insertions(bars: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Figure 11: a bar per layout.

    Args:
      bars: name, seconds, megabytes on disk.
      path: of the SVG.
    """
    with _figure(path, 1.6 * _PANEL[0], _BAR_HEIGHT * len(bars) + 0.9) as figure:
        axes = figure.subplots()
        names = [name for name, _, _ in bars][::-1]
        seconds = [took for _, took, _ in bars][::-1]
        sizes = [f"{took:.2f} s, {size:,.0f} MB" for _, took, size in bars][::-1]
        shades = [_style(name)[0] for name in names]
        axes.bar_label(axes.barh(names, seconds, color=shades), sizes, padding=4, fontsize=8)
        axes.set_xlim(0, 1.3 * max(seconds))
        axes.set_xlabel("seconds to insert", fontsize=8)
        _plain(axes)
        axes.grid(visible=False, axis="y")


def draw_scans(levels: Sequence[float], seconds: Curves, megabytes: Curves, path: Path) -> None:
    """Figure 12: time, and bytes from the disk, by reduction."""
    with _figure(path, 2 * _PANEL[0], 1.25 * _PANEL[1]) as figure:
        left, right = figure.subplots(1, 2)
        for axes, curves, name in (
            (left, seconds, "seconds of a scan"),
            (right, megabytes, "MB read from the disk"),
        ):
            _lines(axes, levels, curves, name)
            _by_reduction(axes)
            axes.set_ylim(bottom=0)
        _legend(figure, left)


def draw_crowds(
    sizes: Sequence[int],
    levels: Sequence[float],
    seconds: Sequence[Curves],
    questions: Sequence[Curves],
    path: Path,
) -> None:
    """Figures 13 to 16: a column per reduction, insertion time above, questions answered below."""
    with _figure(path, _PANEL[0] * len(levels), 2 * _PANEL[1] + 0.4) as figure:
        panels = figure.subplots(2, len(levels), sharey="row", squeeze=False)
        for row, curves, name in (
            (panels[0], seconds, "seconds to insert"),
            (panels[1], questions, "questions answered meanwhile"),
        ):
            for axes, level, each in zip(row, levels, curves, strict=True):
                _lines(axes, sizes, each, name)
                axes.set_title(f"{level:.0%} reduction", fontsize=9)
                axes.set_xlabel("simultaneous questions", fontsize=8)
            row[0].set_ylim(0, 1.05 * max(max(v) for each in curves for v in each.values()))
        _legend(figure, panels[0][0])


def draw_rates(
    levels: Sequence[float], sizes: Sequence[int], rates: Sequence[Curves], path: Path
) -> None:
    """Figures 17 and 18: questions per 1,000 seconds by reduction, a panel per number of them."""
    with _figure(path, _PANEL[0] * len(sizes), 1.2 * _PANEL[1]) as figure:
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for axes, size, each in zip(panels, sizes, rates, strict=True):
            _lines(axes, levels, each, "questions per 1,000 s")
            _by_reduction(axes)
            axes.set_title(f"{size} simultaneous questions", fontsize=9)
            axes.set_yscale("log")
        _legend(figure, panels[0])


def _style(name: str) -> tuple[str, str, str]:
    """Layouts that have no style of their own have that of their kind."""
    known = {key.partition(",")[0]: style for key, style in _STYLES.items()}
    return _STYLES.get(name, known[name.partition(",")[0]])


def _lines(axes: Axes, at: Sequence[float], curves: Curves, name: str) -> None:
    for label, values in curves.items():
        colour, line, mark = _style(label)
        axes.plot(
            at,
            values,
            label=label,
            color=colour,
            linestyle=line,
            marker=mark,
            markersize=3.5,
            linewidth=1.2,
        )
    axes.set_ylabel(name, fontsize=8)
    _plain(axes)


def _by_reduction(axes: Axes) -> None:
    axes.set_xlabel("reduction", fontsize=8)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 0.99])


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    axes.grid(linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure that is written as SVG, without a date, when the block is done."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shedder"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})

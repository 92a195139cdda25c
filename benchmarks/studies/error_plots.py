"""Pictures of error studies: quantiles of the error beside the 1, 2 and 3 sigma lines, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.studies.error_study import WITHIN, Study

_COLUMNS = 3
_PANEL = 3.6, 2.6  # inches
_SHADES = ("#9ecae1", "#4292c6", "#084594")[::-1]
_LEAST = 1e-12


def _panel(axes: Axes, study: Study) -> None:
    lengths = np.array(study.lengths)
    errors = np.stack(study.errors)
    promised = np.array(study.promised)
    for share, shade, lines in zip(WITHIN, _SHADES, promised.T, strict=True):
        low, high = np.quantile(errors, [0.5 - share / 2, 0.5 + share / 2], axis=1)
        axes.plot(lengths, low, color=shade, linewidth=1.0)
        axes.plot(lengths, high, color=shade, linewidth=1.0)
        for sign in (-1, 1):
            axes.plot(lengths, sign * lines, color="#b03030", linewidth=0.7, linestyle="--")
    axes.plot(lengths, np.median(errors, axis=1), color="black", linewidth=1.0)
    axes.set_xscale("log", base=2)
    late = lengths >= lengths[-1] // 64  # The first lengths would set the scale, and say little.
    lines = promised[late]
    reach = max(np.abs(errors[late]).max(), lines[np.isfinite(lines)].max(), _LEAST)
    axes.set_ylim(-1.1 * reach, 1.1 * reach)
    axes.set_title(study.stream, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(linewidth=0.3)


def draw(studies: Sequence[Study], path: Path) -> None:
    """One figure: a panel per study of the same summary. Written as SVG without a date."""
    columns = min(_COLUMNS, len(studies))
    rows = -(-len(studies) // columns)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shedder"}):
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, study in zip(panels, studies, strict=False):
            _panel(axes, study)
        for axes in panels[len(studies) :]:
            axes.set_axis_off()
        figure.supxlabel("tuples", fontsize=8)
        figure.supylabel(studies[0].unit, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})

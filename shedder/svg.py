"""The few shapes that plots are made of, as inline SVG; colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

WIDTH = 860
"""Of every picture, in its own pixels; the page scales it."""


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers from low to high, at most wanted + 1 of them; 0 <= low < high <= 1."""
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s <= wanted + 1e-9)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def percent(share: float) -> str:
    """A share in percent, with no more digits than it needs."""
    return f"{100 * share:.12g} %"


def svg(parts: Iterable[str], height: float, title: str) -> str:
    """A picture WIDTH wide; `title` is what a screen reader says."""
    inside = "\n".join(part for part in parts if part)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"{inside}\n</svg>"
    )


def axis_line(x: float, top: float, bottom: float, name: str) -> str:
    """A vertical line of the grid with its name below."""
    return line(x, top, x, bottom, "grid") + text(x, bottom + 20, name, "middle", "small")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line; `kind` is its class in the page's style."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle; a negative width is none."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{max(width, 0):.1f}" height="{height:.1f}"/>'
    )


def circle(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    """A dot, with a text to hover if there is one."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{inside}</circle>'


def text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> str:
    """Words, anchored at start, middle or end."""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )

"""Picture of a flood over a join: the count of pairs, its interval and the truth over time.

`make docs` runs the scenario, and writes the picture beside this module.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from shedder.simulation.curves import Panel, PlottedCurve, drawn
from shedder.simulation.html_report import interval_panels
from shedder.simulation.result import Result
from shedder.simulation.scenario import Scenario
from shedder.simulation.world import World
from shedder.svg import WIDTH

HERE = Path(__file__).parent
SCENARIO = HERE.parent.parent / "examples/simulations/flood-over-a-join.toml"
PICTURE = HERE / "join_flood.svg"
GAP = 14.0  # Between two panels, in pixels.
STYLE = """
  text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #66707f; }
  .paper { fill: #ffffff; } .grid { stroke: #d9dee5; }
  polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
  .c0 { stroke: #2563c9; } .c1 { stroke: #d9822b; }
  .c0.band { fill: #2563c9; fill-opacity: .2; stroke: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #98a2b3; } .paper { fill: #14181f; } .grid { stroke: #333b47; }
    .c0 { stroke: #6ea8ff; } .c1 { stroke: #f0a75a; } .c0.band { fill: #6ea8ff; }
  }
"""


def picture(result: Result) -> str:
    """Return the rate of the streams, and below it the answers with their intervals."""
    rates = Panel(
        "tuples/s of both streams",
        (PlottedCurve("tuples/s", result.series.column("offered_per_s"), "c1"),),
    )
    panels = [(rates, result.series.column("at_s")), *interval_panels(result)]
    pieces, top = [], GAP
    for panel, times_s in panels:
        inside = drawn(panel, times_s, result.scenario.seconds)
        height = float(inside.partition(f'viewBox="0 0 {WIDTH} ')[2].partition('"')[0])
        opened = f'<svg y="{top:.0f}" width="{WIDTH}" height="{height:.0f}" '
        pieces.append(inside.replace("<svg ", opened, 1))
        top += height + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" role="img" '
        'aria-label="A flood over a join">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{top:.0f}"/>\n'
        + "\n".join(pieces)
        + "\n</svg>\n"
    )


def main() -> None:
    """Run the scenario, and write the picture."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Scenario.read(SCENARIO), Path(directory))
        world.run()
        PICTURE.write_text(picture(Result.of(world)), encoding="utf-8")


if __name__ == "__main__":
    main()

"""HTML report of a world: one page without scripts, fonts or network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shedder.simulation.curves import Panel, PlottedBand, PlottedCurve, Values, drawn
from shedder.simulation.ledger_series import OF_QUERY, TOTALS
from shedder.simulation.result import CheckedClaim, Result
from shedder.simulation.scenario import Scenario
from shedder.simulation.time_series import Answers
from shedder.version import __version__

_COLOURS = 8  # Of queries, before they come again.


def to_html(result: Result) -> str:
    """The page: what was claimed, what came out, and plots over time."""
    scenario = result.scenario
    verdict = "all claims and invariants hold" if result.held else "NOT ALL HOLDS"
    parts = [
        f"<h1>{escape(scenario.title)}</h1>",
        f"<p>{escape(scenario.about)}</p>",
        f'<p class="{_kind(result.held)}">{verdict}</p>',
        *(f'<p class="bad">{escape(problem)}</p>' for problem in result.problems),
        _claims(result.claims),
        _answers(result.answers | result.row_intervals),
        *(
            f"<h2>{escape(panel.title)}</h2>{drawn(panel, result.series.column('at_s'))}"
            for panel in _panels(result)
        ),
        *(
            f"<h2>{escape(panel.title)}</h2>{drawn(panel, times_s, scenario.seconds)}"
            for panel, times_s in interval_panels(result)
        ),
        _totals(result),
        _foot(scenario, replays=result.replays),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(scenario.title)} · shedder simulate</title>"
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _foot(scenario: Scenario, *, replays: bool) -> str:
    again = "The same seed gives this page again."
    if not replays:
        again = (
            "Quantiles by rank toss coins that cannot be seeded: but for them, the same seed gives "
            "this page again."
        )
    return (
        f"<p>{scenario.seconds:g} virtual seconds, seed {scenario.seed}, scale "
        f"{scenario.machine.scale:g}; shedder {__version__}. {again}</p>"
    )


def _panels(result: Result) -> list[Panel]:
    series = result.series
    scale = result.scenario.machine.scale

    def curve(name: str, column: str, kind: str, times: float = 1.0) -> PlottedCurve:
        values = [None if v is None else times * v for v in series.column(column)]
        return PlottedCurve(name, values, kind)

    def of_queries(column: str, times: float = 1.0) -> tuple[PlottedCurve, ...]:
        return tuple(
            curve(name, f"{column}.{name}", f"c{at % _COLOURS}", times)
            for at, name in enumerate(result.answers)
        )

    return [
        Panel(
            "Rate, tuples/s" + (f" (a tuple stands for {scale:g})" if scale != 1 else ""),
            (
                curve("offered", "offered_per_s", "c0", scale),
                curve("acknowledged", "acknowledged_per_s", "c1", scale),
                curve("applied", "applied_per_s", "c2", scale),
            ),
        ),
        Panel(
            "Demand: CPU that reading everything would take, of what there is",
            (curve("demand", "demand", "c0"),),
            mark=1.0,
        ),
        Panel("Thinning: share of tuples read, per query", of_queries("share"), is_share=True),
        Panel("Queue: age of the oldest unapplied batch, s", (curve("age", "queue_age_s", "c0"),)),
        Panel(
            "Queue and memory, MiB",
            (
                curve("queue", "queue_bytes", "c0", 2.0**-20),
                curve("memory accounted for", "memory_bytes", "c1", 2.0**-20),
            ),
        ),
        Panel("Refusals per second", (curve("refusals", "refusals_per_s", "c0"),)),
        Panel("Error against the exact truth, %, newest answer", of_queries("error", 100.0)),
        Panel("Half width of intervals, %, newest answer", of_queries("width", 100.0)),
        Panel("Coverage so far: share of intervals that held", of_queries("coverage"), top=1.0),
        Panel(
            "Ledger: tuples (of the door, since the last start)",
            tuple(
                curve(name.replace("_", " "), f"ledger.{name}", f"c{at}", scale)
                for at, name in enumerate(TOTALS)
            ),
        ),
        *(
            Panel(
                f"Ledger of {query}: tuples",
                tuple(
                    curve(name, f"ledger.{query}.{name}", f"c{at}", scale)
                    for at, name in enumerate(OF_QUERY)
                ),
            )
            for query in result.answers
        ),
    ]


def interval_panels(result: Result) -> list[tuple[Panel, Values]]:
    """The values of row queries with their intervals and the truth, and the times of each panel."""
    names = [name.removesuffix(".truth") for name in result.series.names if name.endswith(".truth")]
    panels: list[tuple[Panel, Values]] = []
    for name in names:
        at = [
            n for n, value in enumerate(result.series.column(f"{name}.truth")) if value is not None
        ]

        def known(column: str, at: Sequence[int] = at) -> Values:
            values = result.series.column(column)
            return [values[number] for number in at]

        columns = {each: known(f"{name}.{each}") for each in ("value", "low", "high", "truth")}
        title = f"{name.removeprefix('rows.')}: the answer, its interval, and the truth"
        curves = (
            PlottedCurve("truth", columns["truth"], "c1"),
            PlottedCurve("answer", columns["value"], "c0"),
        )
        band = PlottedBand("interval", columns["low"], columns["high"], "c0")
        panels.append((Panel(title, curves, bands=(band,)), known("at_s")))
    return panels


def _claims(claims: tuple[CheckedClaim, ...]) -> str:
    rows = [
        f'<tr class="{_kind(claim.held)}"><td>{escape(claim.name)}</td>'
        f"<td>{escape(claim.wanted)}</td><td>{escape(claim.found)}</td></tr>"
        for claim in claims
    ]
    return _table(("claim", "wanted", "found"), rows) if rows else ""


def _answers(answers: dict[str, Answers]) -> str:
    rows = [
        f'<tr class="{_kind(each.is_covered)}"><td>{escape(name)}</td><td>{each.checked:,}</td>'
        f"<td>{each.thinned_answers:,}</td><td>{each.compared[1]:,} of {each.compared[0]:,}</td>"
        f"<td>{100 * each.confidence:g} %</td><td>{each.exact:,}</td>"
        f"<td>{_percent(each.error)}</td></tr>"
        for name, each in answers.items()
    ]
    heads = ("query", "answers compared", "of these thinned", "intervals that held")
    return _table((*heads, "claimed", "exact values", "mean error"), rows)


def _totals(result: Result) -> str:
    rows = [
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{_number(value)}</td></tr>"
        for name, value in result.totals.items()
    ]
    return "<h2>Ledger and totals</h2>" + _table(("what", "how much"), rows)


def _table(heads: tuple[str, ...], rows: list[str]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.3g} %"


def _number(value: float | int | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _kind(good: bool) -> str:
    return "good" if good else "bad"


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #66707f; --line: #d9dee5; --paper: #fff;
  --c0: #2563c9; --c1: #d9822b; --c2: #2f9e62; --c3: #b03a75; --c4: #6d55c2; --c5: #1b98a6;
  --c6: #8a6d3b; --c7: #667085; --good: #1f7a4a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --line: #333b47;
  --paper: #14181f; --c0: #6ea8ff; --c1: #f0a75a; --c2: #5fce93; --c3: #e681b2; --c4: #a895f0;
  --c5: #5ccad6; --c6: #c9ab78; --c7: #a7b0bd; --good: #5fce93; --bad: #ff8a80; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
p.good, tr.good td:last-child { color: var(--good); } p.bad, tr.bad td { color: var(--bad); }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .grid { stroke: var(--line); } svg .mark { stroke: var(--bad); stroke-dasharray: 4 3; }
svg polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
""" + "".join(
    f"svg .c{at} {{ stroke: var(--c{at}); }} svg .c{at}.band {{ fill: var(--c{at}); "
    "fill-opacity: .2; stroke: none; }\n"
    for at in range(_COLOURS)
)

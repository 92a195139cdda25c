"""Result of a world: totals, claims and series, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shedder.simulation.scenario import Scenario
from shedder.simulation.sent_batch import ClientTally
from shedder.simulation.time_series import Answers, Series
from shedder.simulation.world import World


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """One thing that was claimed. wanted: in words; found: what came out."""

    name: str
    wanted: str
    found: str
    held: bool


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A world that has ended. totals: by name. problems: what must never be, and was.

    answers, row_intervals: by query; the latter of row queries whose values have intervals.

    replays: the same seed gives the same bytes; not where quantiles are kept by rank (KLL, REQ),
    whose coins are tossed by DataSketches and cannot be seeded.
    """

    scenario: Scenario
    totals: dict[str, float | int | None]
    answers: dict[str, Answers]
    row_intervals: dict[str, Answers]
    claims: tuple[CheckedClaim, ...]
    problems: tuple[str, ...]
    series: Series
    replays: bool = True

    @classmethod
    def of(cls, world: World) -> Result:
        """Of a world that has run."""
        totals = _totals(world)
        claims = tuple(_claims(world.scenario, totals))
        problems = tuple(world.problems)
        return cls(
            world.scenario,
            totals,
            world.answers,
            world.rows.intervals,
            claims,
            problems,
            world.series,
            world.replays,
        )

    @property
    def held(self) -> bool:
        """Return whether all claims and all invariants hold."""
        return not self.problems and all(claim.held for claim in self.claims)

    def to_json(self) -> str:
        """All of it; the same bytes for the same seed."""
        known: dict[str, Any] = {
            "title": self.scenario.title,
            "seed": self.scenario.seed,
            "seconds": self.scenario.seconds,
            "held": self.held,
            "replays": self.replays,
            "problems": list(self.problems),
            "claims": [asdict(claim) for claim in self.claims],
            "totals": self.totals,
            "queries": {
                name: _query(each) for name, each in (self.answers | self.row_intervals).items()
            },
            "series": self.series.rows,
            "scenario": self.scenario.model_dump(mode="json"),
        }
        return json.dumps(known, indent=1) + "\n"


_NOT_REPORTED = ("latest_error", "latest_width", "error_sum", "width_sum", "errors", "widths")


def _query(answers: Answers) -> dict[str, Any]:
    known = asdict(answers)
    known["draws"] = len(answers.draws)
    for name in _NOT_REPORTED:
        del known[name]
    known["error_of"] = {
        name: total / count for name, (count, total) in answers.error_of.items() if count
    }
    mean_width = answers.width_sum / answers.widths if answers.widths else None
    return {**known, "coverage": answers.coverage, "error": answers.error, "width": mean_width}


def _totals(world: World) -> dict[str, float | int | None]:
    tally, ledgers = ClientTally.of(world.tallies.values()), world.ledgers.values()
    found: dict[str, float | int | None] = {
        "offered": tally.offered,
        "acknowledged": tally.acknowledged,
        "given_up": tally.given_up,
        "refusals": tally.refusals,
        "repeated": tally.repeated,
        "durable": sum(truth.rows for truth in world.truths.values()),
        "starts": world.server.lives,
        "row_answers": world.rows.compared,
        "row_intervals": sum(each.compared[0] for each in world.rows.intervals.values()),
        "row_intervals_held": sum(each.compared[1] for each in world.rows.intervals.values()),
        "queue_age_s_max": world.queue_age_us_max / 1e6,
        "queue_bytes_max": max(_numbers(world.series, "queue_bytes"), default=0),
        "memory_bytes_max": max(_numbers(world.series, "memory_bytes"), default=0),
        "ack_p50_s": _quantile(tally.ack_us, 0.5),
        "ack_p99_s": _quantile(tally.ack_us, 0.99),
        "full_after_s": _full_after_s(world),
    }
    if ledgers:
        found |= {
            "applied": sum(each.applied for each in ledgers),
            "duplicate": sum(each.duplicate for each in ledgers),
            "refused_batches": sum(each.refused_batches for each in ledgers),
            "late": sum(each.late for each in ledgers),
            "dropped": sum(each.dropped for each in ledgers),
            "merges": world.server.merges,
            "passed_by": max((q.late for each in ledgers for q in each.queries), default=0),
            "thinned_share": max(
                (q.thinned / e.applied for e in ledgers for q in e.queries if e.applied),
                default=0.0,
            ),
        }
    errors = [each for each in world.answers.values() if each.errors]
    count = sum(each.errors for each in errors)
    found.setdefault("dropped", 0)
    found["error"] = sum(each.error_sum for each in errors) / count if count else None
    return found


def _numbers(series: Series, name: str) -> list[float | int]:
    return [value for value in series.column(name) if value is not None]


def _quantile(values: list[int], q: float) -> float | None:
    return float(np.quantile(values, q)) / 1e6 if values else None


def _full_after_s(world: World) -> float:
    """Between the end of the load that was too much and full precision for all; 0: no need."""
    if world.thinned_until_us < 0:
        return 0.0
    return max(0, world.thinned_until_us - world.load_ends_us) / 1e6


def _claims(scenario: Scenario, totals: dict[str, float | int | None]) -> list[CheckedClaim]:
    claims, found = scenario.claims, []
    offered = totals["offered"] or 0

    def claim(
        name: str, limit: float | None, value: float | int | None, holds: Callable[..., bool]
    ) -> None:
        if limit is not None:
            word = "at least" if holds is _at_least else "at most"
            shown = "nothing" if value is None else f"{value:.6g}"
            held = value is not None and holds(value, limit)
            found.append(CheckedClaim(name, f"{word} {limit:g}", shown, held))

    def share(name: str) -> float:
        return (totals[name] or 0) / offered if offered else 0.0

    intervals, row_held = (totals[f"row_intervals{what}"] or 0 for what in ("", "_held"))
    covered = row_held / intervals if intervals else None
    claim("goodput", claims.goodput_min, share("acknowledged"), _at_least)
    claim("given up", claims.given_up_max, share("given_up"), _at_most)
    claim("queue age, s", claims.queue_age_s_max, totals["queue_age_s_max"], _at_most)
    claim("acknowledged, p99, s", claims.ack_p99_s_max, totals["ack_p99_s"], _at_most)
    claim("mean relative error", claims.error_max, totals["error"], _at_most)
    claim("thinned", claims.thinned_max, totals.get("thinned_share"), _at_most)
    claim("thinned", claims.thinned_min, totals.get("thinned_share"), _at_least)
    claim("refusals", claims.refused_min, totals["refusals"], _at_least)
    claim("late tuples", claims.late_min, totals.get("late"), _at_least)
    claim("dropped at the door", claims.dropped_min, share("dropped"), _at_least)
    claim("dropped at the door", claims.dropped_max, share("dropped"), _at_most)
    claim("summaries", claims.merges_min, totals.get("merges"), _at_least)
    claim("answers of rows", claims.row_answers_min, totals["row_answers"], _at_least)
    claim("intervals of rows", claims.row_intervals_min, intervals, _at_least)
    claim("coverage of rows", claims.row_coverage_min, covered, _at_least)
    claim("repeated tuples", claims.duplicates_min, totals["repeated"], _at_least)
    claim("full precision after, s", claims.full_within_s, totals["full_after_s"], _at_most)
    return found


def _at_least(value: float, limit: float) -> bool:
    return value >= limit


def _at_most(value: float, limit: float) -> bool:
    return value <= limit

"""The report: everything judged, as JSON for machines and as one HTML page for people."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from datetime import date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from shedder.queries.certification.value_verdict import number
from shedder.version import __version__
from spark_ingest import cost_plots, plots
from spark_ingest.scores import (
    GroupCount,
    Judged,
    Score,
    Tally,
    attainments,
    by_data,
    certain,
    pooled,
    scores,
    tally_certain,
    tally_intervals,
)

_WORST = 12
_REFUSED_MAX = 0.1  # Share of the questions. Refusing only the hard ones would hide misses.
_MISSES_MAX = 60


@dataclass(frozen=True, slots=True)
class Refusal:
    """A question that was not answered, and why."""

    sql: str
    why: str


@dataclass(frozen=True, slots=True)
class Effort:
    """What the exact answers took: passes over the tuples, for so many questions, seconds."""

    passes: int
    questions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """What was asked of a database and how its answers did.

    subject: what was judged, for the title. questions: texts; Judged.question is an index here.
    unjudged: values for which the judge has no truth (rows of `others`).
    seed: of the questions; None when they were not drawn. groups: what became of them.
    effort: of the judge, if it was measured.
    """

    subject: str
    created: datetime
    seed: int | None
    questions: tuple[str, ...]
    judged: tuple[Judged, ...]
    refused: tuple[Refusal, ...] = ()
    unjudged: int = 0
    notes: tuple[str, ...] = ()
    groups: GroupCount = field(default_factory=GroupCount)
    effort: Effort | None = None

    @property
    def gates(self) -> list[Score]:
        """All that must hold: per aggregate and source, per column, pooled, and certain."""
        by_kind = [*scores(self.judged), *by_data(self.judged)]
        return [*by_kind, *pooled(self.judged), *certain(self.judged)]

    @property
    def answered(self) -> bool:
        """Return whether so few questions were refused that the others stand for all."""
        return len(self.refused) <= _REFUSED_MAX * (len(self.questions) + len(self.refused))

    @property
    def passed(self) -> bool:
        """Return whether coverage is within chance, and enough answers were judged."""
        return self.answered and self.claimed and all(score.passed for score in self.gates)

    @property
    def claimed(self) -> bool:
        """Return whether any answer claims anything that can be judged."""
        return any(judged.verdict.claim.bound != "none" for judged in self.judged)

    @property
    def failure(self) -> str:
        """Return why it has not passed, in words; empty: it has."""
        if not self.answered:
            return f"{len(self.refused)} questions were refused: {self.refused[0].why}"
        if not self.claimed:
            return "nothing was claimed that could be judged: all bounds are none, or no value came"
        return "" if self.passed else "intervals held the truth more rarely than they say"

    @property
    def intervals(self) -> Tally:
        """The intervals that claim less than certainty, value by value."""
        return tally_intervals(self.judged)

    @property
    def certain(self) -> Tally:
        """The values that claim certainty."""
        return tally_certain(self.judged)

    @property
    def misses(self) -> list[Judged]:
        """Values whose truth lies outside of their interval, the farthest off first."""
        missed = [j for j in self.judged if not j.verdict.held and j.verdict.claim.bound != "none"]
        return sorted(missed, key=lambda j: -abs(j.verdict.place or math.inf))

    @property
    def worst(self) -> list[Judged]:
        """The largest true errors among intervals that held and had two ends."""
        held = [
            j
            for j in self.judged
            if j.verdict.held
            and j.verdict.error
            and None not in (j.verdict.claim.low, j.verdict.claim.high)
        ]
        return sorted(held, key=lambda j: -(j.verdict.error or 0.0))[:_WORST]


def write(report: AccuracyReport, directory: Path) -> tuple[Path, Path]:
    """Write report.json and report.html into `directory` (made if it is not there).

    Returns:
      Their paths.
    """
    directory.mkdir(parents=True, exist_ok=True)
    as_json, as_html = directory / "report.json", directory / "report.html"
    as_json.write_text(json.dumps(to_json(report), indent=1), encoding="utf-8")
    as_html.write_text(to_html(report), encoding="utf-8")
    return as_json, as_html


def to_json(report: AccuracyReport) -> dict[str, Any]:
    """The report in plain JSON types; infinite and undefined numbers are null."""
    return {
        "shedder": __version__,
        "subject": report.subject,
        "created": report.created.isoformat(),
        "seed": report.seed,
        "passed": report.passed,
        "intervals": dataclasses.asdict(report.intervals),
        "certain": dataclasses.asdict(report.certain),
        "gates": [_score(score) for score in report.gates],
        "attainment": [dataclasses.asdict(one) for one in attainments(report.judged)],
        "unjudged": report.unjudged,
        "groups": dataclasses.asdict(report.groups),
        "effort": None if report.effort is None else dataclasses.asdict(report.effort),
        "notes": list(report.notes),
        "refused": [dataclasses.asdict(one) for one in report.refused],
        "questions": list(report.questions),
        "values": [_value(one) for one in report.judged],
    }


def to_html(report: AccuracyReport) -> str:
    """The report as one page that needs nothing else: no script, no font, no network."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    environment.filters["share"] = share
    template = files("spark_ingest").joinpath("report.html.j2").read_text(encoding="utf-8")
    inexact = scores(report.judged)
    everything, data = pooled(report.judged), by_data(report.judged)
    return environment.from_string(template).render(
        report=report,
        version=__version__,
        overall=everything[-1] if everything else None,
        scores=inexact,
        data=data,
        pooled=everything,
        certain=certain(report.judged),
        unbounded=sum(j.verdict.claim.bound == "none" for j in report.judged),
        misses=report.misses[:_MISSES_MAX],
        attainments=attainments(report.judged),
        coverage_svg=plots.coverage_plot([*inexact, *everything]) if inexact else "",
        data_svg=plots.coverage_plot(data) if data else "",
        thinning_svg=cost_plots.thinning_plot(report.judged),
        bytes_svg=cost_plots.bytes_plot(report.judged),
        error_svg=plots.error_plot(report.judged),
        place_svg=plots.place_plot(report.judged),
        spread_svg=plots.spread_plot(report.judged),
        attainment_svg=plots.attainment_plot(attainments(report.judged)),
    )


def shown(value: Any) -> str:
    """A value of any column as people read it."""
    match value:
        case None:
            return "—"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case datetime():
            return value.isoformat(" ")
        case _:
            return str(value)


def share(part: float | None) -> str:
    """A share in percent, with two digits that matter."""
    if part is None:
        return "—"
    return f"{100 * part:,.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def _score(score: Score) -> dict[str, Any]:
    return dataclasses.asdict(score) | {"coverage": score.coverage, "passed": score.passed}


def _value(one: Judged) -> dict[str, Any]:
    verdict, claim = one.verdict, one.verdict.claim
    return {
        "question": one.question,
        "key": one.key,
        "aggregate": one.aggregate,
        "source": one.source,
        "confidence": one.confidence,
        "value": _plain(claim.value),
        "low": _plain(claim.low),
        "high": _plain(claim.high),
        "bound": claim.bound,
        "met": claim.met,
        "truth": _plain(verdict.truth),
        "held": verdict.held,
        "error": _plain(verdict.error),
        "half_width": _plain(verdict.half_width),
        "attained": verdict.attained,
        **dataclasses.asdict(one.made),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):  # Of TOP or FREQUENT: items with a value of any type.
        return [{name: _plain(part) for name, part in item.items()} for item in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, str, float)) or value is None else number(value)

"""What an engine must say, from the list of accepted rows, by the plainest code there is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shedder.queries.answers.answer import Answer
from tests.truth import keeps_its_promise

SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND
LATENESS_US = 2 * SECOND
YEAR_1_US = -62_135_596_800 * SECOND
FUTURE_US = 60 * SECOND
INT64 = 2**63

# (range, slide) of sliding windows, (start, end) of the others; in microseconds
SLIDES = {
    "sliding": (30 * SECOND, 10 * SECOND),
    "uneven": (25 * SECOND, 10 * SECOND),
    "tumbling": (20 * SECOND, 20 * SECOND),
    "hopping": (5 * SECOND, 20 * SECOND),
    "collapsed": (60 * SECOND, 5 * SECOND),
}
# COLLAPSE BY 3 AFTER 2 of 12 panes makes cells of 3 panes, and of those, after 2 of them, 9.
RESOLUTION_US = {"collapsed": 45 * SECOND}
SPANS = {
    "landmark": (1_700_000_020 * SECOND, None),
    "snapshot": (1_700_000_020 * SECOND, 1_700_000_060 * SECOND),
    "unbounded": (None, None),
}
AGGREGATES = {
    "n": "COUNT(*)",
    "nx": "COUNT(x)",
    "sx": "SUM(x)",
    "ax": "AVG(x)",
    "lx": "MIN(x)",
    "hx": "MAX(x)",
    "dx": "STDDEV(x)",
    "cx": "CORR(x, k)",
    "vx": "COVAR_POP(x, k)",
    "bx": "REGR_SLOPE(x, k)",
    "ix": "REGR_INTERCEPT(x, k)",
    "fk": "FIRST(k)",
    "ek": "LAST(k)",
    "fg": "FIRST(g)",
    "eg": "LAST(g)",
    "eb": "LAST(b)",
    "fx": "FIRST(x)",
    "jk": "SELF_JOIN_SIZE(k)",
    "jxk": "JOIN_SIZE(x, k)",
    "sk": "SUM(k)",
    "lk": "MIN(k)",
    "hk": "MAX(k)",
    "lg": "MIN(g)",
    "hg": "MAX(g)",
    "dk": "COUNT(DISTINCT k)",
    "dg": "COUNT(DISTINCT g)",
    "qx": "QUANTILE(x, 0.9)",
    "mk": "MEDIAN(k)",
    "mt": "MEDIAN(ts)",
    "tg": "TOP(g, 3)",
    "tk": "TOP(k, 2)",
    "yk": "FREQUENT(k, 0.2)",
    "yg": "FREQUENT(g, 0.3 NO FALSE POSITIVES)",
    "bk": "DISTINCT_BOTH(k, x > 2, b)",
    "ok": "DISTINCT_ONLY(k, x > 2, b)",
    "jg": "JACCARD(g, x > 2, b)",
}


@dataclass
class Row:
    ts: int
    k: int | None
    g: str | None
    x: float | None
    b: bool | None


@dataclass
class OracleStream:
    """A stream's accepted rows, in order, and its watermark."""

    rows: list[Row] = field(default_factory=list)
    watermark_us: int | None = None
    late: int = 0
    duplicate: int = 0
    refused_batches: int = 0
    refused_rows: int = 0
    epoch: int = 0
    sequence: int = -1
    numbered: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)

    def accept(self, rows: list[tuple[Any, ...]], clock_us: int) -> None:
        before = self.watermark_us
        if before is not None:
            self.late += sum(row[0] < before for row in rows)
        self.rows += [
            Row(ts, k, g, None if x is None or x != x else x, b) for ts, k, g, x, b in rows
        ]
        believed = [row[0] for row in rows if row[0] <= clock_us + FUTURE_US]
        if believed:
            self.raise_watermark(max(believed) - LATENESS_US)

    def raise_watermark(self, to_us: int) -> None:
        to_us = max(to_us, YEAR_1_US)  # No event time is before it.
        if self.watermark_us is None or to_us > self.watermark_us:
            self.watermark_us = to_us

    def refuse(self, rows: int) -> None:
        self.refused_batches += 1
        self.refused_rows += rows


class OracleQuery:
    """What a standing query was given, and the truth of its windows."""

    def __init__(
        self,
        rows: OracleStream,
        stream: str,
        window: str,
        groups: str,
        where: str,
        clock_us: int,
        *,
        thinnable: bool = False,
    ) -> None:
        self.source = rows
        self.aggregates = AGGREGATES
        self.thinnable = thinnable
        self.was_thinned = False
        self.scale = 0  # of its sketches, in powers of two beside what was granted
        self.stream = stream
        self.window = window
        self.groups = groups
        self.where = where
        self.from_position = len(rows.rows)
        self.late_rows = 0
        self.late_marks: list[int] = []  # positions of rows that no pane has read
        if window in SLIDES:
            times = (row.ts for row in rows.rows)
            self.late_marks += [i for i, ts in enumerate(times) if ts > clock_us + FUTURE_US]

    def text(self, window: str, target: str) -> str:
        keys = [f"{key.strip()} AS g{i}" for i, key in enumerate(self.group_list)]
        values = [f"{sql} AS {name}" for name, sql in self.aggregates.items()]
        where = f"WHERE {self.where}" if self.where else ""
        group = f"GROUP BY {self.groups}" if self.groups else ""
        return (
            f"SELECT {', '.join(keys + values)} FROM {self.stream} {window} "
            f"{where} {group} {target}"
        )

    @property
    def group_list(self) -> list[str]:
        return [g for g in self.groups.split(",") if g]

    def before_batch(self, rows: list[tuple[Any, ...]], clock_us: int) -> None:
        """Which rows of a batch come too late, or from too far ahead."""
        if self.window not in SLIDES:
            return
        width = math.gcd(*SLIDES[self.window])
        watermark = self.source.watermark_us
        closed = None if watermark is None else watermark // width * width
        position = len(self.source.rows)
        for number, row in enumerate(rows):
            late = closed is not None and row[0] < closed
            if late or row[0] > clock_us + FUTURE_US:
                self.late_rows += 1
                self.late_marks.append(position + number)

    def check(self, answer: Answer) -> None:
        span = self.span()
        assert (answer.start_us, answer.end_us) == span, (answer.start_us, answer.end_us, span)
        assert answer.resolution_us == RESOLUTION_US.get(self.window, 0)
        assert answer.watermark_us == self.source.watermark_us or self.window in SLIDES
        assert answer.position <= len(self.source.rows)
        start, end = span
        low = -math.inf if start is None else start
        high = math.inf if end is None else end
        if self.window in SLIDES and start is None:
            low = high = 0
        inside = [
            (position, row)
            for position, row in enumerate(self.source.rows)
            if low <= row.ts < high and self.passes(row)
        ]
        missed = {p for p, _ in inside} & set(self.late_marks)
        assert answer.late >= len(missed) if self.window in SLIDES else answer.late == 0
        truth: dict[tuple[Any, ...], list[Row]] = {}
        seen: set[tuple[Any, ...]] = set()
        for position, row in inside:
            truth.setdefault(self.key(row), []).append(row)
            if position not in missed:
                seen.add(self.key(row))
        if not self.groups:
            truth.setdefault((), [])
            seen.add(())
        found = set()
        for claims in answer.rows():
            key = tuple(claims[f"g{i}"] for i in range(len(self.group_list)))
            assert key not in found, f"group {key} twice"
            found.add(key)
            check_row(claims, truth.get(key, []), answer)
        if self.was_thinned:
            assert found <= set(truth), (found, set(truth))
            self.check_missing(answer, {k: rows for k, rows in truth.items() if k not in found})
            return
        assert seen <= found <= set(truth), (seen, found, set(truth))
        if found != set(truth):
            assert answer.late
        self.check_missing(answer, {k: rows for k, rows in truth.items() if k not in found})

    def check_missing(self, answer: Answer, missing: dict[tuple[Any, ...], list[Row]]) -> None:
        """No group is missing that is as large as the answer says that none is."""
        if not missing:
            return
        assert answer.missing is not None
        assert answer.missing.weight_max is not None
        assert max(map(len, missing.values())) < answer.missing.weight_max

    def span(self) -> tuple[int | None, int | None]:
        if self.window in SPANS:
            return SPANS[self.window]
        width, slide = SLIDES[self.window]
        watermark = self.source.watermark_us
        if watermark is None:
            return None, None
        end = watermark // slide * slide
        resolution = RESOLUTION_US.get(self.window, 1)
        return (end - width) // resolution * resolution, end

    def passes(self, row: Row) -> bool:
        match self.where:
            case "":
                return True
            case "x > 2":
                return row.x is not None and row.x > 2
            case _:
                return row.g in ("a", "b") or row.k is None

    def key(self, row: Row) -> tuple[Any, ...]:
        match self.groups:
            case "":
                return ()
            case "g":
                return (row.g,)
            case "b, g":
                return (row.b, row.g)
            case "x":
                return (row.x,)
            case _:
                return (
                    None
                    if row.k is None
                    else int(math.fmod(row.k, 3))
                    if abs(row.k) < 2**50
                    else (abs(row.k) % 3) * (1 if row.k > 0 else -1),
                )


def check_row(row: dict[str, Any], rows: list[Row], answer: Answer) -> None:
    """Every interval holds the truth; what is called exact is."""
    x = [r.x for r in rows if r.x is not None]
    k = [r.k for r in rows if r.k is not None]
    g = [r.g for r in rows if r.g is not None]
    pairs = [(r.x, float(r.k)) for r in rows if r.x is not None and r.k is not None]
    truth = {
        "n": len(rows),
        "nx": len(x),
        "sx": total(x),
        "ax": mean(x),
        "lx": min(x, default=None),
        "hx": max(x, default=None),
        "dx": deviation(x),
        "sk": sum(k) if k and -INT64 <= sum(k) < INT64 else None,
        "lk": min(k, default=None),
        "hk": max(k, default=None),
        "lg": min(g, key=str.encode, default=None),
        "hg": max(g, key=str.encode, default=None),
        "dk": len(set(k)),
        "dg": len(set(g)),
        "qx": quantile(x, 0.9),
        "mk": quantile(k, 0.5),
        "mt": quantile([r.ts for r in rows], 0.5),
        "jk": float(pairs_alike(k, k)),
        "jxk": float(pairs_alike(x, [float(v) for v in k])),
        "bk": len(compared(rows, "k")[0]),
        "ok": len(compared(rows, "k")[1]),
        "jg": jaccard(*compared(rows, "g")),
    }
    scale = sum(abs(v) for v in x if math.isfinite(v))
    by_time = sorted(rows, key=lambda row: row.ts)  # Stable: among equal times by position.
    truth |= {
        "fk": next((r.k for r in by_time if r.k is not None), None),
        "ek": next((r.k for r in reversed(by_time) if r.k is not None), None),
        "fg": next((r.g for r in by_time if r.g is not None), None),
        "eg": next((r.g for r in reversed(by_time) if r.g is not None), None),
        "eb": next((r.b for r in reversed(by_time) if r.b is not None), None),
        "fx": next((r.x for r in by_time if r.x is not None), None),
    }
    for name, (value, most) in of_pairs(pairs).items():
        check_value(name, row, value, 1e-9 * most)
    for name, value in truth.items():
        check_value(name, row, value, slack(name, scale))
    for name, values in (("tg", g), ("tk", k)):
        if name not in row:
            continue
        check_top(row[name], row[name + "_bound"], Counter(values), 3 if name == "tg" else 2)

    for name, values in (("yk", k), ("yg", g)):
        items, bound = row.get(name), row.get(name + "_bound")
        if items is not None and bound is not None:
            share, sure = (0.2, False) if name == "yk" else (0.3, True)
            kept = keeps_its_promise(items, bound, Counter(values), share, positives=sure)
            assert kept, (items, bound, Counter(values))


def compared(rows: list[Row], column: str) -> tuple[set[Any], set[Any], set[Any]]:
    """Values in both sets, in the one of x > 2 only, in either."""
    there = [(getattr(r, column), r) for r in rows if getattr(r, column) is not None]
    left = {value for value, r in there if r.x is not None and r.x > 2}
    right = {value for value, r in there if r.b}
    return left & right, left - right, left | right


def jaccard(both: set[Any], _: set[Any], either: set[Any]) -> float | None:
    return len(both) / len(either) if either else None


def slack(name: str, scale: float) -> float:
    """How far off rounding may be."""
    return 1e-12 * scale if name in ("sx", "ax") else 1e-6 * scale if name == "dx" else 0.0


def check_value(name: str, row: dict[str, Any], truth: Any, slack: float) -> None:
    if name not in row:
        return
    value, low, high = (row.get(name + end) for end in ("", "_low", "_high"))
    bound = row[name + "_bound"]
    facts = (name, bound, value, low, high, truth)
    if bound == "none":
        return
    if bound == "exact":
        if row[name + "_met"] is False and value is None:  # OMIT
            return
        assert equal(plain(value), truth, slack), facts
        assert equal(plain(low), truth, slack), facts
        assert equal(plain(high), truth, slack), facts
        return
    if truth is None:  # No row of the group was read: it has no value, or one between the ends.
        assert value is None, facts
        return
    assert low is None or plain(low) - slack <= truth, facts  # An integer's end may be open.
    assert high is None or truth <= plain(high) + slack, facts


def plain(value: Any) -> Any:
    """Timestamps as microseconds."""
    if hasattr(value, "timestamp"):
        import datetime

        epoch = datetime.datetime(1970, 1, 1)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    return value


def equal(value: Any, truth: Any, slack: float) -> bool:
    if value is None or truth is None:
        return value is truth
    if isinstance(truth, float) and math.isfinite(truth):
        return bool(abs(value - truth) <= slack)
    return bool(value == truth)


def check_top(items: list[dict[str, Any]] | None, bound: str, counts: Counter[Any], k: int) -> None:
    if items is None or bound == "none":
        return
    for item in items:
        assert item["low"] <= counts[item["value"]] <= item["high"], (items, counts)
    if bound == "exact":
        best = sorted(counts.values(), reverse=True)[:k]
        assert [item["count"] for item in items] == best, (items, counts)


def total(x: list[float]) -> float | None:
    if not x or (math.inf in x and -math.inf in x):
        return None
    infinite = [v for v in x if math.isinf(v)]
    return infinite[0] if infinite else math.fsum(x)


def mean(x: list[float]) -> float | None:
    whole = total(x)
    return None if whole is None else whole / len(x)


def deviation(x: list[float]) -> float | None:
    if len(x) < 2 or any(math.isinf(v) for v in x):
        return None
    middle = math.fsum(x) / len(x)
    return math.sqrt(math.fsum((v - middle) ** 2 for v in x) / (len(x) - 1))


def of_pairs(pairs: list[tuple[float, float]]) -> dict[str, tuple[float | None, float]]:
    """Functions of pairs by fractions, and the largest that each could be."""
    if not pairs or not all(math.isfinite(x) and math.isfinite(y) for x, y in pairs):
        return dict.fromkeys(("cx", "vx", "bx", "ix"), (None, 0.0))
    exact = [(Fraction(x), Fraction(y)) for x, y in pairs]
    n = len(exact)
    middle_x, middle_y = sum(x for x, _ in exact) / n, sum(y for _, y in exact) / n
    cross = sum((x - middle_x) * (y - middle_y) for x, y in exact)
    squares_x = sum((x - middle_x) ** 2 for x, _ in exact)
    squares_y = sum((y - middle_y) ** 2 for _, y in exact)
    product = math.sqrt(squares_x * squares_y)
    slope, steep = cross / squares_y if squares_y else None, 0.0
    if squares_y:
        steep = math.sqrt(squares_x / squares_y)
    return {
        "cx": (float(cross) / product if product else None, 1.0),
        "vx": (float(cross / n), product / n),
        "bx": (None if slope is None else float(slope), steep),
        "ix": (
            None if slope is None else float(middle_x - slope * middle_y),
            float(abs(middle_x)) + steep * float(abs(middle_y)),
        ),
    }


def pairs_alike(left: list[Any], right: list[Any]) -> int:
    counts = Counter(right)
    return sum(n * counts[value] for value, n in Counter(left).items())


def quantile(values: list[Any], q: float) -> Any:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None

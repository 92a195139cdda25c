"""Shown rows of whole answers beside the truth: worlds, sources and questions, by the public API.

A trial asks a question of a stream that is made anew: the same tuples, another sample. It counts
the intervals of the rows that the answer shows, as the answer shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from shedder.settings import Settings
from tests.engine.machines import ByHand

Floats = NDArray[np.float64]
Truths = Mapping[int | None, Mapping[str, float]]

ROWS, SAMPLED = 6_000, 750
BATCH_ROWS, BLOCK_ROWS = 500, 100  # Also the periods of two worlds.
NOW_US = 10**10
SLACK = 1e-9  # Of the truth, for sums in another order.
SHOWN = 5  # Rows of a LIMIT.
CREATE = (
    "CREATE STREAM {name} (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE, u DOUBLE) TIMESTAMP BY ts"
)


# --- worlds: what arrives -----------------------------------------------------------------------


def _period(rows: int, rng: np.random.Generator) -> Floats:
    """The first fifth of each stretch of so many rows is high."""
    high = np.where(np.arange(ROWS) % rows < rows // 5, 10.0, 1.0)
    return np.asarray(high + 0.1 * rng.random(ROWS))


def _jitter(rng: np.random.Generator) -> Floats:
    return np.asarray(1e6 * (1 + 1e-6 * rng.random(ROWS)) * np.where(np.arange(ROWS) % 2, -1, 1))


def _spikes(rng: np.random.Generator) -> Floats:
    return np.where(rng.random(ROWS) < 1e-3, 1e5, 10.0 + rng.standard_normal(ROWS))


VALUES: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "0/1, half": lambda rng: (rng.random(ROWS) < 0.5).astype(np.float64),
    "0/1, 45 %": lambda rng: (rng.random(ROWS) < 0.45).astype(np.float64),
    "±a with jitter": _jitter,
    "spikes": _spikes,
    "300 decades": lambda rng: np.asarray(10.0 ** rng.uniform(-150, 150, ROWS)),
    "period of a batch": lambda rng: _period(BATCH_ROWS, rng),
    "period of a block": lambda rng: _period(BLOCK_ROWS, rng),
    "trend": lambda rng: np.linspace(0, 10, ROWS) + rng.standard_normal(ROWS),
    "sorted": lambda rng: np.sort(rng.lognormal(0, 1, ROWS)),
}


def _zipf(groups: int) -> NDArray[np.int64]:
    """Sizes of groups in proportion to 1/rank; the rest is the first one's."""
    shares = 1.0 / np.arange(1, groups + 1)
    sizes = (ROWS * shares / shares.sum()).astype(np.int64)
    sizes[0] += ROWS - sizes.sum()
    return sizes


SIZES: Mapping[str, NDArray[np.int64]] = {
    "15 equal groups": np.full(15, ROWS // 15),
    "150 equal groups": np.full(150, ROWS // 150),
    "40 Zipf groups": _zipf(40),
}
_TRUTH = """
WITH means AS (
    SELECT g, COUNT(*) AS n, FSUM(x) AS s, FSUM(x) / COUNT(*) AS a, QUANTILE_DISC(x, 0.5) AS m
    FROM arrived GROUP BY GROUPING SETS ((g), ())
), spreads AS (
    SELECT means.g, FSUM((x - a) * (x - a)) / (ANY_VALUE(n) - 1) AS v
    FROM arrived JOIN means ON means.g IS NULL OR means.g = arrived.g GROUP BY means.g
)
SELECT means.g, n, s, a, m, v, SQRT(v) AS d
FROM means JOIN spreads ON means.g IS NOT DISTINCT FROM spreads.g
"""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Tuples that arrive, and the truth about each group and, at None, about all of them.

    arrived: columns ts, g, x and u; u is uniform and tells nothing. truth: by name of an output.
    """

    values: str
    grouping: str
    arrived: pa.Table
    truth: Truths

    @classmethod
    def of(cls, values: str, grouping: str) -> World:
        """The world of these values and groups; the same in every run."""
        at = list(VALUES).index(values), list(SIZES).index(grouping)
        rng = np.random.default_rng([25, *at])
        groups = np.repeat(np.arange(len(SIZES[grouping])), SIZES[grouping])
        rng.shuffle(groups)
        columns = {
            "ts": pa.array(np.arange(ROWS), pa.timestamp("us")),
            "g": pa.array(groups),
            "x": pa.array(VALUES[values](rng)),
            "u": pa.array(rng.random(ROWS)),
        }
        arrived = pa.table(columns)
        with duckdb.connect() as judge:
            judge.register("arrived", arrived)
            rows = judge.sql(_TRUTH).to_arrow_table().to_pylist()
        return cls(values, grouping, arrived, {row["g"]: row for row in rows})

    def typical(self, output: str) -> tuple[float, float]:
        """The median of the groups' true values, and how far a group's estimate is away from it.

        HAVING asks for groups beyond a deviation of an estimate, so chance decides which pass.
        """
        values = np.array([each[output] for group, each in self.truth.items() if group is not None])
        rows = SAMPLED / len(values)
        middle = float(np.median(values))
        if output == "n":
            return middle, float(middle / np.sqrt(rows))
        return middle, float(self.truth[None]["d"] / np.sqrt(rows))


# --- questions: what is shown -------------------------------------------------------------------

OUTPUTS: Mapping[str, str] = {
    "n": "COUNT(*)",
    "s": "SUM(x)",
    "a": "AVG(x)",
    "v": "VAR(x)",
    "d": "STDDEV(x)",
    "m": "MEDIAN(x)",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """How the shown rows are chosen.

    outputs: names of OUTPUTS. grouped: whether there are groups. having: an output, of which more
    is asked for than chance should give; or empty. order: an output, descending with a minus; or
    empty. limit: rows that are shown, or None.
    """

    outputs: str
    grouped: bool = True
    having: str = ""
    order: str = ""
    limit: int | None = None

    def text(self, world: World) -> str:
        """The statement up to LIMIT; {name} is the stream."""
        selected = ", ".join(f"{OUTPUTS[name]} AS {name}" for name in self.outputs)
        if not self.grouped:
            return f"SELECT {selected} FROM {{name}}"
        parts = [f"SELECT g, {selected} FROM {{name}} GROUP BY g"]
        if self.having:
            parts.append(f"HAVING {OUTPUTS[self.having]} > {self.least(world)!r}")
        if self.order:
            parts.append(f"ORDER BY {self.order[-1]} {'DESC' if self.order[0] == '-' else 'ASC'}")
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)

    def least(self, world: World) -> float:
        """What HAVING asks for at least."""
        middle, deviation = world.typical(self.having)
        return middle + deviation

    def passes(self, world: World, group: int) -> bool:
        """Whether a group passes HAVING in truth."""
        return not self.having or world.truth[group][self.having] > self.least(world)

    def belongs(self, world: World, groups: list[int], at: int) -> bool:
        """Whether the row at this place of an answer belongs there in truth."""
        if not self.passes(world, groups[at]):
            return False
        if not self.order:
            return True
        sign, key = -1.0 if self.order[0] == "-" else 1.0, self.order[-1]
        place = {g: sign * each[key] for g, each in world.truth.items() if g is not None}
        own = place[groups[at]]
        if self.limit is not None:
            rivals = [g for g in place if place[g] < own and self.passes(world, g)]
            return len(rivals) < self.limit
        before, after = groups[:at], groups[at + 1 :]
        return all(place[g] <= own for g in before) and all(place[g] >= own for g in after)


CHOICES: Mapping[str, Choice] = {
    "no group": Choice("savdm", grouped=False),
    "GROUP BY": Choice("nsam"),
    "GROUP BY, spread": Choice("vd"),
    "ORDER BY a": Choice("a", order="a"),
    "ORDER BY n DESC LIMIT": Choice("nsa", order="-n", limit=SHOWN),
    "ORDER BY s DESC LIMIT": Choice("sn", order="-s", limit=SHOWN),
    "ORDER BY a DESC LIMIT": Choice("av", order="-a", limit=SHOWN),
    "ORDER BY a LIMIT": Choice("am", order="a", limit=SHOWN),
    "ORDER BY v DESC LIMIT": Choice("vd", order="-v", limit=SHOWN),
    "ORDER BY m DESC LIMIT": Choice("m", order="-m", limit=SHOWN),
    "HAVING n": Choice("na", having="n"),
    "HAVING a": Choice("an", having="a"),
    "HAVING a ORDER BY n LIMIT": Choice("na", having="a", order="-n", limit=SHOWN),
}


# --- sources: where answers come from -----------------------------------------------------------


class Seeded(ByHand):
    """A machine whose random bits follow from the seed of the stream that is made next."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW_US)
        self._bits = Random(0)

    def begin(self, seed: int) -> None:
        """Draw from this seed on."""
        self._bits = Random(seed)

    def random_bits(self, bits: int) -> int:
        """Return the next ones."""
        return self._bits.getrandbits(bits)


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """An engine with small samples, and its machine."""

    engine: Engine
    machine: Seeded


@contextmanager
def opened(directory: Path) -> Iterator[Service]:
    """A service that keeps its data here."""
    machine = Seeded()
    settings = Settings(sample_rows=SAMPLED, audit="off", overload="off")
    with Engine.open(directory, settings, machine=machine) as engine:
        yield Service(engine, machine)


@dataclass(frozen=True, slots=True)
class Source:
    """A way to an answer that does not read all tuples.

    archive: of the stream. seals: numbers of the batches after which a run is sealed. levels: of
    thinning, one after the other; empty: the question is asked once. beside: a standing query whose
    groups the stream samples by. clauses: what follows the question.
    """

    archive: str = "ARCHIVE plain"
    seals: tuple[int, ...] = ()
    levels: tuple[str, ...] = ()
    beside: str = ""
    clauses: str = ""

    def answers(
        self,
        service: Service,
        world: World,
        texts: Mapping[str, str],
        *,
        confidence: float,
        seed: int,
    ) -> dict[str, Answer]:
        """Make a stream anew, and answer these questions of it."""
        service.machine.begin(seed)
        db = service.engine
        said = f" CONFIDENCE {100 * confidence:g} PERCENT"
        standing_texts = {
            key: text.format(name="s") + self.clauses + said for key, text in texts.items()
        }
        db.execute(f"{CREATE.format(name='s')} {self.archive}")
        standing = standing_texts if self.levels else {"beside": self.beside} if self.beside else {}
        queries = {
            key: db.register(f"q{at}", text.format(name="s"))
            for at, (key, text) in enumerate(standing.items())
        }
        try:
            for part, batch in enumerate(self._pushed(db, world, len(queries))):
                db.push("s", batch)
                if part in self.seals:
                    db.seal("s")
            if self.levels:
                return {key: query.answer() for key, query in queries.items()}
            return {key: db.execute(text) for key, text in standing_texts.items()}
        finally:
            for query in queries.values():
                query.drop()
            db.execute("DROP STREAM s")

    def _pushed(self, db: Engine, world: World, queries: int) -> Iterator[pa.Table]:
        """The batches; each level of thinning begins before its share of them."""
        for at in range(0, ROWS, BATCH_ROWS):
            level = at * len(self.levels) / ROWS
            if self.levels and level == int(level):
                for query in range(queries):
                    db.execute(f"ALTER QUERY q{query} SET THINNING {self.levels[int(level)]}")
            yield world.arrived.slice(at, BATCH_ROWS)


ALWAYS = " WITHIN 1e307 ABSOLUTE"  # A target that every sample meets.
BLOCKS = f"ARCHIVE hybrid(blocks=16, block_rows={BLOCK_ROWS})"
SOURCES: Mapping[str, Source] = {
    "live sample": Source(clauses=ALWAYS),
    "stratified sample": Source(
        beside="SELECT g, COUNT(*) AS n, SUM(x) AS s FROM {name} GROUP BY g", clauses=ALWAYS
    ),
    "archive in part": Source(BLOCKS, (4, 12), clauses=" REDUCE BY uniform(0.875)"),
    "thinned 1/8": Source(levels=("1/8",)),
    "thinned 1/16, 1/4": Source(levels=("1/16", "1/4")),
}


# --- scores: what held --------------------------------------------------------------------------


@dataclass(slots=True)
class Score:
    """Of one cell: intervals shown, and those that held; exact values apart."""

    shown: int = 0
    held: int = 0
    exact: int = 0
    right: int = 0

    def add(self, other: Score) -> None:
        """Count another trial's."""
        self.shown += other.shown
        self.held += other.held
        self.exact += other.exact
        self.right += other.right


@dataclass(slots=True)
class Found:
    """What one answer came to.

    scores: by output. certain: whether each `certain` was right; None: there was none. missing:
    whether the bound on missing groups held; None: there was none.
    """

    scores: dict[str, Score] = field(default_factory=dict)
    certain: bool | None = None
    missing: bool | None = None

    @property
    def shown(self) -> tuple[int, int]:
        """Intervals that held, and all of them."""
        scores = self.scores.values()
        return sum(each.held for each in scores), sum(each.shown for each in scores)

    @property
    def exact(self) -> bool:
        """Whether each value that is called exact is."""
        return all(each.right == each.exact for each in self.scores.values())


def judged(world: World, choice: Choice, answer: Answer, confidence: float) -> Found:
    """Compare an answer with the truth, as its rows are shown."""
    assert answer.confidence >= confidence - 1e-9, (answer.confidence, confidence)
    found, rows = Found(), answer.rows()
    groups = [row.get("g") for row in rows]
    for name in answer.approximate:
        score = found.scores[name] = Score()
        for row, group in zip(rows, groups, strict=True):
            _judge(score, row, name, world.truth[group][name])
    if rows and "certain" in rows[0]:
        places = [at for at, row in enumerate(rows) if row["certain"]]
        if places:
            found.certain = all(choice.belongs(world, groups, at) for at in places)
    every = not choice.having and choice.limit is None
    if every and answer.missing is not None and answer.missing.weight_max is not None:
        absent = world.truth.keys() - {None, *groups}
        found.missing = all(world.truth[g]["n"] < answer.missing.weight_max for g in absent)
    return found


def _judge(score: Score, row: Mapping[str, Any], name: str, truth: float) -> None:
    slack, bound = SLACK * abs(truth), row[name + "_bound"]
    if bound == "exact":
        score.exact += 1
        score.right += abs(row[name] - truth) <= slack
    elif bound == "interval":
        score.shown += 1
        score.held += row[name + "_low"] - slack <= truth <= row[name + "_high"] + slack


def answers_of(
    service: Service,
    world: World,
    source: str,
    choices: Mapping[str, Choice],
    *,
    confidence: float,
    seed: int,
) -> dict[str, Found]:
    """One stream, and what each of the questions came to."""
    texts = {name: choice.text(world) for name, choice in choices.items()}
    answers = SOURCES[source].answers(service, world, texts, confidence=confidence, seed=seed)
    return {
        name: judged(world, choices[name], answer, confidence) for name, answer in answers.items()
    }

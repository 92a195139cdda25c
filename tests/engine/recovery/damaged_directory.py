"""A small directory with a file of every kind, damage to any byte of it, and what answers may be.

An answer after damage may be right, or may say that it is not: an exact value is the truth, an
interval holds it, and a group that is missing is one of an answer that is not complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from shedder.engine.engine import Engine
from shedder.errors import CorruptData, NewerFormat, ShedderError
from shedder.queries.answers.answer import Answer
from synopses.model.estimate import Bound
from tests.engine.killed import copy_killed
from tests.engine.world import CREATE, requests

ROWS = 4_500
PUSHED = requests(ROWS, 3)
CLIENT = PUSHED["client"][5].as_py()
AGGREGATES = "COUNT(*) AS n, SUM(hits) AS s, MIN(hits) AS lo, MAX(hits) AS hi"
STANDING = f"SELECT {AGGREGATES} FROM requests [RANGE UNBOUNDED]"
QUESTIONS = (
    f"SELECT {AGGREGATES} FROM requests",
    f"SELECT {AGGREGATES} FROM requests WHERE client = {CLIENT}",
    f"SELECT domain, {AGGREGATES} FROM requests GROUP BY domain",
)
SETTINGS: dict[str, Any] = {"checkpoint_seconds": 3_600.0, "log_segment_bytes": 1 << 16}


@dataclass(frozen=True)
class Damage:
    """What happens to a file: a bit is flipped, the file is cut off, or it is gone.

    kind: flip, cut or missing. at: the bit, or the size in bytes; of no use for missing.
    """

    file: str
    kind: str
    at: int

    def apply(self, directory: Path) -> None:
        """Damage the file."""
        path = directory / self.file
        data = bytearray(path.read_bytes())
        match self.kind:
            case "flip":
                data[self.at // 8] ^= 1 << self.at % 8
                path.write_bytes(data)
            case "cut":
                path.write_bytes(data[: self.at])
            case _:
                path.unlink()

    def must_be_named(self, error: ShedderError) -> None:
        """A refusal names the file; the catalog's log goes by the catalog's name."""
        name = Path(self.file).name
        stem = "catalog.sqlite" if name.startswith("catalog.sqlite") else name
        is_newer = name == "FORMAT" and isinstance(error, NewerFormat)  # It names the format.
        assert stem in str(error) or is_newer, (self, str(error))


def fill(directory: Path, target: Path) -> None:
    """Make a directory, and copy it while it is open, as a kill leaves it."""
    with Engine.open(directory, **SETTINGS) as engine:
        engine.execute(CREATE + " ARCHIVE hybrid(blocks=4, block_rows=64)")
        engine.execute("CREATE INDEX ON requests (client)")
        engine.execute(
            f"CREATE ROLLUP by_domain AS SELECT domain, {AGGREGATES} FROM requests "
            "[RANGE INTERVAL '60' SECOND] GROUP BY domain"
        )
        engine.register("all", STANDING)
        for number, first in enumerate(range(0, ROWS, ROWS // 6)):
            engine.push("requests", PUSHED.slice(first, ROWS // 6))
            if number in (1, 3):
                engine.seal("requests")
        engine.core.executor.call(engine.checkpoints.now).result()
        store = engine.core.store
        assert store.trim_log() > 0  # Tuples are in runs that are in no log any more.
        (directory / "quarantine" / "kept").write_bytes(b"of an earlier damage")
        copy_killed(engine, target)


def draw(directory: Path, rng: np.random.Generator, trials: int) -> Iterator[Damage]:
    """Draw damages: every kind of file as often, flips as often as the rest."""
    kinds: dict[str, list[str]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = str(path.relative_to(directory))
            kinds.setdefault(_kind_of(path), []).append(name)
    names = sorted(kinds)
    for trial in range(trials):
        file = str(rng.choice(kinds[names[trial % len(names)]]))
        size = (directory / file).stat().st_size
        kind = str(rng.choice(["flip", "cut", "missing"], p=[0.7, 0.2, 0.1]))
        yield Damage(file, kind, int(rng.integers(8 * size if kind == "flip" else size)))


def _kind_of(path: Path) -> str:
    if path.suffix == ".parquet":
        return "rollup" if "-w" in path.name else "run"
    return path.suffix.lstrip(".") or path.name


def assert_honest(directory: Path, damage: Damage) -> str:
    """Open a damaged directory, ask it all, and return what it did: right, flagged or refused."""
    outcome = "right"
    try:
        engine = Engine.open(directory, **SETTINGS)
    except (CorruptData, NewerFormat) as error:
        damage.must_be_named(error)
        return "refused"
    with engine:
        for question in QUESTIONS:
            try:
                answer = engine.execute(question)
            except CorruptData as error:
                damage.must_be_named(error)
                outcome = "flagged"
                continue
            if not judged(answer, truth(question), damage):
                outcome = "flagged"
        if not judged(engine.query("all").answer(), truth(STANDING), damage):
            outcome = "flagged"
    return outcome


def truth(question: str) -> list[dict[str, Any]]:
    """The rows of the exact answer, by Arrow."""
    table = PUSHED
    if "WHERE" in question:
        table = table.filter(pc.equal(table["client"], CLIENT))
    keys = ["domain"] if "GROUP BY" in question else []
    names = {"hits_count": "n", "hits_sum": "s", "hits_min": "lo", "hits_max": "hi"}
    found = table.group_by(keys).aggregate([("hits", of) for of in ("count", "sum", "min", "max")])
    return found.rename_columns([names.get(name, name) for name in found.column_names]).to_pylist()


def judged(answer: Answer, rows: list[dict[str, Any]], damage: Damage) -> bool:
    """Whether an answer is right and exact; what is neither right nor says so fails the test."""
    found = {row.get("domain"): number for number, row in enumerate(answer.rows())}
    exact = True
    for row in rows:
        number = found.pop(row.get("domain"), None)
        if number is None:
            assert not answer.complete, (damage, row)
            exact = False
            continue
        for name in ("n", "s", "lo", "hi"):
            estimate = answer.estimate(number, name)
            value = row[name]
            if estimate.bound is Bound.EXACT:
                assert estimate.value == value, (damage, answer.query, name, estimate)
            elif estimate.bound is Bound.INTERVAL:
                low = -math.inf if estimate.low is None else estimate.low
                high = math.inf if estimate.high is None else estimate.high
                assert low <= value <= high, (damage, answer.query, name, estimate)
                exact = False
            else:
                exact = False
    assert not found or not answer.complete, (damage, found)
    return exact

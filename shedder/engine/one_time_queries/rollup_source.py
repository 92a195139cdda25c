"""Rollups as a source of one-time queries: whole windows, and tuples for the rest.

Partial aggregates are of one run each, so past and present meet at positions: a tuple is in the
partial aggregates of its run, or among the tuples that are read of runs and tail, never in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import structlog

from shedder.archive.archive_store import Store
from shedder.archive.exact.client import RELATION, ExactWorker
from shedder.archive.exact.relation import ExactRelation, Without
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run
from shedder.cql.binding.rollup_definition import Rollup, answers, rollup_text
from shedder.cql.sql.rollup_sql import Stretches, rollup_sql
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.damaged_run_bounds import without_missing
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import SOURCE, evidence_from_exact
from shedder.queries.one_time.plan import PlanStep, Source
from shedder.streams.batches import arrow_schema

SMALL_SHARE = 1 / 8
"""Where no more of the tuples than this are read, nothing is sooner than the exact answer."""

_EDGES, _ROLLED = "edges", "rolled"
_log = structlog.get_logger("shedder.from_rollup")


@dataclass(frozen=True, slots=True, eq=False)
class RolledUp:
    """How a question is answered from a rollup.

    rolled: the runs whose whole windows come from partial aggregates. edges: those of them that
    have tuples outside of the whole windows. Other runs of the snapshot are read.
    """

    entry: RollupEntry
    rollup: Rollup
    question: ArchiveQuestion
    stretches: Stretches
    rolled: dict[int, tuple[Run, Rolled]]
    edges: dict[int, Run]

    @property
    def tuples(self) -> int:
        """All that there are."""
        return sum(run.rows for run in self.question.snapshot.runs) + self._tail

    @property
    def read(self) -> int:
        """Tuples, and rows of partial aggregates, that are read."""
        return self._read_of_runs + self._tail + sum(r.rows for _, r in self.rolled.values())

    @property
    def archive_share_read(self) -> float:
        """Of the tuples in runs."""
        return self._read_of_runs / max(1, sum(run.rows for run in self.question.snapshot.runs))

    @property
    def read_nothing_else(self) -> bool:
        """Return whether no run is read."""
        return not self._read_of_runs

    @property
    def scanned(self) -> list[tuple[Run, int | None]]:
        """All runs, and this rollup where it was read of them; None: they were read themselves."""
        return [
            (run, self.entry.id if run.first_position in self.rolled else None)
            for run in self.question.snapshot.runs
        ]

    @property
    def is_small(self) -> bool:
        """Return whether this is the better way, whatever the target."""
        return self.read <= SMALL_SHARE * self.tuples

    @property
    def text(self) -> str:
        """What is taken from where."""
        rows = sum(rolled.rows for _, rolled in self.rolled.values())
        runs = f"{len(self.rolled):,} of {len(self.question.snapshot.runs):,} runs"
        return (
            f"{self.entry.name} ({rollup_text(self.rollup)}): {rows:,} rows for {runs}; "
            f"{self._read_of_runs + self._tail:,} of {self.tuples:,} tuples are read"
        )

    @property
    def step(self) -> PlanStep:
        """As a step of a plan."""
        reason = "its windows and groups are as fine as the query's, or finer"
        return PlanStep(Source.ROLLUP, self.entry.name, reason, self.read, self.text)

    @property
    def _tail(self) -> int:
        return sum(batch.num_rows for batch in self.question.snapshot.tail)

    @property
    def _read_of_runs(self) -> int:
        others = (
            run for run in self.question.snapshot.runs if run.first_position not in self.rolled
        )
        return sum(run.rows for run in (*others, *self.edges.values()))

    def without(self, first_position: int) -> None:
        """Read a run after all."""
        self.rolled.pop(first_position, None)
        self.edges.pop(first_position, None)


def rolled_up(store: Store, stream: int, question: ArchiveQuestion) -> RolledUp | None:
    """The rollup that leaves the least to be read for a question; None: there is none of use."""
    found = [
        plan
        for entry, rollup in store.rollups.entries(stream)
        if answers(rollup, question.query)
        and (plan := _planned(entry, rollup, question)) is not None
    ]
    return min(found, key=lambda plan: (plan.read, plan.entry.id), default=None)


def _planned(entry: RollupEntry, rollup: Rollup, question: ArchiveQuestion) -> RolledUp | None:
    snapshot, stretch = question.snapshot, question.stretch
    stretches = Stretches.of(stretch.start_us, stretch.end_us, rollup.width_us)
    if stretches.is_empty:
        return None
    plan = RolledUp(entry, rollup, question, stretches, {}, {})
    for run in snapshot.runs:
        rolled = run.rolled_by(entry.id)
        mark = snapshot.deleted.get(run.first_position)
        if rolled is None or rolled.deleted != (0 if mark is None else mark.rows):
            continue
        if not run.overlaps(stretches.whole_start_us, stretches.whole_end_us):
            continue
        if any(run.overlaps(*edge) for edge in stretches.edges):
            if mark is not None:
                continue  # Its tuples are read, without those that are deleted.
            plan.edges[run.first_position] = run
        plan.rolled[run.first_position] = (run, rolled)
    return plan if plan.rolled else None


def not_rolled_up(
    store: Store, stream: int, question: ArchiveQuestion
) -> tuple[RollupEntry, list[Run]] | None:
    """The lazy rollup that would have answered a question, and the runs that it lacks.

    None where there is no such rollup or it lacks none, and where an eager one answers, too: that
    one gets its partial aggregates anyway. Of several it is the coarsest.
    """
    able = [each for each in store.rollups.entries(stream) if answers(each[1], question.query)]
    if not able or not all(entry.lazy for entry, _ in able):
        return None
    entry, rollup = max(able, key=lambda e: (e[1].width_us, -len(e[1].groups), -e[0].id))
    stretches = Stretches.of(question.stretch.start_us, question.stretch.end_us, rollup.width_us)
    if stretches.is_empty:
        return None
    lacking = [
        run
        for run in question.snapshot.runs
        if run.rolled_by(entry.id) is None
        and run.overlaps(stretches.whole_start_us, stretches.whole_end_us)
    ]
    return (entry, lacking) if lacking else None


def evidence_from_rollup(
    store: Store, exact: ExactWorker, plan: RolledUp, rewrite: Callable[[str], None]
) -> Evidence:
    """The exact evidence. Damaged partial aggregates are dropped, and their runs are read.

    rewrite: makes the partial aggregates of a stream anew, soon and on another thread.

    Raises:
      as `ExactWorker.query`; StorageFailed: a file cannot be read.
    """
    query, snapshot = plan.question.query, plan.question.snapshot
    stretch, deadline = plan.question.stretch, plan.question.deadline
    notes = _without_damage(store, plan, rewrite)
    selection = snapshot.selection(plan.rolled)
    files = snapshot.files
    beside = {}
    if plan.rolled:
        beside[_ROLLED] = files.verified(r.of_rolled(rolled) for r, rolled in plan.rolled.values())
    if plan.edges:
        beside[_EDGES] = files.verified(plan.edges.values())
    columns = [*dict.fromkeys((query.schema.time_column, *query.columns))]
    schema = arrow_schema(query.schema)
    relation = ExactRelation(
        RELATION,
        pa.schema([schema.field(name) for name in columns]),
        files=selection.ordered,
        dealt=selection.dealt,
        tail=[batch.select(columns) for batch in snapshot.tail],
        without=Without(selection.marked, selection.deleted),
    )
    table = exact.query(
        rollup_sql(
            query,
            plan.rollup,
            plan.stretches,
            rows=RELATION,
            edges=_EDGES if plan.edges else None,
            rolled=_ROLLED if plan.rolled else None,
        ),
        [relation],
        timeout_s=deadline.left_s(),
        progress=deadline.progress,
        beside=beside,
    )
    sources = (f"rollup {plan.entry.name}",) if plan.rolled else ()
    evidence = evidence_from_exact(
        query,
        table,
        start_us=stretch.start_us,
        end_us=stretch.end_us,
        watermark_us=stretch.watermark_us,
        complete=stretch.complete,
        position=snapshot.end_position,
        archive_share_read=plan.archive_share_read,
        sources=sources if plan.read_nothing_else else (*sources, SOURCE),
        notes=(*notes, f"rollup {plan.text}"),
    )
    return without_missing(query, evidence, snapshot)


def _without_damage(store: Store, plan: RolledUp, rewrite: Callable[[str], None]) -> list[str]:
    """Leave damaged files aside, of partial aggregates and then of runs; what is to be told."""
    name, snapshot = plan.question.query.schema.name, plan.question.snapshot

    def on_progress(_: int) -> None:
        plan.question.deadline.check()

    dropped = 0
    for run, rolled in list(plan.rolled.values()):
        for _, problem in snapshot.files.damaged((run.of_rolled(rolled),), on_progress):
            _log.error("rollup_damaged", stream=name, rollup=plan.entry.name, problem=problem)
            store.rollups.drop_rolled(run, rolled)
            plan.without(run.first_position)
            dropped += 1
    if dropped:
        rewrite(name)  # They are made anew.
    only_rolled = plan.rolled.keys() - plan.edges.keys()
    for run, problem in snapshot.without_damage(on_progress, only_rolled):
        _log.error("run_damaged", stream=name, problem=problem)
        store.quarantine.add(run, problem)
        plan.without(run.first_position)
    if not dropped:
        return []
    return [f"rollup {plan.entry.name} is damaged in {dropped:,} runs, which were read themselves"]

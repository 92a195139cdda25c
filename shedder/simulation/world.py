"""World: clients, a server and the truth in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from shedder.archive.log.records import SUMMARISED, Built, Idle
from shedder.archive.log.table_changes import TableChange
from shedder.engine.runtime.subscribers import AnswerUpdate
from shedder.engine.synopsis_plans.synopsis_plan import BY_HASH, RANKED
from shedder.engine.synopsis_plans.thinning_levels import outputs_of
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import ShedderError
from shedder.queries.answers.database_api import Ledger
from shedder.simulation.arrivals import rate_of
from shedder.simulation.client import SimulatedClient
from shedder.simulation.costs import CostModel
from shedder.simulation.disk import VirtualDisk
from shedder.simulation.event_queue import Agenda
from shedder.simulation.exact_oracle import ExactOracle
from shedder.simulation.ledger_series import counts_of
from shedder.simulation.process import Header
from shedder.simulation.row_comparison import RowComparison
from shedder.simulation.row_truth import RowTruth
from shedder.simulation.scenario import Force, Scenario, ScenarioTable
from shedder.simulation.sent_batch import ClientTally
from shedder.simulation.server import SimulatedServer
from shedder.simulation.time_series import Answers, Row, Series
from shedder.simulation.tuple_generator import SCHEMA, STREAM, TABLE_SCHEMA, Payload, stream_of
from shedder.simulation.verdict import FALSE_ALARM, judge
from shedder.simulation.virtual_environment import VirtualEnvironment

EPOCH_US = 1_750_000_000_000_000
"""When every world begins."""
_POINTS = 600  # Of a series.
_SAMPLE_US_MIN = 100_000
_SAMPLE_MEASURED_EVERY = 20
_ROWS_COMPARED_EVERY = 5  # Samples between two comparisons of row queries.
_SHARDS = 8  # Values in the table.
_AFTER_US = 60_000_000  # How long a world may take to get calm again, at most.

OnProgress = Callable[[float], None]


class World:
    """One run of a scenario. The same seed gives the same world.

    keep_all: the truth keeps every tuple, to be compared with the archive at the end.
    alarm: probability that honest intervals are a problem, for each gate.
    truths, tallies, ledgers: by stream; there is a ledger when the world has ended.
    rows_truth: of row queries; rows: how these compare with it.
    answers: by query; thinned_answers: those of them that were given while it was thinned.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        *,
        keep_all: bool = False,
        alarm: float = FALSE_ALARM,
    ) -> None:
        self.scenario = scenario
        self.machine = VirtualEnvironment(
            scenario.seed, EPOCH_US, VirtualDisk(), CostModel(scenario.costs, scenario.machine)
        )
        self.agenda = Agenda(self.machine)
        streams = [STREAM, *(stream_of(tenant.name) for tenant in scenario.tenants)]
        self.truths = {name: ExactOracle() for name in streams}
        self.rows_truth = RowTruth(round(1e6 * scenario.stream.lateness_s))
        self.rows = RowComparison(scenario.rows, self.rows_truth)
        self.tallies = {name: ClientTally() for name in streams}
        self.series = Series()
        self.answers = {query.name: Answers() for query in scenario.queries}
        self.thinned_answers = {query.name: Answers() for query in scenario.queries}
        self.server = SimulatedServer(
            scenario,
            self.agenda,
            self.machine,
            directory,
            durable=self._durable,
            answered=self._answered,
        )
        self.problems: list[str] = []
        self.queue_age_us_max = 0
        self.thinned_until_us = -1  # When anything was thinned last.
        self.load_ends_us = 0  # When more came last than can be read in full.
        self.ledgers: dict[str, Ledger] = {}
        self.replays = True  # No synopsis tosses coins of its own.
        self._keep_all = keep_all
        self._alarm = alarm
        self._clients = self._make_clients()
        self._last: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._sample_bytes = 0
        self._in_full_ns = dict.fromkeys(streams, 0.0)  # A tuple's, of when it was up last.

    def run(self, on_progress: OnProgress = lambda _: None) -> None:
        """Live until the end, and until it is calm again.

        Args:
          on_progress: is called with the share of the time that has passed.
        """
        ends_us = round(1e6 * self.scenario.seconds)
        self.server.start()
        for crash in self.scenario.crashes:
            self.agenda.at(round(1e6 * crash.at_s), partial(self.server.crash, crash))
        for force in self.scenario.forces:
            self.agenda.at(round(1e6 * force.at_s), partial(self._force, force))
        for client in self._clients:
            client.begin(ends_us)
        if self.scenario.clients is not None:
            self._change_the_table(self.scenario.clients, ends_us)
        every_us = max(_SAMPLE_US_MIN, ends_us // _POINTS)
        now_us = 0
        while now_us < ends_us or (not self._is_calm() and now_us < ends_us + _AFTER_US):
            now_us += every_us
            self.agenda.run(now_us)
            self._sample(every_us)
            on_progress(min(1.0, now_us / ends_us))
        self._end()

    def _make_clients(self) -> list[SimulatedClient]:
        payload = Payload(self.scenario.stream, self.scenario.seconds)
        clients = []
        for number, group in enumerate(self.scenario.producers):
            shape = np.random.default_rng([self.scenario.seed, number])
            rate = rate_of(group.arrivals, shape, self.scenario.seconds)
            clients += [
                SimulatedClient(
                    f"{group.name}-{each}",
                    group,
                    rate,
                    server=self.server,
                    agenda=self.agenda,
                    payload=payload,
                    tally=self.tallies[stream_of(group.tenant)],
                    rng=np.random.default_rng([self.scenario.seed, number, each]),
                )
                for each in range(group.count)
            ]
        return clients

    def _change_the_table(self, table: ScenarioTable, ends_us: int) -> None:
        """Put rows of random keys, and do so again later."""
        now_us, keys = self.agenda.now_us, self.scenario.stream.keys
        rng = np.random.default_rng([self.scenario.seed, now_us])
        chosen = rng.integers(0, keys, table.rows), rng.integers(0, _SHARDS, table.rows)
        arrays = [pa.array(each, pa.int64()) for each in chosen]
        self.server.upsert(pa.RecordBatch.from_arrays(arrays, schema=TABLE_SCHEMA))
        later_us = now_us + round(1e6 * table.every_s)
        if later_us < ends_us:
            self.agenda.at(later_us, partial(self._change_the_table, table, ends_us))

    def _look_at_rows(self) -> None:
        """Compare the present relations of row queries with the truth."""
        assert self.server.process is not None
        for problem in self.rows.look(self.server.engine.core.rows.queries):
            self._problem(problem)

    def _force(self, force: Force) -> None:
        """Set levels as an operator does; try again later if the server is down."""
        if self.server.process is None:
            self.agenda.after(_SAMPLE_US_MIN, partial(self._force, force))
            return
        for query_state in self.server.process.standings:
            if force.query in (None, query_state.name):
                self.server.set_levels(query_state.name, (force.level,) * len(query_state.levels))

    def _is_calm(self) -> bool:
        """Return whether all has been sent and applied, and all is read in full again."""
        process = self.server.process
        if process is None or not all(client.is_done for client in self._clients):
            return False
        forced = self.scenario.control != "feedback" or bool(self.scenario.forces)
        return not process.queue_bytes and (forced or not self._thinned())

    def _thinned(self) -> bool:
        process = self.server.process
        return process is not None and any(any(each.levels) for each in process.standings)

    # --- what is told --------------------------------------------------------------------------

    def _durable(self, stream: str, header: Header, batch: pa.RecordBatch) -> None:
        if isinstance(header, TableChange):
            self.rows_truth.change(batch)
            return
        if isinstance(header, Idle):
            self.rows_truth.count_idle(stream)
            return
        if self.scenario.rows:
            self.rows_truth.add(stream, batch)
        truth = self.truths[stream]
        if isinstance(header, Built):
            truth.add_summary(batch)
        elif header.flags & SUMMARISED:
            truth.add_followed(header.first_position, batch)
        else:
            truth.add(header.first_position, batch, kept=header.rows)

    def _answered(self, name: str, update: AnswerUpdate) -> None:
        of_query = self.answers[name]
        of_query.count(is_refusal=isinstance(update, ShedderError))
        if isinstance(update, ShedderError):
            return
        if update.start_us is None or (of_query.answers - 1) % self.scenario.truth_every:
            return
        self._starts[name] = update.start_us
        stream, standing_query = self.server.engine.core.standing_query(name)
        truth = self.truths[stream.schema.name]
        true = truth.answer(standing_query.state.query, update, applied=stream.applied)
        judged = judge(update, true, _by_hash(standing_query.state))
        is_thinned = update.thinning < 1.0
        of_query.add(judged, confidence=update.confidence, thinned=is_thinned)
        if is_thinned:
            self.thinned_answers[name].add(judged, confidence=update.confidence, thinned=True)

    # --- what is written down ------------------------------------------------------------------

    def _sample(self, every_us: int) -> None:
        now_us = self.agenda.now_us
        self._look_for_problems()
        if self.server.process is not None and len(self.series.rows) % _ROWS_COMPARED_EVERY == 0:
            self._look_at_rows()
        if not self._keep_all and len(self._starts) == len(self.answers):
            for truth in self.truths.values():
                truth.forget_before(min(self._starts.values()))
        process = self.server.process
        oldest_us = None if process is None else process.oldest_us()
        age_us = 0 if oldest_us is None else now_us - oldest_us
        self.queue_age_us_max = max(self.queue_age_us_max, age_us)
        if self._thinned():
            self.thinned_until_us = now_us
        tallies = self.tallies.items()
        offered = {name: self._rate(f"offered {name}", t.offered, every_us) for name, t in tallies}
        acked = {name: self._rate(f"acked {name}", t.acknowledged, every_us) for name, t in tallies}
        offered_per_s, acknowledged_per_s = sum(offered.values()), sum(acked.values())
        demand = self._demand(offered)
        catching_up = self._demand(acked) + self._followed_demand(every_us)
        if max(demand, catching_up) >= 1.0:  # Clients catch up afterwards.
            self.load_ends_us = now_us
        row: Row = {
            "at_s": now_us / 1e6,
            "offered_per_s": offered_per_s,
            "demand": demand,
            "acknowledged_per_s": acknowledged_per_s,
            "applied_per_s": self._rate("applied", self._applied(), every_us),
            "refusals_per_s": self._rate(
                "refusals", sum(each.refusals for each in self.tallies.values()), every_us
            ),
            "given_up": sum(each.given_up for each in self.tallies.values()),
            "queue_bytes": 0 if process is None else process.queue_bytes,
            "queue_age_s": age_us / 1e6,
            "memory_bytes": self._memory_bytes(),
            "up": int(process is not None),
        }
        for name, of_query in self.answers.items():
            row[f"share.{name}"] = self._share(name)
            row[f"error.{name}"] = of_query.latest_error
            row[f"width.{name}"] = of_query.latest_width
            row[f"coverage.{name}"] = of_query.coverage
        row |= self.rows.take_point()
        if process is not None:
            row |= counts_of(process.engine.core)
        self.series.add(row)

    def _rate(self, name: str, total: int, every_us: int) -> float:
        before, self._last[name] = self._last.get(name, 0), total
        return (total - before) * 1e6 / every_us

    def _demand(self, tuples_per_s: Mapping[str, float]) -> float:
        """Of the CPU that there is, what these would take, by stream, if they were read in full."""
        process = self.server.process
        costs = self.machine.costs
        assert costs is not None
        if process is not None:
            self._in_full_ns = dict.fromkeys(self.truths, costs.base_ns)
            for each in process.standings:
                self._in_full_ns[each.query.schema.name] += costs.in_full_ns(each)
        return sum(rate * self._in_full_ns[name] for name, rate in tuples_per_s.items()) / 1e9

    def _followed_demand(self, every_us: int) -> float:
        """The same of rows whose summaries came before: no synopsis reads them again."""
        assert self.machine.costs is not None
        followed = sum(tally.followed for tally in self.tallies.values())
        return self._rate("followed", followed, every_us) * self.machine.costs.base_ns / 1e9

    def _applied(self) -> int:
        if self.server.process is None:
            return self._last.get("applied", 0)
        return sum(stream.applied for stream in self.server.streams.values())

    def _share(self, name: str) -> float | None:
        """The smallest share of tuples that a synopsis of the query reads."""
        if self.server.process is None:
            return None
        _, standing_query = self.server.engine.core.standing_query(name)
        return float(2.0 ** -max(standing_query.state.levels))

    def _memory_bytes(self) -> int:
        """What the engine accounts for: queues, tail, sample, panes."""
        process = self.server.process
        if process is None:
            return 0
        core = process.engine.core
        if len(self.series.rows) % _SAMPLE_MEASURED_EVERY == 0:  # It counts its many pieces.
            streams = self.server.streams.values()
            self._sample_bytes = sum(stream.sample.size_bytes for stream in streams)
        panes = sum(query_state.size_bytes for query_state in process.standings)
        return process.queue_bytes + core.store.tail_bytes() + panes + self._sample_bytes

    # --- what must always be -------------------------------------------------------------------

    def _look_for_problems(self) -> None:
        process, spec = self.server.process, self.scenario.machine
        if process is None:
            return
        memory = self._memory_bytes()
        if memory > spec.memory_bytes:
            self._problem(f"{memory:,} bytes of memory; the budget is {spec.memory_bytes:,}")
        in_flight = process.engine.core.log_queue.in_flight_bytes
        if in_flight > spec.ingest_queue_bytes:
            self._problem(f"{in_flight:,} bytes wait for the disk; {spec.ingest_queue_bytes:,} may")

    def _problem(self, text: str) -> None:
        if len(self.problems) < 100:
            self.problems.append(f"{self.agenda.now_us / 1e6:.1f} s: {text}")

    def _end(self) -> None:
        process = self.server.process
        if process is None:
            self._problem("the server is down at the end")
            return
        server = self.server
        server.settle()
        self._look_at_rows()
        for name in self.truths:
            self._compare_the_archive(name)
        plans = [query_state.plan for query_state in process.standings]
        self.replays = not any(part.kind in RANKED for plan in plans for part in plan.parts)
        self.ledgers = server.close()
        self.problems += server.problems
        for name, ledger in self.ledgers.items():
            self._look_at_the_ledger(name, ledger)
        for kind, answers in (("", self.answers), (", thinned", self.thinned_answers)):
            for name, of_query in answers.items():
                if not of_query.covers(self._alarm):
                    intervals, held = of_query.compared
                    self._problem(
                        f"{name}{kind}: {held} of {intervals} intervals held and {of_query.wrong} "
                        "exact values were wrong"
                    )

    def _look_at_the_ledger(self, stream: str, ledger: Ledger) -> None:
        """Every tuple is in it once, under what became of it."""
        truth, counted = self.truths[stream], self.server.counted[stream]
        for what, found, wanted in (
            ("tuples applied, or dropped", ledger.applied + ledger.dropped, truth.rows),
            ("tuples applied and durable", ledger.applied, truth.applied),
            ("tuples in the archive", ledger.applied - ledger.summarised, truth.position),
            ("tuples that are to follow", ledger.summarised, ledger.to_follow),
            ("tuples accepted", ledger.accepted, ledger.applied + ledger.duplicate),
            ("duplicates", ledger.duplicate, counted.duplicate),
            ("refused batches", ledger.refused_batches, counted.refused_batches),
            ("refused rows", ledger.refused_rows, counted.refused_rows),
            *(
                (f"tuples of {each.query}", each.read + each.thinned + each.late, ledger.applied)
                for each in ledger.queries
            ),
        ):
            if found != wanted:
                self._problem(f"the ledger of {stream} has {found:,} {what}, there were {wanted:,}")
        if self.tallies[stream].acknowledged > ledger.applied + ledger.dropped:
            self._problem(f"more was acknowledged than is there in {stream}")

    def _compare_the_archive(self, name: str) -> None:
        """Every durable tuple is there once, at its position, as it was sent."""
        if not self._keep_all:
            return
        store, truth = self.server.engine.core.store, self.truths[name]
        stream = self.server.streams[name]
        found = _table(batch for _, batch in store.scan(stream.id))
        if stream.drops.rows:
            if found.num_rows != truth.position:
                self._problem(f"the archive has {found.num_rows} tuples, not what was let in")
            return
        sent = _table(piece.batch for piece in truth.pieces if piece.in_archive)
        if not found.equals(sent):
            self._problem(
                f"the archive has {found.num_rows} tuples of {name}, which are not the "
                f"{sent.num_rows} sent"
            )


def _by_hash(query_state: QueryState) -> list[str]:
    """The outputs whose error is one draw for as long as the same values come."""
    plan = query_state.plan
    parts = [number for number, part in enumerate(plan.parts) if part.kind in BY_HASH]
    return outputs_of(query_state.query, plan, parts) if parts else []


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """All of them, whatever was said of nulls."""
    return pa.Table.from_batches([batch.cast(SCHEMA) for batch in batches], SCHEMA)

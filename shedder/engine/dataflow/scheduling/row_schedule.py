"""Schedule of row queries: which of them reads, filters or makes rows next, on the apply thread.

By FIFO, each batch is in the rows before the next one is read. By another policy, a step may wait
while batches wait in the apply queue, if the policy picks reading first. A step that waits takes
more tuples at once. Rows do not depend on it: they are the same for any division into steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from shedder.dataflow.scheduling.operator_scheduler import (
    OperatorScheduler,
    ReadyOperator,
    SchedulingPolicy,
)
from shedder.engine.dataflow.row_input import ReadBatch
from shedder.engine.dataflow.row_limits import RowLimits
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.scheduling.query_path import QueryPath

QUEUE_SHARE = 8  # Of a query's memory, and of that of all: with more in queues, steps do not wait.
LATENCY_S = 1.0  # Tuples that have waited longer go first.
NS = 1e9


class RowSchedule:
    """Queues of row queries, and the policy. Used by the apply thread; any thread looks.

    peak_bytes: largest `queue_bytes` since the policy was set.
    """

    def __init__(
        self,
        limits: RowLimits,
        *,
        cpu_ns: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        """limits: of memory. cpu_ns: measures operators. monotonic_s: measures their waits."""
        self.peak_bytes = 0
        self._limits = limits
        self._cpu_ns = cpu_ns
        self._monotonic_s = monotonic_s
        self._scheduler = OperatorScheduler(SchedulingPolicy.FIFO, LATENCY_S)
        self._paths: dict[str, QueryPath] = {}
        self._queries: dict[str, RowQuery] = {}  # Those that have paths.
        self._waiting: dict[str, RowQuery] = {}

    @property
    def policy(self) -> SchedulingPolicy:
        """The policy in force."""
        return self._scheduler.policy

    @property
    def latency_s(self) -> float:
        """The latency bound: tuples that have waited longer go first."""
        return self._scheduler.latency_bound

    @property
    def queue_bytes(self) -> int:
        """Bytes of tuples that were read, and wait for a filter or for a step."""
        return sum(each.queue_bytes for each in list(self._paths.values()))

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Have another policy from the next batch on. No step waits."""
        assert not self._waiting
        self._scheduler.set_policy(policy)
        self.peak_bytes = 0

    def set_latency(self, latency_s: float) -> None:
        """Have another latency bound."""
        self._scheduler.set_latency_bound(latency_s)

    def paths(self) -> list[tuple[QueryPath, str]]:
        """Return the paths, each with a text of its chains and their slopes."""
        return [(each, self._chains_text(each)) for each in list(self._paths.values())]

    def read(self, query: RowQuery, batch: ReadBatch, readers: int) -> None:
        """Have a query read a batch; its step may wait for `run`.

        readers: queries that read the batch. Each frees an equal part of it.
        """
        if self.policy is SchedulingPolicy.FIFO or not query.may_wait:
            query.guard(partial(query.read, batch, waits=False))
            return
        path = self._paths.get(query.name)
        if path is None:
            path = self._paths[query.name] = self._new_path(query)
            self._queries[query.name] = query
        if not query.waits:
            path.note_empty()  # A look at the query made the step.
        began_ns, read_bytes = self._cpu_ns(), query.read_bytes
        query.guard(partial(query.read, batch, waits=True))
        read_bytes = query.read_bytes - read_bytes
        took_ns = self._cpu_ns() - began_ns
        path.note_read(self._monotonic_s(), took_ns, batch.rows.nbytes // readers, read_bytes)
        self._waiting[query.name] = query
        self.peak_bytes = max(self.peak_bytes, self.queue_bytes)

    def run(self, more: Collection[int] = ()) -> list[RowQuery]:
        """Run operators until nothing waits, or until reading the next batch comes first.

        more: ids of the streams whose batches wait in the apply queue.

        Returns:
          The queries whose operators ran, each once. They may read other streams than those of the
          last record.
        """
        for failed in [name for name, it in self._queries.items() if it.failed]:
            self.forget(failed)
        ran: dict[str, RowQuery] = {}
        while self._waiting:
            if more and self._are_full():
                more = ()
            picked = self._scheduler.pick(self._ready(more), self._monotonic_s())
            if picked.place == 0:
                break
            query = ran[picked.path] = self._waiting[picked.path]
            self._run(query, picked)
            if query.failed:
                self.forget(query.name)
        return list(ran.values())

    def forget(self, name: str) -> None:
        """Forget a query, which reads no more."""
        self._waiting.pop(name, None)
        self._queries.pop(name, None)
        self._paths.pop(name, None)
        self._scheduler.forget(name)

    def _new_path(self, query: RowQuery) -> QueryPath:
        found: list[bool] = []
        query.guard(lambda: found.append(query.live.queue_filters()))
        return QueryPath(query.name, has_filters=any(found))

    def _ready(self, more: Collection[int]) -> list[ReadyOperator]:
        now = self._monotonic_s()
        ready = [each for name in self._waiting for each in self._paths[name].ready()]
        ready += [
            ReadyOperator(name, 0, now)
            for name, query in self._queries.items()
            if any(it.stream_id in more for it in query.inputs) and self._scheduler.chains_of(name)
        ]
        return ready

    def _are_full(self) -> bool:
        """Return whether too much waits, with what shared operators have made for a query."""
        sizes = [
            max(self._paths[name].queue_bytes, query.backlog_bytes)
            for name, query in self._waiting.items()
        ]
        if max(sizes) > self._limits.query_bytes_max // QUEUE_SHARE:
            return True
        return sum(sizes) > self._limits.all_bytes_max // QUEUE_SHARE

    def _run(self, query: RowQuery, picked: ReadyOperator) -> None:
        path = self._paths[query.name]
        if not query.waits:  # A look has made the step, or the query has failed.
            path.note_empty()
            del self._waiting[query.name]
            return
        is_filter = picked.place < len(path.names) - 1
        began_ns = self._cpu_ns()
        if is_filter:
            query.guard(lambda: query.live.filter_ahead(query.watermarks))
            path.note_filtered(self._cpu_ns() - began_ns, query.backlog_bytes)
        else:
            query.guard(query.go_on)
            path.note_step(self._cpu_ns() - began_ns)
            query.end_step()
            del self._waiting[query.name]
        rates = path.rates
        if rates is not None:
            self._scheduler.set_rates(query.name, rates)

    def _chains_text(self, path: QueryPath) -> str:
        found = self._scheduler.chains_of(path.query)
        parts = []
        for each in found:
            mib_per_s = each.slope * NS / (1 << 20)
            parts.append(f"{' + '.join(path.names[each.first : each.end])}: {mib_per_s:.1f} MiB/s")
        return "; ".join(parts)

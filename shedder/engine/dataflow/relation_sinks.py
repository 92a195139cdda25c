"""Sinks of a query that is a relation: its present rows, and the stream of its changes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pyarrow as pa

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.current_relation import CurrentRelation
from shedder.dataflow.graph import NodeWork
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.sharing.evaluated_once import EvaluatedOnce
from shedder.dataflow.update_patterns import UpdatePattern


class RelationSinks:
    """The current relation, and its insertions and deletions, of one query or of several."""

    def __init__(
        self,
        relation: CurrentRelation,
        signs: RelationToStream,
        pattern: UpdatePattern,
        clock_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """pattern: of the changes. clock_ns: measures the time of both sinks."""
        self._relation = relation
        self._signs = signs
        self._pattern = pattern
        self._clock_ns = clock_ns
        self._work = (NodeWork(), NodeWork())
        self._signed = EvaluatedOnce()
        self._added = EvaluatedOnce()
        self._made: ChangeBatch | None = None  # Of the last instant.

    @property
    def size_bytes(self) -> int:
        """Bytes of both."""
        return self._signs.size_bytes + self._relation.size_bytes

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the relation."""
        self._relation.set_bytes_max(bytes_max)

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """Return the insertions and deletions of the changes up to an instant.

        A second query that gives the same instant gets what the first one made of it.
        """
        if self._made is None or not self._signed.has_reached(as_of_us):
            with self._signed.evaluation(as_of_us):
                began_ns = self._clock_ns()
                self._made = self._signs.apply(as_of_us, changes)
            self._work[1].add(len(changes), len(self._made), self._clock_ns() - began_ns)
        return self._made

    def add(self, as_of_us: int, changes: ChangeBatch) -> None:
        """Put the changes up to an instant into the relation, unless another query has.

        Raises:
          BudgetExceeded: the relation needs more bytes than its limit.
        """
        if self._added.has_reached(as_of_us):
            return
        began_ns = self._clock_ns()
        with self._added.evaluation(as_of_us):
            self._relation.add(as_of_us, changes)
        self._work[0].add(len(changes), len(changes), self._clock_ns() - began_ns)

    def copied(self) -> RelationSinks:
        """Return sinks with the same rows, which go on apart. No step goes on."""
        relation, signs = copy.deepcopy((self._relation, self._signs))
        return RelationSinks(relation, signs, self._pattern, self._clock_ns)

    def forget(self) -> None:
        """Forget what was made of the last instant: all queries have read it."""
        self._made = None

    def table(self, as_of_us: int) -> pa.Table:
        """Return the rows as of an instant."""
        return self._relation.table(as_of_us)

    def facts(self, at: int, signs_text: str) -> list[OperatorFacts]:
        """Return facts of both sinks. at: place of the operator that they read."""
        sinks: tuple[
            tuple[str, UpdatePattern, CurrentRelation | RelationToStream, NodeWork], ...
        ] = (
            ("Current relation", self._pattern, self._relation, self._work[0]),
            (signs_text, UpdatePattern.MONOTONIC, self._signs, self._work[1]),
        )
        return [
            OperatorFacts(
                (at + place,),
                text,
                of,
                sink.size_bytes,
                work.rows_in,
                work.rows_out,
                work.ns,
                shared=self,
            )
            for place, (text, of, sink, work) in enumerate(sinks)
        ]

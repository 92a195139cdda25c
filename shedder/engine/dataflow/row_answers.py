"""Answers of a row query: rows, with the progress of its inputs and the tuples that they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.plans.logical_plan import BoundRelational
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.engine.dataflow.interval_columns import confidence_of
from shedder.engine.dataflow.row_input import RowInput, missing_texts, unread_texts
from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_target import EVENT_TIME
from shedder.queries.answers.answer import Answer, InputProgress
from shedder.queries.answers.completeness import Completeness


def unmatched_texts(unmatched: Unmatched | None) -> tuple[str, ...]:
    """Return what the rows lack by a broken foreign key, as notes."""
    if unmatched is None:
        return ()
    texts = list[str]()
    if unmatched.missing:
        texts.append(
            f"{unmatched.missing:,} tuples came without the partner of their FOREIGN KEY: each "
            "may lack one row, where the partner came later"
        )
    if unmatched.ambiguous:
        texts.append(
            f"{unmatched.ambiguous:,} tuples had several partners of their FOREIGN KEY: the "
            "referenced columns are no key, and partners that came later are not in the rows"
        )
    return tuple(texts)


@dataclass(frozen=True, slots=True, eq=False)
class RowAnswers:
    """What the answers of one row query say beside its rows.

    sources: beside the operators, as of `Answer.sources`.
    completeness: of rows that are shown; None: no key is left out.
    unmatched: as of `QueryFlow.unmatched`.
    """

    query: BoundRelational
    inputs: Sequence[RowInput]
    output: RowOutput
    sources: tuple[str, ...]
    completeness: Callable[[pa.Table], Completeness | None]
    unmatched: Callable[[], Unmatched | None]

    def of_rows(self, table: pa.Table, rows: int, inputs: tuple[InputProgress, ...]) -> Answer:
        """Return rows of a stream as an answer.

        rows: the number after the last of them. inputs: progress behind them.
        """
        first_us = pc.min(table[EVENT_TIME].cast(pa.int64())).as_py() if table.num_rows else None
        return self._answer(table, rows, inputs, first_us)

    def of_relation(self, table: pa.Table, rows: int, inputs: tuple[InputProgress, ...]) -> Answer:
        """Return the present relation as an answer. rows, inputs: as of `of_rows`."""
        return self._answer(table, rows, inputs, None)

    def missing_notes(self) -> tuple[str, ...]:
        """Say which tuples the rows lack now. On the apply thread."""
        progress = [each.progress for each in self.inputs]
        texts = unmatched_texts(self.unmatched())
        return (*missing_texts(progress), *unread_texts(self.inputs, None), *texts)

    def _answer(
        self, table: pa.Table, rows: int, inputs: tuple[InputProgress, ...], first_us: int | None
    ) -> Answer:
        """first_us: event time of the first row; None: the table is the present relation."""
        marks = [each.as_of_us for each in inputs]
        known = [each for each in marks if each is not None]
        as_of_us = min(known) if known and len(known) == len(marks) else None
        since_us = as_of_us if first_us is None else first_us
        unread = unread_texts(self.inputs, since_us)
        notes = (*missing_texts(inputs), *unread, *unmatched_texts(self.unmatched()))
        return Answer(
            table,
            query=self.query.text,
            watermark_us=as_of_us,
            position=inputs[0].position if len(inputs) == 1 else 0,
            late=sum(each.late for each in inputs),
            complete=not notes,
            confidence=confidence_of(self.query.plan),
            sources=("dataflow", *self.sources),
            notes=notes,
            inputs=inputs,
            resume=self.output.token(rows),
            completeness=self.completeness(table),
        )

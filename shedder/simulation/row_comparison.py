"""Comparison of standing row queries with their truth: equal rows, or intervals that hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from shedder.engine.dataflow.row_query import RowQuery
from shedder.queries.answers.answer import Answer
from shedder.simulation.row_truth import RowTruth
from shedder.simulation.scenario import ScenarioRows
from shedder.simulation.time_series import Answers, Row
from shedder.simulation.verdict import judge


class RowComparison:
    """Comparisons so far.

    compared: answers. intervals: of the queries whose answers have intervals, by name.
    """

    def __init__(self, queries: Iterable[ScenarioRows], truth: RowTruth) -> None:
        self.compared = 0
        self.intervals: dict[str, Answers] = {}
        self._queries = tuple(queries)
        self._truth = truth
        self._latest: Row = {}

    def look(self, known: Mapping[str, RowQuery]) -> list[str]:
        """Compare the present relations; return what is wrong, in words. known: by name."""
        problems: list[str] = []
        self._latest = {}
        for query in self._queries:
            answer = known[query.name].answer()
            self.compared += 1
            if answer.approximate:
                wrong = self._judged(query, answer)
            else:
                wrong = self._truth.differences(query, answer)
            if wrong:
                problems.append(f"{query.name}: {wrong} rows differ from the truth")
        return problems

    def take_point(self) -> Row:
        """Return value, low, high and truth of the last comparison, once."""
        point, self._latest = self._latest, {}
        return point

    def _judged(self, query: ScenarioRows, answer: Answer) -> int:
        """Judge the intervals of an answer; return how many counts and exact values are wrong.

        All windows of a query share the keys that were drawn at its registration.
        """
        late, rows = self._truth.rows(query, answer)
        truth = replace(answer, table=_named(rows, answer))
        verdict = judge(answer, truth, by_hash=answer.approximate)
        of_query = self.intervals.setdefault(query.name, Answers())
        of_query.count(is_refusal=False)
        of_query.add(verdict, confidence=answer.confidence, thinned=bool(verdict.one_draw))
        if answer.table.num_rows == truth.table.num_rows == 1:
            (found,), (true,) = answer.rows(), truth.rows()
            for name in answer.approximate:
                ends = {"value": found[name], "low": found[f"{name}_low"]}
                ends |= {"high": found[f"{name}_high"], "truth": true[name]}
                self._latest |= {
                    f"rows.{query.name}.{name}.{what}": value for what, value in ends.items()
                }
        return late + verdict.wrong


def _named(rows: pa.Table, answer: Answer) -> pa.Table:
    """The true rows with the names of the outputs."""
    return rows.rename_columns(list(answer.outputs))

"""Asking: questions to a database, answers to cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import Select
from shedder.errors import BadQuery, ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Database
from shedder.queries.certification.claims import Case
from spark_ingest.relational.row_question import RelationalQuestion
from spark_ingest.relational.row_truth import RowCase
from spark_ingest.report import Refusal
from spark_ingest.workload import Question

_TIMEOUT_S = 60.0


@dataclass(slots=True)
class AnsweredQuestions:
    """What was asked so far: texts by number, cases, and questions that had no answer.

    rows: cases of row questions.
    """

    schema: StreamSchema
    questions: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    rows: list[RowCase] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def add(self, sql: str, answer: Answer, size_bytes: int | None = None) -> Case:
        """Take an answer, to be judged later; size_bytes: of what it was answered from."""
        self.questions.append(sql)
        if size_bytes is None and answer.archive is not None:
            size_bytes = answer.archive.bytes_read
        number = len(self.questions) - 1
        self.cases.append(Case(number, bound(sql, self.schema), answer, size_bytes))
        return self.cases[-1]

    def add_rows(self, question: RelationalQuestion, answer: Answer) -> None:
        """Take an answer to a row question, to be judged later."""
        self.questions.append(question.sql)
        self.rows.append(RowCase(len(self.questions) - 1, question, answer))


def bound(sql: str, schema: StreamSchema) -> BoundQuery:
    """A question's text, bound to its stream.

    Raises:
      BadQuery: it is no question.
    """
    statement = parse(sql)
    if not isinstance(statement, Select):
        raise BadQuery(f"expected a question, got {sql!r}")
    return bind(statement, schema)


def ask(
    database: Database,
    questions: Iterable[Question | RelationalQuestion],
    answered: AnsweredQuestions,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Ask all questions; what is refused is noted with its reason.

    Args:
      database: of any kind; standing queries are registered and dropped again.
      questions: over the stream of asked.schema.
      answered: takes the answers.
      done: called after each question.
    """
    for number, question in enumerate(questions):
        try:
            answer, size_bytes = _answer(database, question, f"accuracy_{number}")
        except ShedderError as error:
            answered.refused.append(Refusal(question.sql, f"{type(error).__name__}: {error}"))
        else:
            if isinstance(question, RelationalQuestion):
                answered.add_rows(question, answer)
            else:
                answered.add(question.sql, answer, size_bytes)
        done()


def _answer(
    database: Database, question: Question | RelationalQuestion, name: str
) -> tuple[Answer, int | None]:
    """The answer, and how large the synopses are that it was made of."""
    if not question.standing:
        return database.execute(question.sql, timeout_s=_TIMEOUT_S), None
    query = database.register(name, question.sql)
    try:
        answer = query.answer(timeout_s=_TIMEOUT_S)
        shares = database.execute("EXPLAIN ALLOCATION").table
        mine = shares.filter(pc.equal(shares["query"], pa.scalar(name)))
        return answer, pc.sum(mine["size_bytes"]).as_py()
    finally:
        query.drop()

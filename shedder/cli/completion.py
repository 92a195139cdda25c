"""Tab completion in the shell: words of the language, names of streams, tables and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from shedder.cli.highlighting import CQL_WORDS, FUNCTIONS, SQL_WORDS
from shedder.errors import ShedderError
from shedder.queries.answers.database_api import Database

_WORD = re.compile(r"\.?\w*$")


class CqlCompleter(Completer):
    """Names come from the database when `refresh` is called, not on every key."""

    def __init__(self, database: Database, dot_commands: Iterable[str]) -> None:
        self._database = database
        self._dot_commands = sorted(dot_commands)
        self._words = sorted(CQL_WORDS | SQL_WORDS | FUNCTIONS)
        self._names: list[str] = []

    def refresh(self) -> None:
        """Read the names of streams and tables, their columns, and queries again."""
        relations = [*self._first_column("SHOW STREAMS"), *self._first_column("SHOW TABLES")]
        names = {*relations, *self._first_column("SHOW QUERIES")}
        for relation in relations:
            quoted = '"' + relation.replace('"', '""') + '"'
            names.update(self._first_column(f"DESCRIBE {quoted}"))
        self._names = sorted(names)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of the word before the cursor, names before words."""
        del complete_event  # Tab or typing: the same.
        found = _WORD.search(document.text_before_cursor)
        word = "" if found is None else found[0]
        if not word:
            return
        if word.startswith("."):
            candidates = self._dot_commands if document.text.startswith(".") else []
        else:
            shape = str.lower if word.islower() else str.upper
            candidates = [*self._names, *map(shape, self._words)]
        for candidate in candidates:
            if candidate.lower().startswith(word.lower()) and candidate != word:
                yield Completion(candidate, start_position=-len(word))

    def _first_column(self, statement: str) -> list[str]:
        try:
            names = self._database.execute(statement).table.column(0)
        except ShedderError:
            return []  # Completion is a help; the statement itself will say what is wrong.
        return [str(name) for name in names.to_pylist()]

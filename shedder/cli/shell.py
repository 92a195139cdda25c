"""The interactive shell: several lines to a statement, history, colours, completion."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer

from shedder.cli.completion import CqlCompleter
from shedder.cli.highlighting import CqlLexer
from shedder.cli.output import Format, show
from shedder.cli.progress_bar import executing
from shedder.cli.row_output import show_batches
from shedder.cli.script import is_complete, script_in, statements
from shedder.cli.stderr import say
from shedder.errors import BadSetting, ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Database

_GREETING = "a statement ends with ; and .help lists what else there is."
_CHANGES_NAMES = ("create", "drop")
# What one types before one has read the greeting; no statement begins so.
_MEANT = {"help": ".help", "?": ".help", "quit": ".quit", "exit": ".quit"}


class Shell:
    """Reads statements and shows their answers until `.quit` or Ctrl-D."""

    def __init__(
        self,
        database: Database,
        name: str,
        form: Format = Format.TABLE,
        timeout_s: float | None = None,
    ) -> None:
        self._database = database
        self._name = name
        self._form = form
        self._timeout_s = timeout_s
        self._talks = True
        self._commands: dict[str, Callable[[str], None]] = {
            ".help": self._help,
            ".mode": self._mode,
            ".query": lambda name: self._show(self._database.query(name).answer()),
            ".queries": lambda _: self._run("SHOW QUERIES"),
            ".quit": self._quit,
            ".read": self._read,
            ".streams": lambda _: self._run("SHOW STREAMS"),
            ".timer": self._timer,
            ".watch": self._watch,
        }
        self._completer = CqlCompleter(database, self._commands)

    def run(self) -> None:
        """Until the user has enough."""
        session: PromptSession[str] = PromptSession(
            history=_history(),
            lexer=PygmentsLexer(CqlLexer),
            completer=self._completer,
            auto_suggest=AutoSuggestFromHistory(),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, *_: "·".rjust(width - 1) + " ",
        )
        say(f"{self._name}: {_GREETING}", "dim")
        self._completer.refresh()
        while True:
            try:
                self.obey(session.prompt(f"{self._name}> "))
            except KeyboardInterrupt:
                continue  # Ctrl-C clears the line, as in other shells.
            except EOFError:
                return

    def obey(self, line: str) -> None:
        """One input: statements or a dot command. Errors are said, not raised.

        Raises:
          EOFError: `.quit`.
        """
        try:
            word, _, rest = _meant(line).partition(" ")
            if word.startswith("."):
                self._command(word)(rest.strip())
            else:
                self._run(line)
        except ShedderError as error:
            say(str(error), "red")

    def _command(self, word: str) -> Callable[[str], None]:
        if word not in self._commands:
            raise BadSetting(f"no command {word!r}; there are {', '.join(self._commands)}")
        return self._commands[word]

    def _run(self, text: str) -> None:
        for statement in statements(text):
            with executing(self._database, statement, self._timeout_s) as batches:
                show_batches(batches, self._form, quiet=not self._talks)
            if statement.lower().startswith(_CHANGES_NAMES):
                self._completer.refresh()

    def _show(self, answer: Answer) -> None:
        show(answer, self._form, quiet=not self._talks)

    def _help(self, _: str) -> None:
        say(_HELP)

    def _mode(self, name: str) -> None:
        text_modes = {form.value: form for form in Format if form not in _BINARY}
        if name not in text_modes:
            raise BadSetting(f"no mode {name!r}; there are {', '.join(text_modes)}")
        self._form = text_modes[name]

    def _timer(self, word: str) -> None:
        if word not in ("on", "off"):
            raise BadSetting(f".timer is on or off, not {word!r}")
        self._talks = word == "on"

    def _read(self, name: str) -> None:
        self._run(script_in(Path(name).expanduser()))

    def _watch(self, name: str) -> None:
        """Every answer of a standing query, until Ctrl-C."""
        query = self._database.query(name)
        say("waiting for the next slide; Ctrl-C ends", "dim")
        try:
            for answer in query.subscribe():
                self._show(answer)
        except KeyboardInterrupt:
            say("")

    def _quit(self, _: str) -> None:
        raise EOFError


_BINARY = (Format.ARROW, Format.PARQUET)

_HELP = """\
SELECT ...;          any statement of CQL; Enter sends it once it ends with ;
.streams  .queries   what there is
.query NAME          the present answer of a standing query
.watch NAME          every new answer of it, until Ctrl-C
.mode FORMAT         table, json, ndjson or csv
.timer on|off        say where answers came from and how long they took
.read FILE           run a script
.quit                or Ctrl-D"""


def _meant(line: str) -> str:
    """The input without blanks around it; `quit` and its like as the command that is meant."""
    text = line.strip()
    return _MEANT.get(text.rstrip("; ").lower(), text)


def _keys() -> KeyBindings:
    """Enter sends what is complete and breaks the line otherwise."""
    keys = KeyBindings()

    @Condition
    def ready() -> bool:
        from prompt_toolkit.application import get_app

        text = get_app().current_buffer.text.strip()
        return not text or _meant(text).startswith(".") or is_complete(text)

    @keys.add("enter", filter=ready)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


def _history() -> History:
    """In SHEDDER_HISTORY, else where XDG keeps state; in memory where that cannot be written."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    path = Path(os.environ.get("SHEDDER_HISTORY") or state / "shedder/history")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)

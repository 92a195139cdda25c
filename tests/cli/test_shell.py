"""The shell, typed into."""

from __future__ import annotations

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pygments.token import Keyword, Name

from shedder.cli.completion import CqlCompleter
from shedder.cli.highlighting import CqlLexer
from shedder.cli.output import Format
from shedder.cli.shell import Shell
from tests.streams_of_docs import ROWS, demo_database


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with demo_database(tmp_path_factory.mktemp("shell") / "data") as database:
        yield database


@pytest.fixture
def typed(database, tmp_path, monkeypatch, capsys):
    """Types text into a shell until it ends; returns what it printed."""
    monkeypatch.setenv("SHEDDER_HISTORY", str(tmp_path / "history"))

    def type_into(text: str) -> str:
        with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
            keys.send_text(text + "\x04")
            Shell(database, "data", Format.NDJSON).run()
        printed = capsys.readouterr()
        return printed.out + printed.err

    return type_into


@pytest.mark.slow
def test_a_statement_runs_when_it_has_its_semicolon(typed):
    printed = typed("SELECT COUNT(*) AS n\rFROM requests;\r")
    assert f'"n": {ROWS}' in printed


def test_an_error_is_said_and_the_shell_goes_on(typed):
    printed = typed("SELECT nothing;\r.streams\r")
    assert "requests" in printed


@pytest.mark.slow
def test_dot_commands_are_obeyed(typed):
    assert '"column"' not in typed(".mode csv\rDESCRIBE requests;\r").replace('"column","type"', "")
    assert "there are .help" in typed(".frobnicate\r")
    assert "no mode 'parquet'" in typed(".mode parquet\r")
    assert "either" not in typed(".quit\rSELECT;\r")


@pytest.mark.parametrize("word", ["quit", "exit;", "Quit"])
def test_quit_needs_no_dot(typed, word):
    assert "expected" not in typed(f"{word}\rSELECT;\r")


def test_help_needs_no_dot(typed):
    assert ".watch NAME" in typed("help\r")


def test_history_is_kept_between_shells(typed, tmp_path):
    typed("SHOW STREAMS;\r")
    assert "SHOW STREAMS;" in (tmp_path / "history").read_text()


def completions(database, text: str) -> list[str]:
    completer = CqlCompleter(database, [".help", ".quit"])
    completer.refresh()
    document = Document(text, len(text))
    return [one.text for one in completer.get_completions(document, CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT COUNT(*) FROM req", "requests"),
        ("SELECT lat", "latency_ms"),
        ("SELECT COUNT(*) FROM requests WITH", "WITHIN"),
        ("select quant", "quantile"),
        (".he", ".help"),
    ],
)
def test_tab_offers_names_and_words(database, text, expected):
    assert expected in completions(database, text)


def test_tab_offers_tables_and_their_columns(database):
    database.execute("CREATE TABLE customers (customer BIGINT PRIMARY KEY, tier VARCHAR)")
    assert {"customers", "customer"} <= set(completions(database, "UPDATE cust"))
    assert "tier" in completions(database, "UPDATE customers SET ti")
    assert "UPDATE" in completions(database, "UPD")


def test_words_of_the_language_are_coloured():
    tokens = {
        value: token
        for token, value in CqlLexer().get_tokens("SELECT QUANTILE(x, 0.5) FROM s WITHIN 1 PERCENT")
    }
    assert tokens["WITHIN"] is Keyword
    assert tokens["QUANTILE"] is Name.Function
    assert tokens["x"] is Name

"""`shedder push` stores each row of its files once, in order of event time, or says why not."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import re
import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shedder
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from tests.cli.worlds import stored_rows

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def only_our_settings(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("SHEDDER_")]:
        monkeypatch.delenv(name)


class World:
    """A data directory, and what `push` did with the files that a test has written."""

    def __init__(self, tmp_path, capfd) -> None:
        self.files = tmp_path
        self.data = str(tmp_path / "data")
        self._capfd = capfd

    def write(self, name: str, text: str | bytes):
        (self.files / name).write_bytes(text.encode() if isinstance(text, str) else text)

    def push(self, *names: str, flags: tuple[str, ...] = (), stream: str = "s") -> tuple[int, str]:
        paths = [str(self.files / name) for name in names]
        return self.run("push", stream, *paths, "-d", self.data, "--create", *flags)

    def run(self, *arguments: str) -> tuple[int, str]:
        self._capfd.readouterr()
        code = run(arguments)
        return code, self._capfd.readouterr().err

    def rows(self, *columns: str) -> list[tuple]:
        """All rows of the stream, each as often as it is stored, in order of time."""
        found = self.table().select(columns or ("ts", "x")).to_pydict()
        return sorted(zip(*found.values(), strict=True), key=str)

    def table(self) -> pa.Table:
        """All rows of the stream in order of arrival."""
        return stored_rows(self.data, "s")

    def late(self) -> int:
        with shedder.open(self.data) as database:
            return database.ledger("s").late


@pytest.fixture
def world(tmp_path, capfd):
    return World(tmp_path, capfd)


def csv(*rows: tuple[int, int], header: str = "ts,x\n") -> str:
    return header + "".join(f"2024-01-01 00:{at // 60:02}:{at % 60:02},{x}\n" for at, x in rows)


def times(*seconds: int) -> list[dt.datetime]:
    return [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=at) for at in seconds]


def stored(*rows: tuple[int, int]) -> list[tuple]:
    return sorted(((times(at)[0], x) for at, x in rows), key=str)


def test_rows_of_files_that_are_in_no_order_are_not_late(world):
    world.write("a.csv", csv((50, 1), (10, 2), (30, 3)))
    world.write("b.csv", csv((20, 4), (40, 5), (20, 6)))
    world.write("c.csv", csv((5, 7), (3, 8)))
    assert world.push("a.csv", "b.csv", "c.csv")[0] == ExitCode.FINE
    assert world.late() == 0
    every = ((50, 1), (10, 2), (30, 3), (20, 4), (40, 5), (20, 6), (5, 7), (3, 8))
    assert world.rows() == stored(*every)
    code, said = world.push("a.csv", "b.csv", "c.csv")
    assert (code, "8 of them were there already" in said) == (ExitCode.FINE, True)
    assert world.push("b.csv")[1].count("3 of them were there already") == 1
    assert world.rows() == stored(*every)


def test_rows_in_the_order_of_the_file_are_late_and_the_remedy_is_told(world):
    world.write("a.csv", csv((50, 1), (10, 2), (30, 3)))
    world.write("b.csv", csv((60, 1)))
    assert world.push("b.csv")[0] == ExitCode.FINE
    code, said = world.push("a.csv", flags=("--no-sort",))
    assert code == ExitCode.FINE
    assert "3 rows came later than the lateness allows" in said
    assert "rows of further files come in order without --no-sort; a new stream with" in said
    assert "--create --lateness 40 keeps windows open" in said
    assert world.late() == 3


def test_a_file_is_known_by_its_content_under_any_name_and_packing(world):
    text = csv((1, 1), (2, 2), (3, 2))
    world.write("a.csv", text)
    world.write("b.csv.gz", gzip.compress(text.encode()))
    for name in ("a.csv", "b.csv.gz", "a.csv"):
        assert world.push(name)[0] == ExitCode.FINE
    assert world.rows() == stored((1, 1), (2, 2), (3, 2))
    assert world.push("a.csv", flags=("--producer", "again"))[0] == ExitCode.FINE
    assert len(world.rows()) == 6


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_file_that_has_grown_is_refused_and_resumed(world, rows):
    first = [(at, at) for at in range(rows)]
    longer = [*first, (rows + 5, 7), (rows + 2, 8)]
    longest = [*longer, (rows + 9, 9)]
    world.write("a.csv", csv(*first))
    assert world.push("a.csv")[0] == ExitCode.FINE
    world.write("a.csv", csv(*longer))
    code, said = world.push("a.csv")
    assert code == ExitCode.USAGE
    assert f"a.csv has grown: its first {len(csv(*first))} bytes of {len(csv(*longer))}" in said
    assert "--resume loads the rest" in said
    assert world.rows() == stored(*first)
    assert world.push("a.csv", flags=("--resume",))[0] == ExitCode.FINE
    assert world.rows() == stored(*longer)
    for flags in ((), ("--resume",)):
        code, said = world.push("a.csv", flags=flags)
        assert (code, "were there already" in said) == (ExitCode.FINE, True)
    world.write("a.csv", csv(*longest))
    assert world.push("a.csv")[0] == ExitCode.USAGE
    assert world.push("a.csv", flags=("--resume",))[0] == ExitCode.FINE
    assert world.rows() == stored(*longest)


def test_a_line_that_was_not_complete_cannot_be_resumed(world):
    world.write("a.csv", csv((1, 1), (2, 2))[:-2] + "7")  # The last value may get more digits.
    assert world.push("a.csv")[0] == ExitCode.FINE
    world.write("a.csv", csv((1, 1), (2, 2))[:-2] + "77\n")
    code, said = world.push("a.csv", flags=("--resume",))
    assert (code, "its last line was not complete" in said) == (ExitCode.USAGE, True)
    assert world.rows() == stored((1, 1), (2, 7))


def test_rows_that_a_grown_file_cannot_have_are_left_out_as_the_message_says(world):
    """The options of the message made another load: rows of the old part were stored twice."""
    text = csv((1, 1))
    world.write("a.csv", text)
    assert world.push("a.csv")[0] == ExitCode.FINE
    bad = str(world.files / "bad")
    for line, option, place in (
        ("2024-01-01 00:00:02,x\n", ("--bad-rows", bad), ": row 2, column 'x'"),
        (",7\n", ("--skip-untimed",), ": no event time 'ts' that could be kept in row 2, of rows"),
    ):
        start, text = len(text), text + csv((len(text), 9), header="") + line
        world.write("a.csv", text)
        code, said = world.push("a.csv", flags=("--resume",))
        assert code == ExitCode.USAGE
        assert f"a.csv after byte {start:,}{place}" in said
        assert option[0] in said
        assert world.push("a.csv", flags=("--resume", *option))[0] == ExitCode.FINE
    assert [x for _, x in world.rows()] == [1, 9, 9]


def test_a_column_that_a_grown_file_has_more_is_left_out_as_the_message_says(world):
    """`--columns` made another load: rows of the old part were stored twice."""
    text = '{"ts": "2024-01-01T00:00:01Z", "x": 1}\n'
    world.write("a.ndjson", text)
    assert world.push("a.ndjson")[0] == ExitCode.FINE
    world.write("a.ndjson", text + '{"ts": "2024-01-01T00:00:02Z", "x": 2, "y": 3}\n')
    code, said = world.push("a.ndjson", flags=("--resume",))
    assert (code, "--columns ts,x leaves it out" in said) == (ExitCode.USAGE, True)
    for flags in (("--resume", "--columns", "ts,x"), ("--columns", "ts,x")):
        assert world.push("a.ndjson", flags=flags)[0] == ExitCode.FINE
    assert world.rows() == stored((1, 1), (2, 2))
    assert world.push("a.ndjson", flags=("--columns", "ts"))[0] == ExitCode.FINE
    assert len(world.rows()) == 4  # Other rows: a load of its own.
    world.write("old.ndjson", text)
    flags = ("--producer", "new", "--columns", "ts,x")
    code, said = world.push("a.ndjson", "old.ndjson", flags=flags)
    assert (code, "a.ndjson begins with all of old.ndjson" in said) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("options", [("--columns", "ts,x"), ("--delimiter", ","), ("--quote", '"')])
def test_options_that_read_the_same_rows_in_any_order_make_no_separate_load(world, options):
    """A push without `--columns` stored all rows of an earlier one with `--columns` again."""
    world.write("z.csv", csv((0, 0)))
    world.write("a.csv", csv((1, 1), (2, 2)))
    world.write("b.csv", csv((1, 3), (2, 4)))
    world.push("z.csv")
    orders = (options, (), ("--columns", " x,ts"), ("--bad-rows", "/dev/null"), options)
    for name, flags in (("a.csv", orders), ("b.csv", orders[1:])):
        for each in flags:
            assert world.push(name, flags=each)[0] == ExitCode.FINE
    assert world.rows() == stored((0, 0), (1, 1), (2, 2), (1, 3), (2, 4))


def test_files_of_one_load_that_columns_leaves_whole_are_stored_once(world):
    """One file with a column that was left out made separate loads of all files."""
    wide = csv((1, 1), (4, 4), header="ts,x\n").replace("\n", ",7\n").replace("x,7", "x,y", 1)
    world.write("wide.csv", wide)
    world.write("a.csv", csv((2, 2), (3, 3)))
    assert world.push("wide.csv", flags=("--producer", "first"))[0] == ExitCode.FINE
    for _ in range(2):
        flags = ("--columns", "ts,x")
        assert world.push("wide.csv", "a.csv", flags=flags)[0] == ExitCode.FINE
        assert world.push("a.csv")[0] == ExitCode.FINE
        assert world.table().num_rows == 6
    assert world.push("wide.csv", "a.csv", flags=("--columns", "ts"))[0] == ExitCode.FINE
    assert world.table().num_rows == 10  # Other rows: a load of their own.


@pytest.mark.parametrize("rows", [1, 2, 5_000])
@pytest.mark.parametrize("end", ["", "\r"])
@pytest.mark.parametrize("grown_by", ["\r", "\n", "\r\n"])
def test_a_file_whose_lines_end_with_carriage_returns_is_resumed(world, rows, end, grown_by):
    """All rows of the loaded part were stored again."""
    first = [(at % 3_600, at) for at in range(rows)]
    text = csv(*first).replace("\n", "\r").removesuffix("\r") + end
    world.write("a.csv", text)
    assert world.push("a.csv")[0] == ExitCode.FINE
    grown = csv((7, 7), (8, 8), header="").replace("\n", grown_by)
    world.write("a.csv", text + ("" if end else "\r") + grown)
    code, said = world.push("a.csv")
    assert (code, "a.csv has grown" in said) == (ExitCode.USAGE, True)
    assert world.push("a.csv", flags=("--resume",))[0] == ExitCode.FINE
    assert world.rows() == stored(*first, (7, 7), (8, 8))


def test_a_name_with_a_line_end_is_read_and_such_a_file_is_resumed(world):
    text = 'ts,"x\ny"\n2024-01-01 00:00:01,1\n'
    for flags, more in (((), ""), (("--resume",), "2024-01-01 00:00:02,2\n")):
        world.write("a.csv", text + more)
        assert world.push("a.csv", flags=flags)[0] == ExitCode.FINE
    assert world.rows("ts", "x\ny") == stored((1, 1), (2, 2))


def test_a_quote_that_is_not_closed_is_refused_and_the_file_loaded_once_it_is(world):
    """The last cell had all rows behind the quote; a resumed load began within the cell."""
    text = 'ts,x\n2024-01-01 00:00:01,a\n2024-01-01 00:00:02,"b\n2024-01-01 00:00:03,c\n'
    for flags in ((), ("--bad-rows", "/dev/null")):
        world.write("a.csv", text)
        code, said = world.push("a.csv", flags=flags)
        assert code == ExitCode.USAGE
        assert "a.csv: row 2 has a quote that is not closed; --quote ''" in said
        assert not (world.files / "data").exists()
    world.write("a.csv", text + '"\n')
    assert world.push("a.csv")[0] == ExitCode.FINE
    assert [x for _, x in world.rows()] == ["a", "b\n2024-01-01 00:00:03,c\n"]
    for line in ('2024-01-01 00:00:04,"7\n', '"2024-01-01 00:00:04,7\n'):
        world.write("b.csv", csv((1, 1)) + line)
        flags = ("--producer", "b", "--bad-rows", str(world.files / "bad"))
        for options in (flags[:2], flags):
            code, said = world.push("b.csv", flags=options)
            assert (code, "row 2 has a quote that is not closed" in said) == (ExitCode.USAGE, True)
            assert "end of the rows" not in said
    assert (world.files / "bad").read_text() == ""


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_one_line_that_has_grown_is_refused_and_resumed(world, end):
    flags = ("--header", "ts,x")
    world.write("a.csv", "2024-01-01 00:00:01,1" + end)
    assert world.push("a.csv", flags=flags)[0] == ExitCode.FINE
    world.write("a.csv", csv((1, 1), (2, 2), header=""))
    code, said = world.push("a.csv", flags=flags)
    assert (code, "a.csv has grown" in said) == (ExitCode.USAGE, True)
    assert world.push("a.csv", flags=(*flags, "--resume"))[0] == ExitCode.FINE
    assert world.rows() == stored((1, 1), (2, 2))


@pytest.mark.parametrize("name", ["a.csv", "a.ndjson"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_an_older_copy_of_one_row_is_refused_and_its_last_line_end_is_no_new_row(world, name, end):
    """Files of one line were not compared with longer ones: the row was stored twice."""
    flags = ("--header", "ts,x") if name == "a.csv" else ()
    row = "2024-01-01 00:00:0{0},{0}" if flags else '{{"ts": "2024-01-01 00:00:0{0}", "x": {0}}}'
    rows = [row.format(at) for at in range(4)]
    world.write(name, "\n".join(rows[:3]) + end)
    assert world.push(name, flags=flags)[0] == ExitCode.FINE
    for copy in (rows[0], rows[0] + "\n"):
        world.write(name, copy)
        code, said = world.push(name, flags=flags)
        assert (code, "may have been loaded before" in said) == (ExitCode.USAGE, True)
    world.write(name, rows[3])
    assert world.push(name, flags=flags)[0] == ExitCode.FINE
    world.write(name, rows[3] + "\n")
    assert world.push(name, flags=(*flags, "--resume"))[0] == ExitCode.FINE
    assert world.rows() == stored(*((at, at) for at in range(4)))


@pytest.mark.parametrize("header", ["ts,x\r\n", ""])
def test_a_file_of_one_row_whose_line_got_an_end_of_two_characters_is_resumed(world, header):
    """The first row with a carriage return was another head: the row was stored twice."""
    flags = () if header else ("--header", "ts,x")
    text = csv((1, 1), (2, 2), header="").replace("\n", "\r\n")
    world.write("a.csv", header + text.split("\r\n")[0])
    assert world.push("a.csv", flags=flags)[0] == ExitCode.FINE
    world.write("a.csv", header + text)
    code, said = world.push("a.csv", flags=flags)
    assert (code, "a.csv has grown" in said) == (ExitCode.USAGE, True)
    assert world.push("a.csv", flags=(*flags, "--resume"))[0] == ExitCode.FINE
    assert world.rows() == stored((1, 1), (2, 2))


def test_files_that_begin_with_blank_lines_are_separate_files(world):
    for name, rows in (("a.ndjson", (1, 2, 3)), ("b.ndjson", (4,))):
        lines = [f'{{"ts": "2024-01-01 00:00:0{at}", "x": {at}}}\n' for at in rows]
        world.write(name, "\n\n" + "".join(lines))
        assert world.push(name)[0] == ExitCode.FINE
    assert world.rows() == stored(*((at, at) for at in range(1, 5)))


@pytest.mark.parametrize("blank", ["\n", "\r\n\r\n", "\r"])
def test_blank_lines_before_a_header_are_skipped_and_such_a_file_is_resumed(world, blank):
    text = blank + csv((1, 1), (2, 2))
    for flags, more in (((), ""), (("--resume",), csv((3, 3), header=""))):
        world.write("a.csv", text + more)
        assert world.push("a.csv", flags=flags)[0] == ExitCode.FINE
    world.write("b.csv", blank + csv((4, 4)))
    assert world.push("b.csv")[0] == ExitCode.FINE
    assert world.rows() == stored(*((at, at) for at in range(1, 5)))


def test_another_file_that_begins_alike_is_stored_too(world):
    world.write("a.csv", csv((1, 1), (2, 2)))
    world.write("b.csv", csv((1, 1), (3, 3), (4, 4), (4, 5)))
    for _ in range(2):
        for name in ("a.csv", "b.csv"):
            assert world.push(name)[0] == ExitCode.FINE
    assert world.rows() == stored((1, 1), (2, 2), (1, 1), (3, 3), (4, 4), (4, 5))
    world.write("c.csv", csv((1, 1), (5, 5), (6, 6)))  # Shorter than b.csv, and never stored.
    code, said = world.push("c.csv")
    assert (code, "a load of both files compares them" in said) == (ExitCode.USAGE, True)
    assert len(world.rows()) == 6
    for names in (("c.csv", "b.csv"), ("b.csv", "c.csv"), ("c.csv",)):
        assert world.push(*names)[0] == ExitCode.FINE
    assert len(world.rows()) == 9


def test_a_file_of_a_group_is_known_after_a_longer_one_that_begins_alike(world):
    rows = [(at, at) for at in range(5)]
    others = [(at, 100 + at) for at in range(10)]
    alike = [rows[0], *((60 + at, at) for at in range(9))]
    world.write("a.csv", csv(*rows))
    world.write("b.csv", csv(*others))
    world.write("c.csv", csv(*alike))
    assert world.push("a.csv", "b.csv")[0] == ExitCode.FINE
    for names in (("c.csv",), ("a.csv",), ("b.csv", "a.csv"), ("b.csv",)):
        assert world.push(*names)[0] == ExitCode.FINE
        assert len(world.rows()) == 25
    world.write("a.csv", csv(*rows, (9, 9)))
    assert world.push("a.csv")[0] == ExitCode.USAGE
    assert world.push("a.csv", flags=("--resume",))[0] == ExitCode.FINE
    assert world.rows() == stored(*rows, (9, 9), *others, *alike)


def test_an_older_copy_of_a_file_that_was_resumed_twice_is_stored_once(world):
    rows = [(at, at) for at in range(10)]
    for count in (4, 7, 10):
        world.write("a.csv", csv(*rows[:count]))
        assert world.push("a.csv", flags=("--resume",))[0] == ExitCode.FINE
    for count in (4, 7, 10):
        world.write("a.csv", csv(*rows[:count]))
        code, said = world.push("a.csv")
        assert (code, f"{count} of them were there already" in said) == (ExitCode.FINE, True)
    for count in (5, 8):  # Copies that were never loaded.
        world.write("a.csv", csv(*rows[:count]))
        for flags in ((), ("--resume",)):
            code, said = world.push("a.csv", flags=flags)
            assert (code, "a.csv may have been loaded before" in said) == (ExitCode.USAGE, True)
    assert world.rows() == stored(*rows)


def test_a_file_and_its_older_copy_in_one_load_are_refused(world):
    rows = [(at, at) for at in range(6)]
    world.write("a.csv", csv(*rows))
    world.write("old.csv", csv(*rows[:4]))
    for names in (("a.csv", "old.csv"), ("old.csv", "a.csv")):
        code, said = world.push(*names)
        assert (code, "a.csv begins with all of old.csv" in said) == (ExitCode.USAGE, True)
    for names in (("old.csv",), ("old.csv", "a.csv"), ("a.csv", "old.csv")):
        assert world.push(*names, flags=("--resume",))[0] == ExitCode.FINE
    assert world.rows() == stored(*rows)


def test_files_of_one_content_and_files_that_begin_alike_are_stored_once_each(world):
    world.write("a.csv", csv((1, 1), (9, 2), (5, 3)))
    world.write("copy.csv", csv((1, 1), (9, 2), (5, 3)))
    world.write("b.csv", csv((1, 1), (4, 4)))
    for _ in range(2):
        code, said = world.push("a.csv", "copy.csv", "b.csv")
        assert (code, "copy.csv has the content of a.csv" in said) == (ExitCode.FINE, True)
    assert world.rows() == stored((1, 1), (9, 2), (5, 3), (1, 1), (4, 4))


def test_a_bad_row_anywhere_leaves_no_row_and_no_stream(world):
    world.write("a.csv", csv(*((at, at) for at in range(50))) + "2024-01-01 00:59:00,x\n")
    world.write("b.csv", csv((1, 1)))
    said = world.push("b.csv", "a.csv", flags=("--type", "x=BIGINT"))[1]
    assert "a.csv: row 51, column 'x': 'x' is no BIGINT; --bad-rows FILE keeps" in said
    assert not (world.files / "data").exists()
    aside = world.files / "bad.ndjson"
    code, said = world.push(
        "b.csv", "a.csv", flags=("--type", "x=BIGINT", "--bad-rows", str(aside))
    )
    assert (code, "1 rows that cannot be read were kept aside" in said) == (ExitCode.FINE, True)
    assert len(world.rows()) == 51
    (bad,) = [json.loads(line) for line in aside.read_text().splitlines()]
    assert (bad["file"], bad["row"], bad["is"]["x"]) == ("a.csv", 51, "x")


def test_columns_that_the_stream_lacks_are_refused_unless_they_are_left_out(world):
    world.write("a.ndjson", '{"ts": "2024-01-01T00:00:00Z", "x": 1}\n')
    world.write("b.ndjson", '{"ts": "2024-01-01T00:00:01Z", "x": 2, "amuont": 9}\n')
    world.write("c.csv", "ts,x,extra\n2024-01-01 00:00:02,3,4\n")
    assert world.push("a.ndjson")[0] == ExitCode.FINE
    for name, column in (("b.ndjson", "amuont"), ("c.csv", "extra")):
        code, said = world.push(name)
        assert code == ExitCode.USAGE
        assert f"{name} has a column '{column}', and the stream has none" in said
        assert world.push(name, flags=("--columns", "ts,x"))[0] == ExitCode.FINE
    assert world.rows() == stored((0, 1), (1, 2), (2, 3))


def test_a_key_that_comes_late_is_a_column(world):
    row = '{"ts": "2024-01-01T00:00:00Z", "x": 1, "pad": "%s"}\n' % ("p" * 300)
    late = '{"ts": "2024-01-01T00:00:00Z", "late": 7}\n'
    world.write("a.ndjson", row * 15_000 + late)
    assert world.push("a.ndjson")[0] == ExitCode.FINE
    late = world.table()["late"]
    assert (len(late), late.null_count) == (15_001, 15_000)


def test_options_of_a_new_stream_have_no_effect_on_one_that_exists_and_say_so(world):
    world.write("a.csv", csv((1, 1)))
    assert "no effect" not in world.push("a.csv", flags=("--lateness", "5"))[1]
    said = world.push("a.csv", flags=("--lateness", "5", "--type", "x=DOUBLE"))[1]
    assert "stream s exists: --type and --lateness have no effect" in said


def test_a_parquet_file_and_a_text_file_are_sorted_together(world):
    table = pa.table({"ts": pa.array(times(4, 2), pa.timestamp("us")), "x": [4, 2]})
    pq.write_table(table, world.files / "a.parquet")
    world.write("b.tsv", csv((3, 3), (1, 1)).replace(",", "\t"))
    assert world.push("a.parquet", "b.tsv")[0] == ExitCode.FINE
    assert (world.rows(), world.late()) == (stored((1, 1), (2, 2), (3, 3), (4, 4)), 0)


def test_a_file_with_more_columns_than_a_stream_has_is_refused_with_the_limit(world):
    names = ",".join(f"c{n}" for n in range(1_400))
    world.write("a.csv", f"ts,{names}\n2024-01-01 00:00:00{',1' * 1_400}\n")
    code, said = world.push("a.csv")
    assert code == ExitCode.USAGE
    assert "a.csv has 1,401 columns; a stream has at most 1,300: choose some with --columns" in said
    assert world.push("a.csv", flags=("--columns", "ts,c0,c7"))[0] == ExitCode.FINE


@pytest.mark.parametrize(
    ("name", "content", "flags", "match"),
    [
        ("a.csv", b"ts,x\n", ("--columns", "ts,x,ts"), "--columns 'ts,x,ts' has 'ts' twice"),
        ("a.csv", b"ts,x\n", ("--columns", ""), "no column ''; the file has ts, x"),
        ("a.csv", b"ts,x\n1,2\n", ("--encoding", "utf-16"), "a.csv is not in utf-16"),
        ("a.json", b"\n", (), "a.json has no rows"),
        ("a.json", b"[]", (), "a.json has no rows"),
        ("a.parquet", b"", (), "a.parquet: Parquet file size is 0 bytes"),
        ("a.csv", b"ts,x\n", ("--producer", "p" * 65), "a name has 1 to 64 bytes"),
        ("a.csv", b"ts,x\n", ("--type", "y=DOUBLE"), "no column 'y'; the file has ts, x"),
    ],
)
def test_a_push_that_cannot_be_is_a_usage_error_in_words(world, name, content, flags, match):
    world.write(name, content)
    code, said = world.push(name, flags=flags)
    assert (code, match in said, "Traceback" in said) == (ExitCode.USAGE, True, False)
    assert not (world.files / "data").exists()


def test_a_sink_for_bad_rows_that_cannot_be_written_is_named(world):
    world.write("a.csv", csv((1, 1)) + "2024-01-01 00:00:02,x\n")
    flags = ("--type", "x=BIGINT", "--bad-rows")
    for sink in ("/dev/full", str(world.files)):
        code, said = world.push("a.csv", flags=(*flags, sink))
        assert (code, f"cannot write --bad-rows '{sink}': " in said) == (ExitCode.USAGE, True)
        assert "a.csv" not in said
        assert not (world.files / "data").exists()


def test_stdin_is_read_as_a_file_is(world, monkeypatch):
    for text, said in ((csv((2, 2), (1, 1)), "2 rows"), ("ts,x\n?,1\n", "stdin: row 1")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        flags = ["--format", "csv", "--create", "--time", "ts", "-d", world.data]
        assert said in world.run("push", "s", "-", *flags)[1]
    assert world.rows() == stored((1, 1), (2, 2))


def test_zones_of_parquet_times_are_told(world):
    times = pa.array([0], pa.timestamp("us", "America/New_York"))
    pq.write_table(pa.table({"ts": times, "x": [1], "a.b": [2]}), world.files / "a.parquet")
    code, said = world.push("a.parquet")
    assert (code, "'ts' were converted from America/New_York to UTC" in said) == (0, True)
    assert world.rows("a.b", "x") == [(2, 1)]


def test_values_with_controls_are_escaped_in_messages(world):
    world.write("a.csv", csv((1, 1)) + "\x1b]0;owned\x07,1\n")
    code, said = world.push("a.csv", flags=("--time", "ts"))
    assert (code, "\x1b]0" in said) == (ExitCode.USAGE, False)


def test_a_push_that_is_refused_half_way_says_what_is_stored_and_goes_on(world, monkeypatch):
    wide = "w" * (1 << 19)  # A row that is larger than a batch may be here.
    rows = "".join(f"2024-01-01 00:00:{at:02},{wide if at == 30 else at}\n" for at in range(40))
    world.write("a.csv", "ts,x\n" + rows)
    world.write("b.csv", "ts,x\n2023-12-31 00:00:00,a\n2023-12-31 00:00:00,a\n")
    monkeypatch.setenv("SHEDDER_BATCH_BYTES_MAX", str(1 << 18))
    for _ in range(2):
        code, said = world.push("a.csv", "b.csv")
        assert code != ExitCode.FINE
        assert "of 42 rows are stored; once the cause is removed, the same command" in said
        at_least = int(re.findall(r"at least ([0-9]+) of 42 rows", said)[0])
        assert (at_least, world.table().num_rows) == (2, 32)
    monkeypatch.delenv("SHEDDER_BATCH_BYTES_MAX")
    assert world.push("a.csv", "b.csv")[0] == ExitCode.FINE
    assert world.table().num_rows == 42


@pytest.mark.parametrize("name", ["a.csv", "-"])
def test_a_full_directory_of_temporary_files_is_named_and_no_row_is_stored(
    world, monkeypatch, name
):
    rng = np.random.default_rng(1)
    rows = (f"2024-01-01 00:00:00,{rng.bytes(300).hex()}\n" for _ in range(9_000))
    world.write("a.csv", "ts,x\n" + "".join(rows))
    text = (world.files / "a.csv").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))  # As if the disk were full.
    try:
        flags = ("--format", "csv", "--create", "--bad-rows", str(world.files / "bad"))
        path = name if name == "-" else str(world.files / name)
        code, said = world.run("push", "s", path, "-d", world.data, *flags)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == ExitCode.UNREACHABLE, said
    assert "rows cannot be kept in " in said
    assert "TMPDIR names another directory" in said
    assert not (world.files / "data").exists()

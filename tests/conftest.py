"""Hooks and fixtures of a test run: seeds, order, files in memory, and the report."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from shedder.archive.exact.worker_process import SHARED_FORK_SERVER
from shedder.gc_tuning import keeping_what_is_loaded, loading
from tests import budget, scale, seeds
from tests.truth import EVALUATED, RUN_ALARM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Examples come from the seed of the run. Two cores shared with Spark make any deadline flaky. The
# other health checks depend on chance: a sound strategy fails them on some seeds. No example is
# kept between runs, so the seed alone replays a run.
settings.register_profile(
    "shedder",
    max_examples=scale.scaled(40, 500),
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
settings.load_profile("shedder")

MEMORY, ROOM_BYTES_MIN = Path("/dev/shm"), 8 << 30
# Probability of a false alarm, all gates of a run together. With the tests that CONTRIBUTING.md
# lists, the sum stays below one false alarm in 10,000 runs.
ALARM_OF_GATES = 9e-5
REPLAYED = 10  # Most tests that the replay command names.

LEDGER, CPU = budget.Ledger(), budget.CpuClock()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shedder")
    group.addoption("--budget", action="store_true", help="print the tables of seconds always")
    group.addoption(
        "--record-durations", action="store_true", help=f"write {budget.DURATIONS.name}"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set seed, scale and signals before any worker starts, and put files of tests into memory.

    A shell that starts a run in the background lets it ignore SIGINT. Commands that a test starts
    would inherit that, and a test that interrupts one would wait for its end.

    A store spends half of its time on the disk. No test depends on a real disk: power loss is
    simulated (tests/archive/power.py), and the order of sync calls does not depend on their speed.
    """
    for name, value in ((seeds.VARIABLE, seeds.BASE), (scale.VARIABLE, scale.SCALE.value)):
        # Workers inherit the environment. Tests do not: Settings refuses unknown names, and a
        # test passes the seed to a child process as an argument.
        if _has_workers(config):
            os.environ[name] = str(value)
        else:
            os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seeds.BASE)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def _has_workers(config: pytest.Config) -> bool:
    return bool(config.getoption("dist", "no") != "no")


def _run() -> str:
    """Return the environment that replays this run's seeds and sizes, in shell syntax."""
    change = scale.SCALE is scale.Scale.CHANGE
    return f"{seeds.VARIABLE}={seeds.BASE}" + (
        "" if change else f" {scale.VARIABLE}={scale.SCALE.value}"
    )


def pytest_report_header() -> str:
    return f"seed of this run: {_run()}"


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed in a quiet run too, because a quiet run has no header."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.config.get_verbosity() < 0:
        reporter.write_line(pytest_report_header())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect nightly tests in a per-change run, and order the longest files first."""
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly and scale.SCALE is not scale.Scale.NIGHTLY:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    order = budget.longest_first([item.nodeid for item in items], budget.read_durations())
    items[:] = [items[place] for place in order]


class ByGroup(LoadFileScheduling):
    """A scheduler of whole files, which gives all files that need Java to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return budget.group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    return ByGroup(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Keep the garbage collector from looking at thousands of tests while they are loaded."""
    with loading():
        if (worker := getattr(session.config, "workerinput", None)) is not None:
            _load_share(session.config, worker)
        return (yield)


def _load_share(config: pytest.Config, worker: Mapping[str, Any]) -> None:
    """Load a worker's share of all modules of tests, if the worker is to collect all of them.

    All workers collect at the same time. Without shares each of them would rewrite the assertions
    of each module in a fresh clone, which takes 8 s of CPU. An error of a module is reported when
    the module is collected.
    """
    if [Path(each).resolve() for each in config.args] != [budget.TESTS]:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(budget.TESTS.rglob("test_*.py"))[number::count]:
        with suppress(Exception):
            import_module(".".join(path.relative_to(budget.TESTS.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[object]:
    """Keep the garbage collector from looking at loaded tests while tests run."""
    with keeping_what_is_loaded():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Add the CPU seconds of a phase to its report; xdist sends them to the main process."""
    report = yield
    report.cpu_s = CPU.since_last(look_for_java=item.get_closest_marker("spark") is not None)
    return report


def pytest_runtest_logstart() -> None:
    CPU.since_last(look_for_java=False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    LEDGER.add(report.nodeid, getattr(report, "cpu_s", 0.0), report.duration)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add the gates of a worker that has ended to those of the run."""
    literal, run = getattr(node, "workeroutput", {}).get("gates", (0, 0))
    EVALUATED.add(literal=literal, run=run)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's gates to the main process; fail a run with more gates than allowed."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["gates"] = (EVALUATED.literal, EVALUATED.run)
    elif EVALUATED.run * RUN_ALARM > ALARM_OF_GATES:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if output is None and session.config.option.record_durations:
        budget.DURATIONS.write_text(budget.recorded(LEDGER, budget.read_durations()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    out, option = terminalreporter, terminalreporter.config.option
    failed = [report.nodeid for kind in ("failed", "error") for report in out.getreports(kind)]
    tests = sum(len(out.getreports(kind)) for kind in ("passed", "failed", "skipped"))
    if option.budget or tests > budget.TESTS_MIN:
        out.section("seconds by directory (tests/budget.toml)")
        for line in budget.directories(LEDGER, budget.read_budget()):
            out.write_line(line)
        out.section("slowest files: cpu s, wall s")
        for line in budget.slowest(LEDGER):
            out.write_line(line)
    if EVALUATED.run + EVALUATED.literal:
        alarm = EVALUATED.run * RUN_ALARM
        out.section("statistical gates")
        out.write_line(
            f"{EVALUATED.run} on seeds of the run: false alarm of the run <= {alarm:.2g}"
            + (f", which is above {ALARM_OF_GATES:g}" if alarm > ALARM_OF_GATES else "")
            + f"; {EVALUATED.literal} on literal seeds, the same in every run"
        )
    if failed:
        names = " ".join(f"'{nodeid}'" for nodeid in dict.fromkeys(failed[:REPLAYED]))
        out.section("replay, hypothesis's examples included")
        out.write_line(f"{_run()} .venv/bin/pytest {names}")


class Secrets:
    """A replacement of `secrets.randbits` that draws the same secrets in every run.

    Each length in bits is a sequence of its own: the log draws 32 bits for a segment, on a thread
    whose pace differs between runs, and must not shift the seeds of queries.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._of: dict[int, random.Random] = {}

    def randbits(self, bits: int) -> int:
        chance = self._of.setdefault(bits, random.Random(f"{self._name} {bits}"))
        return chance.getrandbits(bits)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Iterator[object]:
    """Draw the secrets of a module's or a session's fixture from the fixture's name.

    pytest builds these fixtures before `same_chance` of the first test that uses them.
    """
    if fixturedef.scope == "function":
        return (yield)
    name = f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param', '')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", Secrets(name).randbits)
        return (yield)


@pytest.fixture(autouse=True)
def same_chance(request: pytest.FixtureRequest) -> Iterator[None]:
    """Draw seeds that a server keeps secret from the test's name: the same in every run.

    These seeds do not come from the seed of the run. In one of some hundred streams the sample
    would lack the group that a test queries.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", Secrets(request.node.nodeid).randbits)
        yield


@pytest.fixture(autouse=True)
def files_of_the_dead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what a store that died in a test has left open, as the end of its process would have.

    Thousands of them, and everything in this process that calls select() fails: from 1,024 on.
    """
    has_directory = "tmp_path" in request.fixturenames
    home = str(request.getfixturevalue("tmp_path")) if has_directory else None
    yield
    for name in os.listdir("/proc/self/fd") if home else ():
        with suppress(OSError):  # Of the listing itself, which is closed by now.
            target = os.readlink(f"/proc/self/fd/{name}")
            is_left = target.endswith((".log", "/LOCK", "/DURABLE", ".index"))
            if target.startswith(f"{home}/") and (is_left or os.path.isdir(target)):
                os.close(int(name))


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> Iterator[None]:
    """Load DuckDB once for the exact answers of all engines of a run, not for those of each."""
    user = object()
    SHARED_FORK_SERVER.add(user)
    yield
    SHARED_FORK_SERVER.remove(user)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a run: a JVM starts and warms up for ten seconds of a core.

    Tables of tests are tiny: compiling a statement takes longer than interpreting the statement.
    Nightly runs compile statements, and so do commands in their own processes.
    """
    session = pytest.importorskip("spark_ingest.runtime.spark_session")
    chosen = session.SparkSettings(cores=2, heap_mb=2048, brief=True)
    with session.spark_session(chosen) as started:
        started.conf.set("spark.sql.codegen.wholeStage", scale.scaled("false", "true"))
        started.conf.set("spark.sql.codegen.factoryMode", scale.scaled("NO_CODEGEN", "FALLBACK"))
        yield started

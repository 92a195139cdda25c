"""What all tests share: hypothesis without deadlines, the same in every run; files in memory."""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from shedder.garbage import keeping_what_is_loaded, loading
from tests.scale import scaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Two cores shared with Spark make any deadline flaky; derandomized examples make a failure ours.
settings.register_profile(
    "shedder",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shedder")

MEMORY, ROOM_BYTES_MIN = Path("/dev/shm"), 8 << 30

# What takes minutes, longest first: what begins last is what the other worker waits for.
LONGEST = (
    "simulation/test_invariants.py",
    "archive/test_relaid.py",
    "engine/test_kill.py",
    "allocator/test_plan_precision.py",
    "engine/test_drift.py",
    "cql/test_differential.py",
    "synopses/test_hostile.py",
    "engine/test_state_machine.py",
    "engine/test_any_archive.py",
    "engine/test_any_commands.py",
)


def pytest_configure() -> None:
    """Put what tests write into memory where there is room: half of a store's time is its disk's.

    What a disk does when power fails is simulated (tests/archive/power.py); that calls which make
    things durable are made, and made in order, does not depend on how long each takes.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; in a file, and among the others, nothing moves."""
    here = Path(__file__).parent
    turns = {here / name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Eight thousand tests and all modules stay: nothing to look for while they are loaded."""
    with loading():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[object]:
    """They are not looked at again and again while tests run."""
    with keeping_what_is_loaded():
        return (yield)


@pytest.fixture(autouse=True)
def same_chance(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds that nobody could foresee are the same in every run of a test, unlike in another test.

    Else one stream in some hundred has a sample without the group that a test asks about.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", random.Random(request.node.nodeid).getrandbits)
        yield


@pytest.fixture(autouse=True)
def files_of_the_dead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what a store that died in a test has left open, as the end of its process would have.

    Thousands of them, and everything in this process that calls select() fails: from 1,024 on.
    """
    is_asked = "tmp_path" in request.fixturenames
    home = str(request.getfixturevalue("tmp_path")) if is_asked else None
    yield
    for name in os.listdir("/proc/self/fd") if home else ():
        with suppress(OSError):  # Of the listing itself, which is closed by now.
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(f"{home}/") and target.endswith((".log", "/LOCK", ".index")):
                os.close(int(name))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a run: a JVM starts and warms up for ten seconds of a core.

    Tables of tests are tiny: to compile code for each statement takes longer than to interpret it.
    Nightly runs compile it, and so do commands in processes of their own.
    """
    session = pytest.importorskip("spark_ingest.session")
    chosen = session.SparkSettings(cores=2, heap_mb=2048, brief=True)
    with session.spark_session(chosen) as started:
        started.conf.set("spark.sql.codegen.wholeStage", scaled("false", "true"))
        started.conf.set("spark.sql.codegen.factoryMode", scaled("NO_CODEGEN", "FALLBACK"))
        yield started

"""What all tests share: hypothesis without deadlines, the same in every run."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

# Two cores shared with Spark make any deadline flaky; derandomized examples make a failure ours.
settings.register_profile(
    "shedder",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shedder")


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

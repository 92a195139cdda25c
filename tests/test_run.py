"""A test run: its seed reaches every worker, hypothesis and the replay command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import scale, seeds

PROBE = """
import os
import secrets
import signal
import subprocess
import sys
import pytest
from hypothesis import given, strategies as st
from tests.scale import scaled
from tests.seeds import seed
from tests.truth import RUN_ALARM, gate

drawn = []

@given(st.integers(0, 10**9))
def test_draws(number):
    drawn.append(number)

@pytest.fixture(scope="module")
def of_module():
    return secrets.randbits(61)

def test_says_secrets_of_tests_and_of_fixtures(pytestconfig, of_module):
    own = secrets.randbits(61), secrets.randbits(61)
    secret = (pytestconfig.rootpath / "secret")
    drawn_before = eval(secret.read_text()) if secret.exists() else (of_module, own)
    assert (of_module, own) == drawn_before
    assert len({of_module, *own}) == 3
    secret.write_text(repr((of_module, own)))

def test_says_what_was_drawn(pytestconfig):
    assert gate(400, 0.95, RUN_ALARM) < gate(400, 0.95)
    said = pytestconfig.rootpath / f"said-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    names = sorted(name for name in os.environ if name in ("SHEDDER_SEED", "SHEDDER_SCALE"))
    said.write_text(repr((drawn, seed("probe"), scaled(1, 2), names)))

def test_commands_of_tests_can_be_interrupted():
    listens = "import signal; print(signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)"
    assert subprocess.check_output([sys.executable, "-c", listens], text=True) == "True\\n"

@pytest.mark.nightly
def test_of_nights():
    pass

def test_fails():
    assert not drawn
"""


def run(home: Path, *options: str, seed: int, size: str = "change") -> tuple[str, list[str]]:
    """Run the probe in its directory, as a background job; return what was printed and said.

    Returns:
      what pytest printed, and what each worker said.
    """
    (home / "conftest.py").write_text("from tests.conftest import *\n")
    (home / "pytest.ini").write_text("[pytest]\nmarkers = nightly: at night\n")
    (home / "test_probe.py").write_text(PROBE)
    for name in home.glob("said-*"):
        name.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--budget", *options],
        cwd=home,
        env=os.environ
        | {"PYTHONPATH": str(seeds.ROOT)}
        | {seeds.VARIABLE: str(seed), scale.VARIABLE: size},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    return done.stdout, [name.read_text() for name in sorted(home.glob("said-*"))]


@pytest.mark.slow
def test_a_seed_replays_a_run_and_another_seed_draws_other_examples(tmp_path):
    printed, (alone,) = run(tmp_path, seed=11)
    assert "seed of this run: SHEDDER_SEED=11\n" in printed
    assert "SHEDDER_SEED=11 .venv/bin/pytest 'test_probe.py::test_fails'" in printed
    assert "1 on seeds of the run: false alarm of the run <= 1e-08; 1 on literal" in printed
    assert "1 failed, 4 passed, 1 deselected" in printed
    assert alone.endswith(", 1, [])")  # Settings refuses unknown names in the environment.
    printed, workers = run(tmp_path, "-n1", "--dist=loadfile", seed=11)
    assert workers == [alone]
    assert "1 on seeds of the run: false alarm of the run <= 1e-08; 1 on literal" in printed
    printed, (other,) = run(tmp_path, seed=12, size="nightly")
    assert other.partition("]")[0] != alone.partition("]")[0]
    assert "SHEDDER_SEED=12 SHEDDER_SCALE=nightly .venv/bin/pytest" in printed
    assert "1 failed, 5 passed" in printed

"""Seeds of a test run: one base seed for each run, and seeds derived from it by name.

The base seed is `SHEDDER_SEED` if that is set. Otherwise it comes from the hash of the commit, so
each change has its own seeds, and a rerun of the change repeats these seeds. `make nightly` draws a
fresh base seed. pytest prints the base seed, and the command that replays a failed run.

A test takes its seeds from here if its assertion holds for every seed, or if CONTRIBUTING.md counts
the probability that it fails falsely. A test with an uncounted risk keeps a literal seed.

    @pytest.mark.parametrize("world", range(scaled(4, 40)))  # The ids are the same in every run.
    def test_every_world_recovers(world):
        rng = np.random.default_rng(seed("recovery", world))
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
VARIABLE = "SHEDDER_SEED"
WITHOUT_GIT = 20_261_126  # Base seed of a checkout without git: any fixed number.
BITS = 31  # Width of every seed: fits numpy, numba, hypothesis and a protobuf int32.


def base_seed(environment: Mapping[str, str]) -> int:
    """Return the base seed that this environment gives to a run."""
    given = environment.get(VARIABLE)
    return of_commit(ROOT) if given is None else int(given)


def of_commit(checkout: Path) -> int:
    """Return the base seed of the commit that is checked out here."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return WITHOUT_GIT if done.returncode else derived(0, done.stdout.strip())


def derived(base: int, *names: str | int) -> int:
    """Return the seed of these names: 0 <= seed < 2**31, the same in every process."""
    digest = hashlib.blake2b(repr((base, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - BITS)


# Read once: tests/conftest.py takes the variable out of the environment of tests.
BASE = base_seed(os.environ)


def seed(*names: str | int) -> int:
    """Return this run's seed of these names: the same for every test, worker and order."""
    return derived(BASE, *names)


def seeds(count: int, *names: str | int) -> list[int]:
    """Return `count` seeds of these names; a larger count begins with the same seeds."""
    return [seed(*names, turn) for turn in range(count)]

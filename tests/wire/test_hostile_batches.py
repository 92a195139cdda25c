"""Hostile bytes end in an error and in nothing else: no death of the process, no gigabytes.

The decoder runs in a process of its own, whose address space is limited, on bytes derived from
real payloads: bits flipped, pieces cut, doubled, swapped, numbers replaced by extreme ones. Each
process writes how far it got, so that a death names the input that caused it.
"""

import subprocess
import sys

import pytest

from tests.scale import scaled


def run_attack(seed: int, inputs: int) -> None:
    code = f"from tests.wire.hostile import attack; attack({seed}, {inputs})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False
    )
    last = done.stderr.strip().splitlines()[-5:]
    assert done.returncode == 0, f"seed {seed}: status {done.returncode}, at the end: {last}"
    assert int(done.stdout) > inputs * 0.3


@pytest.mark.slow
def test_hostile_bytes_end_in_errors():
    run_attack(seed=1, inputs=3_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_hostile_bytes_end_in_errors(seed):
    run_attack(seed, inputs=scaled(8_000, 25_000))

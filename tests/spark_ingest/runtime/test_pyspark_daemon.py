"""Workers that Spark does not need any more end without output."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from spark_ingest.runtime.pyspark_daemon import worker


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield ours, theirs


def test_a_worker_ends_without_a_word_when_spark_hangs_up(pair, capfd):
    ours, theirs = pair
    theirs.close()
    assert worker(ours, authenticated=True) != 0
    assert capfd.readouterr() == ("", "")


def test_a_worker_ends_without_a_word_when_spark_hangs_up_on_what_it_said(pair, capfd):
    ours, theirs = pair
    ours.sendall(b"something that nobody reads")
    theirs.close()
    assert worker(ours, authenticated=True) != 0
    assert capfd.readouterr() == ("", "")


WORKER = """
import socket, sys
from spark_ingest.runtime.pyspark_daemon import worker
sys.exit(worker(socket.socket(fileno=int(sys.argv[1])), authenticated=False))
"""


def test_what_comes_is_served_by_pyspark_from_its_first_byte(pair):
    """PySpark's worker reads a secret first, and refuses a caller with a wrong secret."""
    ours, theirs = pair
    theirs.sendall(framed("open barley"))
    ended = subprocess.run(
        [sys.executable, "-c", WORKER, str(ours.fileno())],
        check=False,
        pass_fds=[ours.fileno()],
        env=os.environ
        | {"PYTHON_WORKER_FACTORY_SECRET": "open sesame", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == 1
    assert theirs.recv(100) == framed("err")


def framed(text: str) -> bytes:
    """Return a text in PySpark's framing: the length, then the text."""
    return len(text).to_bytes(4, "big") + text.encode()

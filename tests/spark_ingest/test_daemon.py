"""Workers that nobody needs any more end without a word."""

from __future__ import annotations

import socket

import pytest

from spark_ingest.daemon import worker


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


def test_what_comes_is_served_by_pyspark_from_its_first_byte(pair, monkeypatch):
    ours, theirs = pair
    theirs.sendall(b"a task")

    def serve(sock, authenticated):
        assert authenticated
        return len(sock.recv(100))

    monkeypatch.setattr("spark_ingest.daemon._serve", serve)
    assert worker(ours, authenticated=True) == len(b"a task")

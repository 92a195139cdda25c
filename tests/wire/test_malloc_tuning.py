"""The heap is set up where that is possible, and nothing happens where it is not."""

import ctypes
import platform

from shedder.wire.malloc_tuning import keep_big_blocks


def test_glibc_takes_every_option():
    assert keep_big_blocks() == (platform.libc_ver()[0] == "glibc")


def test_a_libc_without_the_call_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert keep_big_blocks.__wrapped__() is False

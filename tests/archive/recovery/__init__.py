"""Tests of `shedder.archive.recovery`."""

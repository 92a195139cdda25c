"""Tests of `shedder.archive.runs`."""

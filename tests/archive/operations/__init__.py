"""Tests of `shedder.archive.operations`."""

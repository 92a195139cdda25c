"""Tests of `shedder.archive.tables`."""

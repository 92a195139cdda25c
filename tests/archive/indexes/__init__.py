"""Tests of `shedder.archive.indexes`."""

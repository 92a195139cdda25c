"""Tests of `shedder.archive.catalog`."""

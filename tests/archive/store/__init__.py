"""Tests of `shedder.archive.store`."""

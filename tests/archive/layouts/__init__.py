"""Tests of `shedder.archive.layouts`."""

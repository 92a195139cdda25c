"""Tests of `shedder.archive.sampling`."""

"""Tests of `shedder.archive.log`."""

"""Tests of `shedder.archive.exact`."""

"""Tests of `shedder.archive.reductions`."""

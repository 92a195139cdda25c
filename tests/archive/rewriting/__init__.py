"""Tests of `shedder.archive.rewriting`."""

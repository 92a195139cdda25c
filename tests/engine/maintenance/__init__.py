"""Tests of `shedder.engine.maintenance`."""

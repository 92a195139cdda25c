"""Tests of `shedder.engine.rebuild`."""

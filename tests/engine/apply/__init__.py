"""Tests of `shedder.engine.apply`."""

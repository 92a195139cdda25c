"""Tests of `shedder.engine.tables`."""

"""Tests of `shedder.engine.runtime`."""

"""Tests of `shedder.engine.load_shedding`."""

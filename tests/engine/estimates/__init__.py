"""Tests of `shedder.engine.estimates`."""

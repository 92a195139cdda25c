"""Tests of `shedder.engine.registration`."""

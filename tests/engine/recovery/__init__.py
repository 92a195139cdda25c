"""Tests of `shedder.engine.recovery`."""

"""Tests of `shedder.engine.administration`."""

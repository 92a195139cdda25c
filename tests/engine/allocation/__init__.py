"""Tests of `shedder.engine.allocation`."""

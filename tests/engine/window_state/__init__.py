"""Tests of `shedder.engine.window_state`."""

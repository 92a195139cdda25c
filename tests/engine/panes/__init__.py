"""Tests of `shedder.engine.panes`."""

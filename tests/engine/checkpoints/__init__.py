"""Tests of `shedder.engine.checkpoints`."""

"""Tests of `shedder.archive.tasks`."""

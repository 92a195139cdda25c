"""Tests of `shedder.archive.files`."""

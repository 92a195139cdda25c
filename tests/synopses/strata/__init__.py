"""Tests of `synopses.intervals`."""

"""Tests of `synopses.samples`."""

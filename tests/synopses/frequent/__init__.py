"""Tests of `synopses.frequent`."""

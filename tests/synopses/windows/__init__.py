"""Tests of `synopses.windows`."""

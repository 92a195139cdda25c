"""Tests of `synopses.moments`."""

"""Tests of `synopses.theta`."""

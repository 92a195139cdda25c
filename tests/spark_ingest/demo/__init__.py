"""Tests of the demos, of the flights that they load, and of what they print."""

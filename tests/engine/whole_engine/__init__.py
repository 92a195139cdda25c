"""Tests of a whole engine: random commands, failing system calls, clock jumps, many streams."""

"""Tests of a whole store under power loss, failing system calls, kills and unreadable files."""

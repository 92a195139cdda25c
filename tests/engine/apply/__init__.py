"""Apply."""

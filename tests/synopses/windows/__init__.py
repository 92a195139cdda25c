"""Windows."""

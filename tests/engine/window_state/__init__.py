"""Window state."""

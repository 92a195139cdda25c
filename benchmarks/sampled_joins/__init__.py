"""Cost of join aggregates with a sample of keys."""

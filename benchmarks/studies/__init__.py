"""Studies of errors and costs, and a soak; each writes its own page or none."""

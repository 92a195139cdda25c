"""Studies of errors, a model of costs, and a soak; each writes its own page or none."""

"""Studies of errors and a model of costs; each writes its own page or none."""

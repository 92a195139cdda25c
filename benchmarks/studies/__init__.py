"""Studies of errors and a model of costs: they write pages of their own, or none."""

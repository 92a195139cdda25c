"""How a run's tuples lie in its files, so that a share of them can be read: OSCAR's designs."""

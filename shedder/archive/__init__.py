"""The past: log, runs, catalog, and exact questions over them."""

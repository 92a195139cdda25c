"""Row queries that share operators, beside the same queries without sharing."""

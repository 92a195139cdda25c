"""One time queries."""

"""Load shedding."""

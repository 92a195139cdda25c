"""Overload: from load to a CPU budget to levels of thinning."""

"""Reductions: the functions (r-UDFs) that say how much of the archive a scan may leave unread."""

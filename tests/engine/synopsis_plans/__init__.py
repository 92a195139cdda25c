"""Synopsis plans."""

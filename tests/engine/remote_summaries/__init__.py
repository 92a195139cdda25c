"""Remote summaries."""

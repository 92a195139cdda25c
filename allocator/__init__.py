"""Who gets which bytes: pure arithmetic on arrays."""

"""Claims about speed, one file each, measured beside a named rival in the same run."""

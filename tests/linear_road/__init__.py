"""Linear Road in the engine against its rules."""

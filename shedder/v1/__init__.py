"""Generated from proto/shedder/v1 by proto/generate.py: do not edit."""

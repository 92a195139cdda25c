"""Sizes of joins in bounded bytes."""

"""Merges of adjacent panes for a sliding window, with few merges per slide.

The merges work on any object with a `merge` method.

Imports no other package of `synopses`.
"""

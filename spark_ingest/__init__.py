"""Spark as the judge: exact answers, accuracy reports, and the tour on real flights."""

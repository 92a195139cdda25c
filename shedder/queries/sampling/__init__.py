"""Evidence from uniform and stratified samples: one estimator for each aggregate.

The same estimators serve the live sample and partial reads of the archive.

May import: answers, evidence.
"""

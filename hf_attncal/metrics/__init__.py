"""Metrics, a file each on what they share in `base`, and the records of results.

`evaluate_modules` is what `evaluate.load` reads.
"""

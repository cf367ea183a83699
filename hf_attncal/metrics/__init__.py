"""Compute metrics, each in a file of its own on the parts of `base`, and record results.

`evaluate_modules` is what `evaluate.load` reads.
"""

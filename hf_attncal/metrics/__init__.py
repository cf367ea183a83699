"""Metrics of this package as modules for `evaluate`: one folder each, with a script of the same name."""

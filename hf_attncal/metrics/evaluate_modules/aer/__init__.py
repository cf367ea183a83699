"""The alignment error rate for `evaluate.load`."""

"""Modules for `evaluate.load`; each folder is one."""

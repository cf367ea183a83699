"""Figures with matplotlib: heat maps, lines, bars."""

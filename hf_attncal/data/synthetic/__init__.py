"""Data that are generated on the spot, with what is true of them."""

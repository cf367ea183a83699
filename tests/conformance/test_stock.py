"""Runs the suite on the stock classes of `stock_cases.py`."""

from stock_cases import StockBartTest, StockMarianTest  # noqa: F401

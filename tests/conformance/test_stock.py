"""Runs the suite on the stock classes of `stock_cases.py`; slow, as the suite runs on our classes in the same way."""

import pytest
from stock_cases import StockBartTest, StockMarianTest  # noqa: F401

pytestmark = pytest.mark.slow

"""A test that our classes skip has to be one that the stock classes skip too. The dearest run for few of them."""

import pytest
from testers import is_repetition, may_skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark repetitions as slow."""
    for item in items:
        if is_repetition(getattr(item, "cls", None), item.name):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Turn a skip into a failure where the test case names its `stock_test_case` and that one does run the test."""
    report = yield
    if report.skipped and hasattr(getattr(item, "cls", None), "stock_test_case") and not may_skip(item.cls, item.name):
        report.outcome = "failed"
        report.longrepr = f"{item.name} is skipped, which {item.cls.__name__} may not: {call.excinfo.value}"
    return report

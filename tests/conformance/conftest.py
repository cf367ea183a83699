"""A test that our classes skip must also be skipped by the stock classes. The slowest tests run for few classes.

Where transformers' own tests are not there, as in a clone in which `make conformance` has not run, all that need them
are left out, and the end of the report says so; where `CI` is set, that is an error.
"""

import os

import pytest
from fetch_upstream_tests import is_fetched, upstream_tests

FETCHED = is_fetched(upstream_tests())
if FETCHED or os.environ.get("CI"):
    from testers import is_repetition, may_skip
else:
    collect_ignore_glob = ["test_[!fp]*.py"]  # all but test_fetch.py and test_parents.py


def pytest_terminal_summary(terminalreporter) -> None:
    if not FETCHED:
        terminalreporter.write_line("transformers' own tests were left out: `make conformance` fetches them")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark repetitions as slow; and allow a warning where a test looks for it."""
    for item in items if FETCHED else ():
        if item.name == "test_bc_cache_name_forward":
            item.add_marker(pytest.mark.filterwarnings("default:`past_key_values` is deprecated:FutureWarning"))
        if is_repetition(getattr(item, "cls", None), item.name):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Turn a skip into a failure where the test case names its `stock_test_case` and that one does run the test."""
    report = yield
    ours = FETCHED and hasattr(getattr(item, "cls", None), "stock_test_case")
    if ours and report.skipped and not may_skip(item.cls, item.name):
        report.outcome = "failed"
        report.longrepr = f"{item.name} is skipped, which {item.cls.__name__} may not: {call.excinfo.value}"
    return report

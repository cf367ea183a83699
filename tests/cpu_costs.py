"""CPU time of tests: a run ends with a list of the slowest ones, and fails if one takes too large a share.

CPU seconds include the children that the process waited for. The limit is a share of the time of all tests, so that it
does not depend on the speed of the machine.
"""

import os
from collections.abc import Mapping

import pytest

MAX_SHARE = 0.03  # of all CPU seconds; about 30 seconds in a run of ten minutes on two cores
WHOLE_RUN = 5000  # minimum number of tests of a whole run
LISTED = 10


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children."""
    return sum(os.times()[:4])


def too_slow(seconds: Mapping[str, float], markers: str) -> list[str]:
    """Return the tests that took more than their share of a whole run without slow tests; none for other runs.

    Args:
        seconds: CPU seconds by test.
        markers: the option `-m` of the run.
    """
    if len(seconds) < WHOLE_RUN or "not slow" not in markers:
        return []
    limit = MAX_SHARE * sum(seconds.values())
    return [name for name, spent in seconds.items() if spent > limit]


def seconds_of(reporter) -> dict[str, float]:
    """Return the CPU seconds of each test that a terminal reporter has a report of."""
    seconds: dict[str, float] = {}
    reports = (report for group in reporter.stats.values() for report in group)
    for report in (report for report in reports if hasattr(report, "user_properties")):
        spent = dict(report.user_properties).get("cpu_seconds", 0.0)  # the report of the set-up has none yet
        seconds[report.nodeid] = max(seconds.get(report.nodeid, 0.0), spent)
    return seconds


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item):
    before = cpu_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", round(cpu_seconds() - before, 2)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and too_slow(seconds_of(reporter), session.config.option.markexpr):  # xdist workers have no reporter
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    seconds = seconds_of(terminalreporter)
    if len(seconds) < WHOLE_RUN:
        return
    total, over_limit = sum(seconds.values()), too_slow(seconds, config.option.markexpr)
    terminalreporter.section("slowest tests")
    for name in sorted(seconds, key=seconds.get, reverse=True)[:LISTED]:
        share = seconds[name] / total
        refused = f": more than {MAX_SHARE:.0%}, make it faster or mark it slow" if name in over_limit else ""
        terminalreporter.line(f"{seconds[name]:6.1f} s of CPU, {share:.1%}  {name}{refused}")
    terminalreporter.line(f"{total:6.0f} s of CPU, without shared fixtures")

"""What tests cost: the dearest are told at the end of a run, and one that costs too much of a whole run fails it.

Counted are seconds of the processor, of the process and of the children that it waited for. What one test may have is
a share of what all tests had, so that it is the same on a fast machine and on a slow one.
"""

import os
from collections.abc import Mapping

import pytest

MOST = 0.03  # of all seconds; of the ten minutes on two cores, 30 seconds of the processor
ENOUGH = 5000  # tests that make a whole run
TOLD = 10


def cpu_seconds() -> float:
    """Seconds of the processor that this process and its children had."""
    return sum(os.times()[:4])


def too_dear(seconds: Mapping[str, float], chosen: str) -> list[str]:
    """The tests that had more than their share of a whole usual run.

    Of a part of the tests there are none, nor where slow ones ran: `chosen` is what `-m` says.
    """
    if len(seconds) < ENOUGH or "not slow" not in chosen:
        return []
    limit = MOST * sum(seconds.values())
    return [name for name, spent in seconds.items() if spent > limit]


def seconds_of(reporter) -> dict[str, float]:
    """The seconds of each test that a terminal reporter has a report of."""
    seconds: dict[str, float] = {}
    for report in (report for of in reporter.stats.values() for report in of if hasattr(report, "user_properties")):
        spent = dict(report.user_properties).get("cpu_seconds", 0.0)  # not yet in that of the set-up
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
    if reporter and too_dear(seconds_of(reporter), session.config.option.markexpr):  # a worker of xdist has none
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    seconds = seconds_of(terminalreporter)
    if len(seconds) < ENOUGH:
        return
    whole, dear = sum(seconds.values()), too_dear(seconds, config.option.markexpr)
    terminalreporter.section("dearest tests")
    for name in sorted(seconds, key=seconds.get, reverse=True)[:TOLD]:
        share = seconds[name] / whole
        refused = f": more than {MOST:.0%}, make it cheaper or mark it slow" if name in dear else ""
        terminalreporter.line(f"{seconds[name]:6.1f} s of the processor, {share:.1%}  {name}{refused}")
    terminalreporter.line(f"{whole:6.0f} s of the processor, without what tests share")

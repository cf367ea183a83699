"""Signals and readers that leave: whole lines, the right status, and a next run that does its work."""

import pytest
import signals
from outcomes import bad


def test_some_signals(tmp_path):
    outcomes = signals.run(tmp_path, full=False)
    assert len(outcomes) == len(signals.SAMPLE)
    assert bad(outcomes) == []


@pytest.mark.slow
def test_every_signal(tmp_path):
    outcomes = signals.run(tmp_path, full=True)
    assert len(outcomes) == len(signals.STRUCK)
    assert bad(outcomes) == []


@pytest.mark.parametrize(
    ("status", "err", "written", "result"),
    [
        (130, "", b"", "refused"),
        (130, "", b"a\n", "refused"),
        (0, "", b"a\nbc\n", "survived"),
        (0, "", b"a\n", "wrong"),
        (130, "", b"a\nb", "lost"),
        (130, "", b"b\n", "lost"),
        (1, "attncal: error: what?", b"a\n", "lost"),
        (130, "Traceback (most recent call last):\nKeyboardInterrupt", b"a\n", "traceback"),
        (None, "", b"a\n", "hung"),
    ],
)
def test_what_is_made_of_an_end(status, err, written, result):
    assert signals.judge(err, status, "SIGINT", written, b"a\nbc\n")[0] == result


def test_what_was_read_and_is_not_in_the_output_is_lost():
    assert signals.judge("", 130, "SIGINT", b"a\n", b"a\nbc\n", read=3)[0] == "lost"

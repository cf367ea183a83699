"""Broken requests to `attncal show` are refused, and a server that says something or falls silent would be seen."""

import socket
import threading
from unittest import mock

from outcomes import bad, table
from served import BROKEN, FUZZED, LEFT, Request, run, sent, served, tried


def test_broken_requests(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert not bad(outcomes), bad(outcomes)
    rows = {row["kind"]: row for row in table(outcomes)}
    assert set(rows) == {BROKEN, LEFT, FUZZED}
    assert rows[BROKEN]["tried"] > 100
    assert rows[BROKEN]["survived"] > 10


def test_bad_ends_are_seen():
    with served() as place:
        assert tried(place, BROKEN, Request("", (place.get(),), (403,))).result == "wrong"
        with mock.patch.object(place.server, "answer", side_effect=RuntimeError):
            assert tried(place, BROKEN, Request("", (place.get(),), (500,))).result == "lost"
        place.said.write("Traceback")
        assert tried(place, BROKEN, Request("", (place.get(),), (200,))).result == "traceback"


def test_a_model_that_fails_is_told_and_the_next_question_answered():
    with served() as place:
        with mock.patch.object(place.server.live, "way", side_effect=RuntimeError("out of memory")):
            assert sent(place.server.port, Request("", (place.good(),))) == 500
        assert sent(place.server.port, Request("", (place.good(),))) == 200
        assert place.said.getvalue() == ""


def test_hundreds_of_half_sent_requests_hold_no_thread_and_nobody_up():
    with served(patience=30) as place:
        before = threading.active_count()
        half = [socket.create_connection(("127.0.0.1", place.server.port)) for _ in range(300)]
        for one in half:
            one.sendall(place.good()[:-1])
        assert sent(place.server.port, Request("", (place.good(),))) == 200
        assert threading.active_count() == before
        for one in half:
            one.sendall(place.good()[-1:])
        assert [one.recv(15) for one in half] == [b"HTTP/1.1 200 \r\n"] * 300
        for one in half:
            one.close()


def test_a_thousand_at_once_are_all_answered():
    with served(patience=60) as place:
        many = [socket.socket() for _ in range(1000)]
        for one in many:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", place.server.port))
        statuses = []
        for one in many:  # the others wait meanwhile
            one.settimeout(60)
            one.sendall(place.good())
            statuses.append(one.recv(12))
            one.close()
        assert statuses == [b"HTTP/1.1 200"] * 1000
        assert place.said.getvalue() == ""

"""Requests to `attncal show` that are broken, huge, half-sent or dropped: each is answered, and so is the next one.

The real server, over raw sockets, in front of a model that answers at once.
"""

import contextlib
import io
import logging
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from outcomes import Outcome

from hf_attncal.report import live_requests
from hf_attncal.report.live_server import LiveServer

BROKEN, LEFT, FUZZED = "requests to show", "requests to show, left halfway", "fuzzed requests to show"
PATIENCE = 0.4  # seconds that a request may take, in place of ten
REFUSED = (400, 403, 404, 405, 408, 413, 431)
LARGE = 3_000_000  # bytes of an answer
NAMES = (b"http://[::1", b"[::1", b"[", b"evil.example", b"\xff", b"127.0.0.1", b"x" * 9999, b"%00", b"a b")
ADDRESSES = (
    b"http://[::1",
    b"//[",
    b"*",
    b"",
    b"/%00",
    b"/" + b"a" * 60_000,
    b"/\x00",
    b"/ /",
    b"/?\xff",
    b"/?" + b"&" * 200,
)
ADDRESSES += (b"/?token=%ED%A0%80",)
SECRET_ADDRESSES = (b"http://[::1/?", b"/../../etc/passwd?", b"/x?", b"//evil.example/x?")
HEADERS = (
    b"no colon\r\n",
    b": no name\r\n",
    b"a b: c\r\n",
    b" folded: x\r\n",
    b"X: \x00\r\n",
    b"X: \x01\r\n",
    b"\xff: x\r\n",
)


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """All of them; `folder` is not used. Without `full`, a tenth of what is drawn at random."""
    rng = random.Random(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")))
    with served() as place:
        outcomes = [tried(place, BROKEN, case) for case in broken(place)]
        outcomes += [tried(place, LEFT, case) for case in left(place, rng, 100 if full else 10)]
        outcomes += [tried(place, FUZZED, case) for case in fuzzed(place, rng, 400 if full else 40)]
    return outcomes


# ---- the server ----


@dataclass
class Place:
    """A server that runs, and what was said on stderr, by a logger or by a thread that died."""

    server: LiveServer
    said: io.StringIO

    @property
    def host(self) -> bytes:
        return b"127.0.0.1:%d" % self.server.port

    def get(self, query: str | None = None) -> bytes:
        """A request of the page."""
        return b"GET /?%s HTTP/1.1\r\nHost: %s\r\n\r\n" % ((query or self.secret).encode("latin-1"), self.host)

    def post(self, body: bytes, path: bytes = b"/way", headers: bytes = b"", length: bytes | None = None) -> bytes:
        """A request with a body."""
        length = b"%d" % len(body) if length is None else length
        head = b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %s\r\n%s\r\n" % (path, self.host, length, headers)
        return head + body

    @property
    def secret(self) -> str:
        return f"token={self.server.token}"

    def good(self, text: bytes = b"a") -> bytes:
        """A request that is answered."""
        return self.post(b"%s&method=m&text=%s" % (self.secret.encode(), text))


def quick_model() -> SimpleNamespace:
    """A model that shows nothing of a pair, but much of it in a report."""
    from hf_attncal.report.figures.pair_view import PairView

    def view(line: str, method: str = "") -> PairView:
        return PairView(0, line, line, (), (), (), (), {})

    return SimpleNamespace(
        name="model",
        methods=("m",),
        example="",
        verdict=lambda lines=(): "no verdict",
        way=view,
        views=lambda lines, first=0: map(view, lines),
        write_report=lambda lines, path: Path(path).write_text("x" * LARGE, encoding="utf-8"),
    )


@contextlib.contextmanager
def served(patience: float = PATIENCE) -> Iterator[Place]:
    """Serve a quick model; nothing may be said by it."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(live_requests, "_SECONDS", patience))
        stack.enter_context(mock.patch.object(live_requests, "_CLOSING_SECONDS", patience))
        stack.enter_context(contextlib.redirect_stderr(said))
        stack.enter_context(mock.patch.object(threading, "excepthook", lambda args: said.write(str(args))))
        logging.getLogger("asyncio").addHandler(handler)
        stack.callback(logging.getLogger("asyncio").removeHandler, handler)
        server = stack.enter_context(LiveServer(quick_model()))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Place(server, said)
        server.shutdown()
        thread.join(10)


# ---- requests ----


@dataclass(frozen=True)
class Request:
    """What is sent, and what becomes of it.

    Args:
        case: what it is.
        parts: bytes, sent one after the other, with a pause between two.
        expected: statuses that are right; none where nobody waits for an answer.
        end: "read" the answer; "close" the connection, or "reset" it, without.
        pause: seconds.
    """

    case: str
    parts: tuple[bytes, ...]
    expected: tuple[int, ...] = (400,)
    end: str = "read"
    pause: float = 0.0


def broken(place: Place) -> Iterator[Request]:
    """Requests with one thing wrong, or unusual and right."""
    host, secret = place.host, place.secret.encode()
    page = b"GET /?" + secret
    yield Request("the page", (place.get(),), (200,))
    yield Request("a question", (place.good(),), (200,))
    yield Request("byte by byte", tuple(bytes([byte]) for byte in place.good()), (200,))
    yield Request("HTTP/1.0", (page + b" HTTP/1.0\r\nHost: " + host + b"\r\n\r\n",), (200,))
    yield Request("two at once", (place.good() + place.good(),), (200,))
    yield Request("its whole address", (place.get().replace(b" /", b" http://" + host + b"/"),), (200,))
    yield Request("HTTP/0.9", (b"GET /\r\n",), (400, 408))
    yield Request("no address", (b"GET\r\n\r\n",))
    yield Request("no host", (page + b" HTTP/1.1\r\n\r\n",))
    yield Request("two hosts", (page + b" HTTP/1.1\r\nHost: " + host + b"\r\nHost: evil.example\r\n\r\n",))
    for version in (b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.10", b"http/1.1", b"HTTP/-1", b"SIP/2.0"):
        yield Request(f"version {version.decode()}", (place.get().replace(b"HTTP/1.1", version),), (400, 403, 505))
    for name in NAMES:
        text = place.get().replace(b"Host: " + host, b"Host: " + name)
        yield Request(f"host {name[:20]!r}", (text,), (400, 403))
        text = place.post(secret + b"&text=a&method=m", headers=b"Origin: " + name + b"\r\n")
        yield Request(f"origin {name[:20]!r}", (text,), (200, 400))
        text = place.get("other=1").replace(b"\r\n\r\n", b"\r\nCookie: " + name + b"\r\n\r\n")
        yield Request(f"cookie {name[:20]!r}", (text,), (403, 400))
    for address in (*ADDRESSES, *(start + secret for start in SECRET_ADDRESSES)):
        text = b"GET " + address + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        yield Request(f"address {address[:20]!r}", (text,), REFUSED)
    for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "GE T", "G" * 99, "\xff"):
        text = place.get().replace(b"GET", method.encode("latin-1"), 1)
        yield Request(f"method {method[:9]!r}", (text,), (400, 405))
    yield Request("101 fields in the address", (place.get(place.secret + "&a=1" * 100),))
    yield Request("101 fields in the body", (place.post(secret + b"&a=1" * 100),))
    yield Request("99,999 fields", (place.post(b"a=1&" * 99_999),))
    for count, size in ((1, 70_000), (70, 1000), (5000, 20)):
        headers = b"".join(b"X-%d: %s\r\n" % (number, b"y" * size) for number in range(count))
        yield Request(f"{count} headers of {size} bytes", (place.post(b"", headers=headers),), (431,))
    yield Request("a first line without end", (b"GET /" + b"a" * 100_000,), (431,))
    for header in HEADERS:
        yield Request(f"header {header[:9]!r}", (place.post(b"", headers=header),), (400, 403))
    for length in (b"-1", b"+5", b"abc", b"", b"1e3", b"0x5", b"5, 6", b"9" * 5000, b"\xb2"):
        yield Request(f"length {length[:9]!r}", (place.post(b"", length=length),), (400, 413))
    for length in (b"1000001", b"99999999999999999999", b"18446744073709551617"):
        yield Request(f"length {length.decode()}", (place.post(b"", length=length),), (400, 413))
    yield Request("a body that is too long", (place.post(b"a" * 1_000_001),), (413,))
    yield Request("a body of 20 MB", (place.post(b"a" * 20_000_000),), (413,))
    yield Request("two lengths", (place.post(b"", headers=b"Content-Length: 5\r\n"),))

    def chunked(body: bytes, expected: tuple[int, ...], case: str) -> Request:
        head = b"POST /way HTTP/1.1\r\nHost: " + host + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        return Request(f"chunks: {case}", (head + body,), expected)

    text = secret + b"&text=a&method=m"
    whole = b"%x\r\n%s\r\n" % (len(text), text)
    yield chunked(whole + b"0\r\n\r\n", (200,), "one")
    yield chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n", (200,), "of a byte")
    yield chunked(whole + b"0\r\nX: y\r\n\r\n", (200,), "a trailer")
    yield chunked(b"zz\r\n", (400,), "no number")
    yield chunked(b"-1\r\n", (400,), "below 0")
    yield chunked(b"f" * 99 + b"\r\n", (400, 413), "a number without end")
    yield chunked(b"ffffffff\r\n" + b"a" * 1_100_000, (413,), "4 GB")
    yield chunked(b"5\r\nabcdefgh\r\n", (400,), "a wrong size")
    yield chunked((b"fffff\r\n" + b"a" * 0xFFFFF + b"\r\n") * 2, (413,), "two of 1 MB")
    yield Request(
        "chunks and a length", (place.post(whole, headers=b"Transfer-Encoding: chunked\r\n"),), (400, 403, 408)
    )
    yield Request("an unknown encoding", (place.post(b"", headers=b"Transfer-Encoding: gzip\r\n"),), (400, 403, 501))
    yield Request("100-continue", (place.post(text, headers=b"Expect: 100-continue\r\n"),), (100, 200))
    for body in (b"", b"=", b"&&&", b"\xff\xfe", b"%ED%A0%80", b"%", b"token", b"a" * 999_999, b"\x00" * 99):
        yield Request(f"body {body[:9]!r}", (place.post(body),), (403,))
    for text in (b"", b"%00", b"%ED%A0%80", b"%FF", b"a%0Ab", b"%E2%80%A8x", b"a" * 900_000):
        yield Request(f"text {text[:9]!r}", (place.good(text),), (200, 400))
    yield Request("TLS", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),))
    yield Request("HTTP/2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), (400, 505))
    yield Request("only empty lines", (b"\r\n" * 40,), (408, 400))


def left(place: Place, rng: random.Random, count: int) -> Iterator[Request]:
    """Requests whose sender stops, goes or hangs up, at any byte; and answers that nobody reads."""
    for number in range(count):
        text = rng.choice([place.get(), place.good(), place.good(b"a" * 5000)])
        cut = rng.randrange(len(text))
        end = ("close", "reset")[number % 2]
        yield Request(f"{end} after {cut} of {len(text)} bytes", (text[:cut],), (), end)
        yield Request(f"{end} in place of reading", (text,), (), end)
    report = place.post(place.secret.encode() + b"&text=a", b"/report")
    for end in ("close", "reset"):
        yield Request(f"a report of {LARGE} bytes, and {end}", (report,), (), end, pause=0.05)
    yield Request("nothing at all", (b"",), (408,))
    for cut in (1, 20, -1):
        yield Request(f"half-sent, up to byte {cut}", (place.good()[:cut],), (408,))
    yield Request(
        "a body that comes too slowly", tuple(bytes([byte]) for byte in place.good()[-60:]), (408, 400), pause=0.02
    )


def fuzzed(place: Place, rng: random.Random, count: int) -> Iterator[Request]:
    """Requests with some bytes changed, doubled or taken out; a few of them are right all the same."""
    for number in range(count):
        text = bytearray(rng.choice([place.get(), place.good(), place.post(b"text=a", headers=b"Accept: */*\r\n")]))
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            at = rng.randrange(len(text))
            kind = rng.randrange(4)
            if kind == 0:
                text[at] = rng.randrange(256)
            elif kind == 1:
                del text[at : at + rng.randrange(1, 9)]
            elif kind == 2:
                text[at:at] = rng.choice([b"\r\n", b"\x00", b"[", b"%", b"&", b": ", b"\xff", b"http://["])
            else:
                text[at:at] = text[at : at + rng.randrange(1, 40)]
        yield Request(f"fuzzed {number}", (bytes(text) + b"\r\n\r\n",), (200, *REFUSED, 501, 505))


# ---- what became of it ----


def tried(place: Place, kind: str, request: Request) -> Outcome:
    """Send a request, then a good one."""
    try:
        status = sent(place.server.port, request)
        after = sent(place.server.port, Request("after it", (place.good(),)))
    except TimeoutError:
        return Outcome(kind, request.case, "hung", "no answer in 20 seconds")
    said = place.said.getvalue()
    place.said.truncate(place.said.seek(0))
    if said:
        return Outcome(kind, request.case, "traceback", said)
    if after != 200:
        return Outcome(kind, request.case, "lost", f"the next request gets {after}")
    if request.expected and status not in request.expected:
        return Outcome(kind, request.case, "wrong", f"got {status}, not {request.expected}")
    return Outcome(kind, request.case, "survived" if status in (None, 100, 200) else "refused")


def sent(port: int, request: Request) -> int | None:
    """Send a request; return the status of its answer, None without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for part in request.parts:
                connection.sendall(part)
                if request.pause:
                    threading.Event().wait(request.pause)
        if request.end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if request.end != "read":
            return None
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(65536):
                answer += data
        first = answer.split(b" ", 2)
        return int(first[1]) if len(first) > 2 and first[1].isdigit() else None

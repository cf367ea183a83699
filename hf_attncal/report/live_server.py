"""Serve the live page of a model on this machine: a form, the answers, and a report to keep."""

import hmac
import secrets
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hf_attncal.figures.templates import FOLDER, environment

from .live import MOST_LINES, LiveModel

_MOST_BYTES = 1_000_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


class LiveServer(ThreadingHTTPServer):
    """Serves one model at `url`, which holds a token: who does not know it gets nothing.

    Args:
        live: the model.
        port: port on 127.0.0.1; 0 for any that is free.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, live: LiveModel, port: int = 0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.live = live
        self.token = secrets.token_urlsafe(16)
        self.lock = threading.Lock()  # one question at a time
        self.url = f"http://127.0.0.1:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if self._may(asked, "/"):
            self._page([], {}, "")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self._skip(int(length) if length.isdecimal() else 0)
            self._send(413, "text/plain", b"The text is too long.")
            return
        body = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        asked = parse_qs(body, max_num_fields=20_000)
        if not self._may(asked, "/", "/report"):
            return
        lines = _lines(asked, "text")
        if urlsplit(self.path).path == "/report":
            self._report(lines)
        else:
            same = _lines(asked, "shown") == lines  # words were ticked in these very lines
            self._page(lines, _taken(asked.get("taken", []), lines) if same else {}, "")

    def _skip(self, length: int) -> None:
        """Read a body that is too long and drop it, or the browser would tell of a broken connection."""
        left = min(length, 100 * _MOST_BYTES)
        while left > 0 and (read := self.rfile.read(min(left, 65536))):
            left -= len(read)

    def _may(self, asked: dict[str, list[str]], *paths: str) -> bool:
        """Refuse who does not know the token, and pages of other names that lead here."""
        known = hmac.compare_digest(asked.get("token", [""])[0].encode(), self.server.token.encode())
        named = self.headers.get("Host", "") in (
            f"127.0.0.1:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        )
        if not known or not named:
            self._send(403, "text/plain", b"Open the address that attncal show has printed.")
            return False
        if urlsplit(self.path).path not in paths:
            self._send(404, "text/plain", b"There is no such page.")
            return False
        return True

    def _page(self, lines: list[str], taken: dict[int, set[int]], failure: str) -> None:
        answers = []
        try:
            with self.server.lock:
                answers = self.server.live.answer(lines, taken) if lines else []
        except ValueError as error:
            failure = str(error)
        text = (
            environment()
            .get_template("live.html.jinja")
            .render(
                name=self.server.live.name,
                style=(FOLDER / "page.css").read_text(encoding="utf-8"),
                token=self.server.token,
                text="\n".join(lines),
                answers=answers,
                failure=failure,
                most=MOST_LINES,
                checks=self.server.live.checker is not None,
            )
        )
        self._send(200, "text/html; charset=utf-8", text.encode("utf-8", "replace"))

    def _report(self, lines: list[str]) -> None:
        try:
            with self.server.lock, tempfile.TemporaryDirectory() as place:
                path = Path(place, "report.html")
                self.server.live.write_report(lines[:MOST_LINES], path)
                page = path.read_bytes()
        except ValueError as error:
            self._page(lines, {}, str(error))
            return
        self._send(200, "text/html; charset=utf-8", page, policy=None)  # the page has a policy of its own

    def _send(self, status: int, kind: str, body: bytes, policy: str | None = _POLICY) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if policy is not None:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)


def _taken(values: list[str], lines: list[str]) -> dict[int, set[int]]:
    """Read `line:word` of the ticked words; what does not fit the lines is left out."""
    taken: dict[int, set[int]] = {}
    for value in values:
        line, _, word = value.partition(":")
        if line.isdecimal() and word.isdecimal() and int(line) < len(lines):
            taken.setdefault(int(line), set()).add(int(word))
    return {line: {word for word in words if word < len(lines[line].split())} for line, words in taken.items()}


def _lines(asked: dict[str, list[str]], field: str) -> list[str]:
    """Return the lines of a field without the empty ones; a browser ends them as it likes."""
    return [line.strip() for line in asked.get(field, [""])[0].splitlines() if line.strip()]

"""Serve the live page of a model on this machine: what its script asks, and a report to keep.

The page asks by POST, with the token in the body; answers are JSON, and errors are text with a status of their own.
"""

import hmac
import json
import re
import secrets
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hf_attncal.errors import CommandError
from hf_attncal.report.figures.page import browser_parts, packed_text
from hf_attncal.report.figures.pair_view import PairView
from hf_attncal.report.figures.templates import display, report_templates

from .live import MOST_LINES, LiveModel, given_target

_MOST_BYTES = 1_000_000
_POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


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

    @classmethod
    def serve(cls, live: LiveModel, port: int = 0) -> None:
        """Print the address of a model's page, and serve it until Ctrl-C.

        Raises:
            CommandError: the port cannot be used.
        """
        try:
            server = cls(live, port)
        except OSError as error:
            raise CommandError(f"--port {port} cannot be used: {error.strerror}.") from error
        with server:
            print(f"{server.url}\nCtrl-C ends it.", flush=True)
            server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        token = parse_qs(urlsplit(self.path).query).get("token") or [self._cookie()]
        if not self._may(token[0], "/"):
            return
        live = self.server.live
        methods = [{"name": name, "label": display(name)} for name in live.methods]
        parts = browser_parts(live=True)
        told = {"token": self.server.token, "most": MOST_LINES, "methods": methods}
        text = report_templates().get_template("live.html.jinja").render(name=live.name, told=told, **parts)
        # The cookie opens links without the token in them, in this browser. It only ever opens the page.
        cookie = {"Set-Cookie": f"{self._cookie_name()}={self.server.token}; HttpOnly; SameSite=Lax; Path=/"}
        policy = {"Content-Security-Policy": _POLICY.format(parts["script_hash"])}
        self._send(200, "text/html; charset=utf-8", text.encode("utf-8", "replace"), cookie | policy)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self._skip(int(length) if length.isdecimal() else 0)
            self._send(413, "text/plain", b"The text is too long.")
            return
        body = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        asked = {name: values[0] for name, values in parse_qs(body, max_num_fields=100).items()}
        answers = {"/answers": self._answers, "/way": self._way, "/without": self._without, "/report": self._report}
        if not self._may(asked.get("token", ""), *answers):
            return
        lines = [line.strip() for line in asked.get("text", "").splitlines() if line.strip()]
        try:
            with self.server.lock:
                kind, found = answers[urlsplit(self.path).path](lines, asked)
        except ValueError as error:
            self._send(400, "text/plain; charset=utf-8", str(error).encode("utf-8", "replace"))
            return
        self._send(200, kind, found)

    def _answers(self, lines: Sequence[str], asked: dict[str, str]) -> tuple[str, bytes]:
        """Answer lines, the first of which is number `first` of the text."""
        views = self.server.live.views(lines, first=_numbers(asked.get("first", "0"))[0])
        found = [_as_json(view, given_target(line)[1] is not None) for line, view in zip(lines, views, strict=True)]
        return _json(found)

    def _way(self, lines: Sequence[str], asked: dict[str, str]) -> tuple[str, bytes]:
        """Look at a pair in one more way."""
        return _json(_as_json(self.server.live.way(_one(lines), asked.get("method", "")), True))

    def _without(self, lines: Sequence[str], asked: dict[str, str]) -> tuple[str, bytes]:
        """Say what changes without the words `taken`, numbers with commas."""
        return _json(asdict(self.server.live.without(_one(lines), _numbers(asked.get("taken", "")))))

    def _skip(self, length: int) -> None:
        """Read a body that is too long and drop it, or the browser would tell of a broken connection."""
        left = min(length, 100 * _MOST_BYTES)
        while left > 0 and (read := self.rfile.read(min(left, 65536))):
            left -= len(read)

    def _cookie_name(self) -> str:
        return f"attncal-{self.server.server_port}"  # browsers keep the cookies of all ports together

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie_name())
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _may(self, token: str, *paths: str) -> bool:
        """Refuse who does not know the token, and pages of other names that lead here."""
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
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

    def _report(self, lines: Sequence[str], asked: dict[str, str]) -> tuple[str, bytes]:
        """Write the page to keep."""
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "report.html")
            self.server.live.write_report(lines, path)
            return "text/html; charset=utf-8", path.read_bytes()  # the page has a policy of its own

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _json(found: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(found).encode()


def _as_json(view: PairView, given: bool) -> dict[str, object]:
    """Return a pair as the page has it; `given`: its target was not written by the model."""
    known, weights = packed_text(view)
    return {"known": known | {"given": given}, "weights": weights}


def _one(lines: Sequence[str]) -> str:
    if len(lines) != 1:
        raise ValueError(f"`text` must be one line, got {len(lines)}.")
    return lines[0]


def _numbers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6}){0,999}", text, re.ASCII):
        raise ValueError(f"Numbers must stand with commas between them, got {text[:100]!r}.")
    return [int(number) for number in text.split(",")]

"""Serve the live page of a model on this machine: what its script asks, and a report to keep.

The page asks by POST, with the token in the body; answers are JSON, and errors are text with a status of their own.
How requests arrive is in `live_requests.py`.
"""

import hmac
import json
import re
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hf_attncal.io.errors import CommandError
from hf_attncal.report.figures.page import browser_parts, packed_text
from hf_attncal.report.figures.pair_view import PairView
from hf_attncal.report.figures.templates import display, report_templates

from .live import MOST_LINES, LiveModel, given_target
from .live_requests import Reply, Request, RequestServer

_MOST_FIELDS = 100
_PLAIN = "text/plain; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class LiveServer(RequestServer):
    """Serves one model at `url`, which holds a token: who does not know it gets nothing.

    Args:
        live: the model.
        port: port on 127.0.0.1; 0 for any that is free.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, live: LiveModel, port: int = 0):
        super().__init__(port)
        self.live = live
        self.token = secrets.token_urlsafe(16)
        self.url = f"http://127.0.0.1:{self.port}/?token={self.token}"

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

    def answer(self, request: Request) -> Reply:
        """Answer a request, and ask the model for what it needs; whoever does not know the token learns nothing."""
        answers = {
            "/answers": self._answers,
            "/verdict": lambda lines, asked: _json(self.live.verdict(lines).to_dict()),
            "/way": self._way,
            "/without": self._without,
            "/report": self._report,
        }
        get, text = request.method == "GET", request.body.decode("utf-8", errors="replace")
        if not get and request.method != "POST":
            return _told(405, "Ask by GET or POST.")
        try:
            address = urlsplit(request.target)
            asked = parse_qs(address.query if get else text, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            return _told(400, f"The request cannot be read: {error}.")
        fields = {name: values[0] for name, values in asked.items()}
        token = fields.get("token", self._cookie(request) if get else "")
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        if not known or request.header("host") not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return _told(403, "Open the address that attncal show has printed.")
        if address.path not in ("/" if get else answers):
            return _told(404, "There is no such page.")
        if get:
            return self._page()
        lines = [line.strip() for line in fields.get("text", "").splitlines() if line.strip()]
        try:
            return answers[address.path](lines, fields)
        except ValueError as error:
            return _told(400, str(error))

    def _page(self) -> Reply:
        methods = [{"name": name, "label": display(name)} for name in self.live.methods]
        parts = browser_parts(live=True)
        told = {"token": self.token, "most": MOST_LINES, "methods": methods, "example": self.live.example}
        page = report_templates().get_template("live.html.jinja")
        shown = {"name": self.live.name, "verdict": self.live.verdict(), "example": self.live.example}
        text = page.render(**shown, told=told, **parts)
        # The cookie opens links without the token in them, in this browser. It only ever opens the page.
        cookie = {"Set-Cookie": f"{self._cookie_name()}={self.token}; HttpOnly; SameSite=Lax; Path=/"}
        policy = {"Content-Security-Policy": _POLICY.format(parts["script_hash"])}
        return Reply(200, "text/html; charset=utf-8", text.encode("utf-8", "replace"), cookie | policy)

    def _answers(self, lines: Sequence[str], asked: dict[str, str]) -> Reply:
        """Answer lines, the first of which is number `first` of the text."""
        views = self.live.views(lines, first=_numbers(asked.get("first", "0"))[0])
        found = [_as_json(view, given_target(line)[1] is not None) for line, view in zip(lines, views, strict=True)]
        return _json(found)

    def _way(self, lines: Sequence[str], asked: dict[str, str]) -> Reply:
        """Look at a pair in one more way."""
        return _json(_as_json(self.live.way(_one(lines), asked.get("method", "")), True))

    def _without(self, lines: Sequence[str], asked: dict[str, str]) -> Reply:
        """Say what changes without the words `taken`, numbers with commas."""
        return _json(asdict(self.live.without(_one(lines), _numbers(asked.get("taken", "")))))

    def _report(self, lines: Sequence[str], asked: dict[str, str]) -> Reply:
        """Write the page to keep."""
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "report.html")
            self.live.write_report(lines, path)
            return Reply(200, "text/html; charset=utf-8", path.read_bytes())  # the page has a policy of its own

    def _cookie_name(self) -> str:
        return f"attncal-{self.port}"  # browsers keep the cookies of all ports together

    def _cookie(self, request: Request) -> str:
        try:
            found = SimpleCookie(request.header("cookie")).get(self._cookie_name())
        except CookieError:
            return ""
        return "" if found is None else found.value


def _told(status: int, text: str) -> Reply:
    return Reply(status, _PLAIN, text.encode("utf-8", "replace"))


def _json(found: object) -> Reply:
    return Reply(200, "application/json", json.dumps(found).encode())


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

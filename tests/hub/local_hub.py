"""A Hub for tests on 127.0.0.1: what `huggingface_hub` asks to publish and to load, in memory, without LFS storage.

`faults` of a server make answers fail: a request whose path holds the key is answered by the status, so many times. In
place of a status, "stalls" never answers, "done, stalls" only after it has done what was asked, "breaks off" ends the
connection in the middle of the answer, and "trickles" sends it in small parts.
"""

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".png", ".model", ".spm")
_EMPTY_COMMIT = "0" * 40


@dataclass
class Repository:
    """A repository: its commits in order, each with all files."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=lambda: {_EMPTY_COMMIT: {}})
    messages: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        return next(reversed(self.commits))

    def files(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.head if revision in ("main", "") else revision)


class Hub(ThreadingHTTPServer):
    """The server; `with Hub() as hub:` serves at `hub.url`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}  # what LFS holds, by SHA-256
        self.faults: dict[
            str, list[int | str | None]
        ] = {}  # part of "METHOD path" -> statuses to come; None: as it should be
        self.before_commit = lambda: None
        self.uploads_go_on = threading.Event()  # an upload waits for it, so that a test can stop its sender
        self.uploads_go_on.set()
        self.stopped = threading.Event()
        self.requests: list[str] = []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.stopped.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers to one request."""

    protocol_version = "HTTP/1.1"
    server: Hub
    link: str | None = None  # what is wrong with it during this request

    def log_message(self, *_):
        pass

    def answer(self, status: int, content=b"", **headers: str) -> None:
        if self.link == "done, stalls":
            self.stall()
            return
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers.setdefault("Content-Type", "application/json")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content-Length" not in {name.replace("_", "-") for name in headers}:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.link == "breaks off":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        part = max(1, len(content) // 20) if self.link == "trickles" else max(1, len(content))
        for begin in range(0, len(content), part):
            self.wfile.write(content[begin : begin + part])
            if self.link:
                time.sleep(0.01)

    def handle_request(self) -> None:
        path = unquote(urlsplit(self.path).path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self.read_chunks()
        asked = f"{self.command} {path}"
        self.server.requests.append(asked)
        if self.command == "PUT":
            self.server.uploads_go_on.wait(60)
        self.link = None
        for part, statuses in self.server.faults.items():
            if part in asked and statuses and (fault := statuses.pop(0)) is not None:
                if fault == "stalls":
                    self.stall()
                    return
                if isinstance(fault, int):
                    self.answer(fault, {"error": "a fault of the test"})
                    return
                self.link = fault
        for pattern, method in ROUTES:
            if found := re.fullmatch(pattern, asked):
                method(self, body, *found.groups())
                return
        self.answer(404, {"error": "not found"}, X_Error_Code="RepoNotFound")

    def stall(self) -> None:
        """Say nothing until the server stops."""
        self.close_connection = True
        self.server.stopped.wait(60)

    def read_chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    do_GET = do_POST = do_PUT = do_HEAD = handle_request

    # ---- answers ----

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.server.repositories:
            self.answer(409, {"error": "it exists", "url": f"{self.server.url}/{name}"})
            return
        self.server.repositories[name] = Repository(asked.get("visibility") == "private")
        self.answer(200, {"url": f"{self.server.url}/{name}"})

    def validate(self, body: bytes) -> None:
        front = json.loads(body)["content"].split("---")[1]
        errors = [] if ":" in front else [{"message": "no metadata"}]
        self.answer(200 if not errors else 400, {"errors": errors, "warnings": []})

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        repository = self.repository(name)
        if repository is None:
            return
        present = repository.files(revision) or {}
        answers = []
        for file in json.loads(body)["files"]:
            large = file["path"].endswith(LARGE)
            content = present.get(file["path"])
            known = None if content is None else sha256(content) if large else git_hash(content)
            mode = "lfs" if large else "regular"
            answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": known})
        self.answer(200, {"files": answers})

    def batch(self, body: bytes, _name: str) -> None:
        objects = []
        for asked in json.loads(body)["objects"]:
            told = {"oid": asked["oid"], "size": asked["size"]}
            if asked["oid"] not in self.server.stored:
                told["actions"] = {"upload": {"href": f"{self.server.url}/store/{asked['oid']}"}}
            objects.append(told)
        self.answer(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def store(self, body: bytes, oid: str) -> None:
        if sha256(body) != oid:
            self.answer(400, {"error": "another checksum"})
            return
        self.server.stored[oid] = body
        self.answer(200)

    def commit(self, body: bytes, name: str, revision: str) -> None:
        repository = self.repository(name)
        if repository is None:
            return
        self.server.before_commit()
        files = dict(repository.files(revision))
        header, *operations = map(json.loads, body.splitlines())
        if header["value"].get("parentCommit") not in (None, repository.head):
            self.answer(412, {"error": "A commit has happened since."})
            return
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.server.stored[value["oid"]]
            else:
                del files[value["path"]]
        parts = [repository.head, *(f"{path} {sha256(content)}" for path, content in sorted(files.items()))]
        oid = hashlib.sha1("\n".join(parts).encode()).hexdigest()
        repository.commits[oid] = files
        repository.messages.append(header["value"]["summary"])
        self.answer(200, {"commitUrl": f"{self.server.url}/{name}/commit/{oid}", "commitOid": oid})

    def info(self, _body: bytes, name: str, revision: str | None) -> None:
        repository = self.repository(name)
        if repository is None:
            return
        files = repository.files(revision or "main")
        if files is None:
            self.answer(404, {"error": "no such revision"}, X_Error_Code="RevisionNotFound")
            return
        sha = repository.head if revision in (None, "main") else revision
        siblings = [{"rfilename": path} for path in files]
        told = {"id": name, "sha": sha, "private": repository.private, "siblings": siblings}
        self.answer(200, told)

    def tree(self, _body: bytes, name: str, revision: str, folder: str | None) -> None:
        repository = self.repository(name)
        if repository is None:
            return
        files = repository.files(revision)
        inside = {path: content for path, content in (files or {}).items() if path.startswith(folder or "")}
        if files is None or (folder and not inside):
            self.answer(404, {"error": "no such place"}, X_Error_Code="EntryNotFound")
            return
        entries = []
        for path, content in inside.items():
            entry = {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}
            if path.endswith(LARGE):
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        self.answer(200, entries)

    def resolve(self, _body: bytes, name: str, revision: str, path: str) -> None:
        repository = self.repository(name)
        if repository is None:
            return
        files = repository.files(revision)
        if files is None or path not in files:
            code = "RevisionNotFound" if files is None else "EntryNotFound"
            self.answer(404, {"error": "no such file"}, X_Error_Code=code)
            return
        content = files[path]
        sha = repository.head if revision == "main" else revision
        headers = {"X_Repo_Commit": sha, "ETag": f'"{git_hash(content)}"', "Content_Length": str(len(content))}
        if path.endswith(LARGE):
            headers |= {"X_Linked_Etag": f'"{sha256(content)}"', "X_Linked_Size": str(len(content))}
        self.answer(200, content, **headers)

    def repository(self, name: str) -> Repository | None:
        found = self.server.repositories.get(name)
        if found is None:
            self.answer(404, {"error": "no such repository"}, X_Error_Code="RepoNotFound")
        return found


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = (
    (r"POST /api/repos/create", Handler.create),
    (r"POST /api/validate-yaml", Handler.validate),
    (rf"POST /api/models/{_NAME}/preupload/([^/]+)", Handler.preupload),
    (rf"POST /{_NAME}\.git/info/lfs/objects/batch", Handler.batch),
    (r"PUT /store/(\w+)", Handler.store),
    (rf"POST /api/models/{_NAME}/commit/([^/]+)", Handler.commit),
    (rf"GET /api/models/{_NAME}(?:/revision/([^/]+))?", Handler.info),
    (rf"GET /api/models/{_NAME}/tree/([^/]+)(?:/(.+))?", Handler.tree),
    (rf"(?:GET|HEAD) /{_NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
)

"""Requests over HTTP on this machine, as they come: half-sent, huge, broken or a thousand at once.

One thread reads all connections and writes to them (asyncio, with h11 as the parser), one more answers, a request at a
time. So what is half-sent holds neither. Each connection has one request and is closed after its answer.
"""

import asyncio
import queue
import resource
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace

import h11

MOST_BYTES = 1_000_000  # of a body
_MOST_HEADERS = 64_000  # bytes of the first line and all headers
_SECONDS = 10.0  # for a request to arrive
_SENDING_SECONDS = 60.0  # for an answer to leave
_CLOSING_SECONDS = 2.0  # for the other side to close, too
_MOST_DROPPED = 100 * MOST_BYTES  # of what is sent beyond a limit: a browser that is cut off there shows no answer
_BACKLOG = 1024  # connections that wait to be accepted
_CONNECTIONS, _OTHER_FILES = 500, 100  # open at once at most; and files that are left for others


@dataclass(frozen=True)
class Request:
    """A request as it came.

    Args:
        method, target: of its first line.
        headers: by name in lower case; of the same name, the last.
        body: without its encoding of transfer.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Return the value of a header, "" if it is not there."""
        return self.headers.get(name, "")


@dataclass(frozen=True)
class Reply:
    """What is sent back: a status of HTTP, the type of the body, the body, and headers besides."""

    status: int
    kind: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class RequestServer:
    """Answers requests at a port of 127.0.0.1; a subclass says how.

    Args:
        port: 0 for any that is free.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int = 0):
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._asked: queue.SimpleQueue[tuple[Future, Request] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()

    def answer(self, request: Request) -> Reply:
        """Answer a request; called by one thread, one request after the other."""
        raise NotImplementedError

    def __enter__(self) -> "RequestServer":
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()

    def serve_forever(self) -> None:
        """Serve until `shutdown`, or Ctrl-C."""
        # A thread that is in the middle of an answer does not keep a process that was interrupted.
        threading.Thread(target=self._work, daemon=True).start()
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve())
        self._asked.put(None)

    def shutdown(self) -> None:
        """End `serve_forever`, from another thread."""
        self._begun.wait()
        self._loop.call_soon_threadsafe(self._task.cancel)

    def _work(self) -> None:
        """Answer what was asked, in the order in which it came."""
        while (asked := self._asked.get()) is not None:
            future, request = asked
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self.answer(request))
                except BaseException as error:
                    future.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        places = asyncio.Semaphore(max(1, min(_CONNECTIONS, files - _OTHER_FILES)))
        async with asyncio.TaskGroup() as connections:
            while True:
                await places.acquire()
                try:
                    connection, _ = await self._loop.sock_accept(self._listener)
                except OSError:  # it has gone already, or there are too many open files
                    places.release()
                    await asyncio.sleep(0.1)
                    continue
                connections.create_task(self._served(connection)).add_done_callback(lambda _: places.release())

    async def _served(self, connection: socket.socket) -> None:
        """Read a request, answer it, and close its connection; who has gone or does not go on is left alone."""
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADERS)
        with connection:
            connection.setblocking(False)
            with suppress(OSError, TimeoutError, h11.LocalProtocolError):
                try:
                    async with asyncio.timeout(_SECONDS):
                        request = await self._read(connection, protocol)
                    if request is None:
                        return
                    future: Future[Reply] = Future()
                    self._asked.put((future, request))
                    answer = await asyncio.wrap_future(future)
                    if request.method == "HEAD":
                        answer = replace(answer, body=b"")
                except h11.RemoteProtocolError as error:
                    answer = _refused(error.error_status_hint, f"This is no request of HTTP: {error}.")
                except _RefusedError as error:
                    answer = _refused(*error.args)
                except TimeoutError:
                    answer = _refused(408, f"The request did not arrive in {_SECONDS:.0f} seconds.")
                except Exception as error:  # of the model, on odd text or without memory: the next one may go well
                    answer = _refused(500, f"This cannot be answered: {type(error).__name__}: {error}")
                async with asyncio.timeout(_SENDING_SECONDS):
                    await self._loop.sock_sendall(connection, _sent(protocol, answer))
                    connection.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(_CLOSING_SECONDS):  # closed with something unread, it takes the answer back
                    dropped = 0
                    while dropped < _MOST_DROPPED and (data := await self._loop.sock_recv(connection, 65536)):
                        dropped += len(data)

    async def _read(self, connection: socket.socket, protocol: h11.Connection) -> Request | None:
        """Return a request; None if the other side has gone before it was whole.

        Raises:
            h11.RemoteProtocolError: what came is no request.
            _RefusedError: its body is too long, or its version another one.
        """
        head, body = None, bytearray()
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                if protocol.they_are_waiting_for_100_continue:
                    going_on = h11.InformationalResponse(status_code=100, headers=[])
                    await self._loop.sock_sendall(connection, protocol.send(going_on))
                protocol.receive_data(await self._loop.sock_recv(connection, 65536))
            elif isinstance(event, h11.Request):
                head = event
                if event.http_version not in (b"1.0", b"1.1"):
                    raise _RefusedError(505, "Ask by HTTP/1.1.")
                if any(int(value) > MOST_BYTES for name, value in event.headers if name == b"content-length"):
                    raise _RefusedError(413, "The text is too long.")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_BYTES:
                    raise _RefusedError(413, "The text is too long.")
            elif isinstance(event, h11.EndOfMessage):
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                return Request(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, bytes(body))
            else:
                return None


class _RefusedError(Exception):
    """Status and text of an answer."""


def _refused(status: int, text: str) -> Reply:
    return Reply(status, "text/plain; charset=utf-8", text.encode("utf-8", "replace"))


def _sent(protocol: h11.Connection, answer: Reply) -> bytes:
    """Return the bytes of an answer."""
    headers = {
        "Content-Type": answer.kind,
        "Content-Length": str(len(answer.body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        **answer.headers,
    }
    response = h11.Response(status_code=answer.status, headers=list(headers.items()))
    return b"".join(map(protocol.send, (response, h11.Data(data=answer.body), h11.EndOfMessage())))

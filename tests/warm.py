"""Python processes with torch, transformers and this package already imported: a server forks them in milliseconds.

`warm(command)` returns the command to start instead of `[sys.executable, ...]`. It is a separate process with the
streams, folder, environment, limits and signals of its caller, but its imports were done before. It therefore cannot
test the start of Python or of a library. With ATTNCAL_COLD=1, every process starts Python.

    python warm.py serve ADDRESS KIND    the server, which ends with its standard input
    python warm.py run ADDRESS ...       the client: lends its streams, passes signals on, and ends as the child does
"""

import array
import atexit
import builtins
import functools
import gc
import importlib
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Imports of running jobs, and classes that transformers imports lazily. "bare" processes do not import this package.
PRELOADED = {
    "torch": ("torch",),
    "bare": (
        "accelerate",
        "datasets",
        "peft",
        "torch.optim.lr_scheduler",
        "transformers.data.data_collator",
        "transformers.generation",
        "transformers.models.bart.modeling_bart",
        "transformers.models.marian.modeling_marian",
        "transformers.models.marian.tokenization_marian",
        "transformers.trainer_seq2seq",
    ),
    "package": (
        "sacrebleu",
        "hf_attncal.adapters",
        "hf_attncal.alignment.aligner_job",
        "hf_attncal.commands.align",
        "hf_attncal.commands.align_annotated",
        "hf_attncal.commands.align_train",
        "hf_attncal.commands.app",
        "hf_attncal.commands.summarize",
        "hf_attncal.commands.translate",
        "hf_attncal.io.errors",
        "hf_attncal.training.adapter",
        "hf_attncal.training.summarization",
        "hf_attncal.training.seq2seq",
    ),
}
LENGTH = 8  # bytes of a message's length, which precedes it


def preload(kind: str = "package") -> None:
    """Import the modules of commands before a fork."""
    for one, names in PRELOADED.items():
        for name in names:
            importlib.import_module(name)
        if one == kind:
            break
    import torch

    torch.set_num_threads(1)


def warm(command: list, kind: str = "package") -> list[str]:
    """Return a command equivalent to `[sys.executable, ...]` followed by `-m`, `-c`, a script, or -W ACTION."""
    python, *rest = map(str, command)
    assert python == sys.executable
    if os.environ.get("ATTNCAL_COLD"):
        return [python, *rest]
    return [python, "-S", "-E", __file__, "run", server(kind), *rest]


@functools.cache
def warm_python(kind: str = "bare") -> str:
    """Return a program to replace `sys.executable` in code that starts it."""
    program = Path(server(kind)).with_name("python")
    start = f'exec "{sys.executable}" -S -E "{__file__}" run "{server(kind)}" "$@"'
    program.write_text(f"#!/bin/sh\n{start}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@functools.cache
def server(kind: str) -> str:
    """Return the address of this process's server, which is started at the first call."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    address = os.path.join(folder.name, "socket")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, __file__, "serve", address, kind]
    if kind == "package":
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    if kind != "torch":  # forked from a server that has imported less
        command = warm(command, {"bare": "torch", "package": "bare"}[kind])
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        process.stdin.close()
        process.wait()
        process.stdout.close()
        folder.cleanup()

    atexit.register(end)
    assert process.stdout.readline() == b"ready\n"
    return address


# ---- the server ----


def serve(address: str, kind: str) -> list[str]:
    """Fork a child for each client; the function returns only in the children, with their arguments."""
    preload(kind)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, b"ready\n")
    clients: dict[socket.socket, int] = {}
    while True:
        ready, _, _ = select.select([0, listener, woken, *clients], [], [])
        for one in ready:
            if one == 0:
                for child in clients.values():
                    os.kill(child, signal.SIGKILL)
                os._exit(0)
            elif one == woken:
                os.read(woken, 1024)
            elif one is listener:
                client, _ = listener.accept()
                request, streams = received(client)
                if not (child := os.fork()):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for file in (woken, wakes):
                        os.close(file)
                    for other in (listener, *clients):
                        other.close()
                    become(request, streams)
                    send(client, {"child": os.getpid()})  # from now on it can get signals
                    client.close()
                    return request["arguments"]
                for stream in streams:
                    os.close(stream)
                clients[client] = child
            elif child := clients.pop(one, 0):  # the client was killed
                os.kill(child, signal.SIGKILL)
                one.close()
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not child:
                break
            for client in [client for client, number in clients.items() if number == child]:
                send(client, {"status": os.waitstatus_to_exitcode(status)})
                client.close()
                del clients[client]


def become(request: dict, streams: list[int]) -> None:
    """Take the place of the client: its streams, folder, environment, limits and signals."""
    os.setsid()
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for limit, values in request["limits"].items():
        resource.setrlimit(int(limit), values)
    for number in range(3):
        os.close(number)
    for number, stream in zip(request["open"], streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    for name in ("transformers.utils.hub", "transformers.dynamic_module_utils"):  # which read it when imported
        if "HF_MODULES_CACHE" in os.environ and name in sys.modules:
            sys.modules[name].HF_MODULES_CACHE = os.environ["HF_MODULES_CACHE"]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    for number, (name, mode) in enumerate((("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))):
        file = None
        if number in request["open"]:
            binary = open(number, mode, buffering=0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
            kept = errors or ("backslashreplace" if number == 2 else "strict")
            file = io.TextIOWrapper(
                binary, encoding or "utf-8", kept, line_buffering=number == 2, write_through=unbuffered
            )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def execute(arguments: list[str]) -> None:
    """Run the arguments as Python would."""
    first, *rest = arguments
    if first == "-I":
        return execute_here(rest)
    path = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
    execute_here(arguments)


def execute_here(arguments: list[str]) -> None:
    """Run the arguments as Python would, without a change of the module path."""
    first, *rest = arguments
    if first == "-W":
        action, _, category = rest[0].split(":")
        warnings.simplefilter(action, getattr(builtins, category))
        return execute_here(rest[1:])
    match first:
        case "-m":
            sys.argv = rest
            sys.path.insert(0, os.getcwd())
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path.insert(0, "")
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))
        case _:
            sys.argv = arguments
            sys.path.insert(0, os.path.dirname(first))
            runpy.run_path(first, run_name="__main__")


def end_as(arguments: list[str]) -> None:
    """Execute, and end without the half second in which Python shuts PyTorch down, if no threads are left."""
    try:
        execute(arguments)
        status = 0
    except SystemExit as exit:
        if exit.code is not None and not isinstance(exit.code, int):
            raise
        status = exit.code or 0
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)
    sys.exit(status)


# ---- the client ----


def run(address: str, arguments: list[str]) -> None:
    """Run the arguments in a child of the server, and end with its status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    umask = os.umask(0)
    streams = [number for number in range(3) if is_open(number)]
    request = {
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "umask": umask,
        "limits": {number: resource.getrlimit(number) for number in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)},
        "ignored": [number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN],
        "open": streams,
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        send(connection, request, streams)
        message, _ = received(connection)
        for number in streams:  # now only the child has them, so a pipe ends with the child
            os.close(number)
        for number in PASSED_ON:
            if number not in request["ignored"]:
                signal.signal(number, lambda number, _: os.kill(message["child"], number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        status = message["status"] if "status" in message else received(connection)[0]["status"]
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def send(connection: socket.socket, message: object, files: list[int] | None = None) -> None:
    """Send a JSON message and files."""
    content = json.dumps(message).encode("utf-8", "surrogateescape")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([len(content).to_bytes(LENGTH, "big")], rights)
    connection.sendall(content)


def received(connection: socket.socket) -> tuple:
    """Return the received message and files."""
    size = array.array("i").itemsize
    head, rights, _, _ = connection.recvmsg(LENGTH, socket.CMSG_LEN(3 * size))
    files = array.array("i")
    for _, _, data in rights:
        files.frombytes(data[: len(data) - len(data) % size])
    content, length = b"", int.from_bytes(head, "big")
    while len(content) < length:
        content += connection.recv(length - len(content))
    return json.loads(content), list(files)


if __name__ == "__main__":
    what, place, *given = sys.argv[1:]
    if what == "run":
        run(place, given)
    else:
        sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # the folder of a script is on the path
        end_as(serve(place, *given))

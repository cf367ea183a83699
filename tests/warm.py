"""Processes of Python that find torch, transformers and this package imported: a server forks them, in milliseconds.

`warm(command)` gives the command to start in place of `[sys.executable, ...]`. It is a process of its own, with the
streams, folder, environment, limits and signals of its caller; what it imports has been imported before. So what
happens while Python or a library starts is not tried with it. Under ATTNCAL_COLD=1, every process starts Python.

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
# What jobs import when they run, and classes that transformers imports when they are asked for. A process of "bare"
# has not seen this package.
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
LENGTH = 8  # bytes of the length that goes before a message


def preload(kind: str = "package") -> None:
    """Import what commands need, before a fork."""
    for one, names in PRELOADED.items():
        for name in names:
            importlib.import_module(name)
        if one == kind:
            break
    import torch

    torch.set_num_threads(1)


def warm(command: list, kind: str = "package") -> list[str]:
    """Return a command that does what `[sys.executable, ...]` does, with `-m`, `-c` or a script next, or -W ACTION."""
    python, *rest = map(str, command)
    assert python == sys.executable
    if os.environ.get("ATTNCAL_COLD"):
        return [python, *rest]
    return [python, "-S", "-E", __file__, "run", server(kind), *rest]


@functools.cache
def warm_python(kind: str = "bare") -> str:
    """Return a program that stands in for `sys.executable`, for code that starts it by that name."""
    program = Path(server(kind)).with_name("python")
    start = f'exec "{sys.executable}" -S -E "{__file__}" run "{server(kind)}" "$@"'
    program.write_text(f"#!/bin/sh\n{start}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@functools.cache
def server(kind: str) -> str:
    """Start the server of this process, if there is none yet, and return its address."""
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
    """Fork a child for each client; this returns in the children, with their arguments."""
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
                asked, streams = received(client)
                if not (child := os.fork()):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for file in (woken, wakes):
                        os.close(file)
                    for other in (listener, *clients):
                        other.close()
                    become(asked, streams)
                    send(client, {"child": os.getpid()})  # now it can be struck
                    client.close()
                    return asked["arguments"]
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


def become(asked: dict, streams: list[int]) -> None:
    """Take the place of the client: its streams, folder, environment, limits and signals."""
    os.setsid()
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in asked["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(asked["umask"])
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for limit, values in asked["limits"].items():
        resource.setrlimit(int(limit), values)
    for number in range(3):
        os.close(number)
    for number, stream in zip(asked["open"], streams, strict=True):
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
        if number in asked["open"]:
            binary = open(number, mode, buffering=0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
            kept = errors or ("backslashreplace" if number == 2 else "strict")
            file = io.TextIOWrapper(
                binary, encoding or "utf-8", kept, line_buffering=number == 2, write_through=unbuffered
            )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def execute(arguments: list[str]) -> None:
    """Do what Python does with these arguments."""
    first, *rest = arguments
    if first == "-I":
        return execute_here(rest)
    path = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
    execute_here(arguments)


def execute_here(arguments: list[str]) -> None:
    """Do what Python does with these arguments, with the path of modules as it is."""
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
    """Execute, and end without the half second in which Python takes PyTorch down, if nothing is left to be done."""
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
    """Have the arguments run by a child of the server, and end as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    umask = os.umask(0)
    streams = [number for number in range(3) if is_open(number)]
    asked = {
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
        send(connection, asked, streams)
        told, _ = received(connection)
        for number in streams:  # only the child has them now: a pipe ends with it
            os.close(number)
        for number in PASSED_ON:
            if number not in asked["ignored"]:
                signal.signal(number, lambda number, _: os.kill(told["child"], number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        status = told["status"] if "status" in told else received(connection)[0]["status"]
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
    """Send what JSON can hold, and files."""
    content = json.dumps(message).encode("utf-8", "surrogateescape")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([len(content).to_bytes(LENGTH, "big")], rights)
    connection.sendall(content)


def received(connection: socket.socket) -> tuple:
    """What was sent, and the files."""
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

"""Messages of a command on standard error, by -q, -v and -vv.

=========  =====================================================
-q         errors
(nothing)  also warnings, progress on a terminal, and progress of long jobs every half minute
-v         also the steps of the work: files, model, seconds (`LOG`)
-vv        also messages of the libraries
=========  =====================================================
"""

import logging
import os
import shlex
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

LOG = logging.getLogger("hf_attncal")
SILENCE = 30.0  # seconds between progress reports of a long job
# Environment variables that the libraries read when they are imported.
_LIBRARIES = ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY")
_NO_BARS = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


@contextmanager
def verbosity(verbose: int, quiet: bool) -> Iterator[None]:
    """Set the verbosity of a command; with -v, print its duration at the end.

    Args:
        verbose: number of -v options.
        quiet: True with -q.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("attncal: %(message)s"))
    before = LOG.level
    variables = {} if sys.stderr.isatty() and not quiet else dict(_NO_BARS)  # in a file a bar is a line per step
    if quiet or verbose > 1:
        variables |= dict.fromkeys(_LIBRARIES, "error" if quiet else "info")
    saved = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    LOG.setLevel(logging.ERROR if quiet else [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])
    LOG.addHandler(handler)
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_each_once()
            if quiet:
                warnings.simplefilter("ignore")
            yield
        LOG.info("done in %.1f s", time.monotonic() - start)
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before)
        for name in variables:
            del os.environ[name]
        os.environ.update(saved)


def is_quiet() -> bool:
    """Return whether progress and warnings are off (-q)."""
    return not LOG.isEnabledFor(logging.WARNING)


@contextmanager
def progress_reports(job: str) -> Iterator[Callable[..., None]]:
    """Print the progress of a long job of a command every half minute, unless -q is given.

    Yields:
        Function to call at the beginning of each step, with its name and the completed share of the job (0 to 1) if it
        is known.
    """
    began, over = time.monotonic(), threading.Event()
    current: list = ["", 0.0, began]  # step, completed share at its beginning, and time of its beginning

    def step(name: str, done: float = 0.0) -> None:
        current[:] = name, done, time.monotonic()

    def report() -> None:
        while not over.wait(SILENCE):
            (name, done, since), now = current, time.monotonic()
            left = (since - began) * (1 - done) / done - (now - since) if done else 0.0
            remaining = f", about {minutes(left)} left" if left > 0 else ""
            step_name = f": {name}" if name else ""  # a job that loads a model has no step yet
            LOG.warning("%s%s, %s so far%s", job, step_name, minutes(now - began), remaining)

    # A call from Python has no handler, and no reports.
    thread = threading.Thread(target=report, daemon=True) if LOG.handlers else None
    if thread is not None:
        thread.start()
    try:
        yield step
    finally:
        over.set()
        if thread is not None:
            thread.join()


def command_prefix() -> str:
    """Return the words that start this command in the user's shell: `attncal` if it is on PATH."""
    if shutil.which("attncal"):
        return "attncal"
    script = sys.argv[0]
    return shlex.quote(script) if Path(script).name == "attncal" else f"{shlex.quote(sys.executable)} -m hf_attncal"


def minutes(seconds: float) -> str:
    """Return a duration in words."""
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


@contextmanager
def silenced_if_quiet() -> Iterator[None]:
    """Drop standard output of the block with -q, such as the progress of training."""
    if not is_quiet():
        yield
        return
    with open(os.devnull, "w") as sink, redirect_stdout(sink):
        yield


@contextmanager
def silenced_libraries() -> Iterator[None]:
    """Drop output, warnings and logs of libraries in the block, except with -vv, so that an error has one line.

    Compilers write to the descriptors of standard output and standard error, so these are redirected.
    """
    if LOG.isEnabledFor(logging.DEBUG):
        yield
        return
    streams = sys.stdout, sys.stderr
    copies = {number: os.dup(number) for number in (1, 2)}
    try:
        with open(os.devnull, "w") as sink, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stream in streams:
                stream.flush()
            for number in copies:
                os.dup2(sink.fileno(), number)
            with redirect_stdout(sink), redirect_stderr(sink):
                yield
    finally:
        for stream in streams:
            stream.flush()
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)


def _show_each_once() -> Callable[..., None]:
    """Return a function that prints each warning once, on one line, without its place in the code.

    Python's own record of printed warnings is lost when a library changes the filters, as at each evaluation.
    """

    @cache
    def show(text: str) -> None:
        print(f"attncal: warning: {text}", file=sys.stderr)

    return lambda message, *_, **__: show(" ".join(str(message).split()))

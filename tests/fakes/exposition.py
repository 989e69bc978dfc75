# SPDX-License-Identifier: Apache-2.0
"""Fake the service that makes pages."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from slurmscope.http.server.app import ScrapeRequest, UnknownCollector

PAGE = b"slurm_up 1\n"


class FakeExposition:
    """Serve given blocks; every collector but those of ``known`` is unknown."""

    def __init__(self, *blocks: bytes, known: frozenset[str] = frozenset({"jobs", "nodes"})) -> None:
        """Take the page, one sample by default."""
        self.blocks = blocks or (PAGE,)
        self.known = known
        self.calls: list[ScrapeRequest] = []

    def __call__(self, request: ScrapeRequest) -> Iterable[bytes]:
        """Record the request and return the blocks."""
        self.calls.append(request)
        for name in sorted((request.include or frozenset()) | request.exclude):
            if name not in self.known:
                raise UnknownCollector(name)
        return self.page()

    def page(self) -> Iterable[bytes]:
        """Return the blocks of one page."""
        return self.blocks


class HeldExposition(FakeExposition):
    """Send a first block, then wait until a test lets the page go on."""

    def __init__(self) -> None:
        """Start with every page held."""
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.go_on = threading.Event()

    def page(self) -> Iterator[bytes]:
        """Yield the page in two parts with a pause between them."""
        try:
            yield b"first 1\n"
            self.begun.release()
            self.go_on.wait(60)
            yield b"second 2\n"
        finally:
            self.ended.release()


class BreakingExposition(FakeExposition):
    """Fail after a number of blocks."""

    def __init__(self, good_blocks: int) -> None:
        """Take how many blocks come before the failure."""
        super().__init__()
        self.good_blocks = good_blocks

    def page(self) -> Iterator[bytes]:
        """Yield the good blocks, then raise what must never reach a client."""
        for _ in range(self.good_blocks):
            yield PAGE
        raise RuntimeError("secret detail")

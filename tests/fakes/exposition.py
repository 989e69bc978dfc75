# SPDX-License-Identifier: Apache-2.0
"""Stand in for the service that makes pages."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.write import Format
from slurmscope.outputs.http.app import UnknownCollector

PAGE = b"slurm_up 1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Hold what one scrape was asked for."""

    format: Format
    is_gzip: bool
    include: frozenset[str] | None
    exclude: frozenset[str]
    deadline_seconds: float | None


class FakeExposition:
    """Serve given blocks; every collector but those of ``known`` is unknown."""

    def __init__(self, *blocks: bytes, known: frozenset[str] = frozenset({"jobs", "nodes"})) -> None:
        """Take the page, one sample by default."""
        self.blocks = blocks or (PAGE,)
        self.known = known
        self.calls: list[Call] = []
        self.is_up = True

    def scrape(
        self,
        *,
        format: Format,
        is_gzip: bool,
        include: frozenset[str] | None,
        exclude: frozenset[str],
        deadline_seconds: float | None,
    ) -> Iterable[bytes]:
        """Remember what was asked and return the blocks."""
        self.calls.append(
            Call(format=format, is_gzip=is_gzip, include=include, exclude=exclude, deadline_seconds=deadline_seconds)
        )
        for name in sorted((include or frozenset()) | exclude):
            if name not in self.known:
                raise UnknownCollector(name)
        return self.page()

    def page(self) -> Iterable[bytes]:
        """Return the blocks of one page."""
        return self.blocks

    def is_ready(self) -> bool:
        """Tell what a test has set."""
        return self.is_up


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

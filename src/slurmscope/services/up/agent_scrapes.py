# SPDX-License-Identifier: Apache-2.0
"""Fetch the pages of node agents and record them, many at once, so that a silent one holds up no other."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from slurmscope.errors import MalformedAnswer, ServerError, ServerRefused, SlurmscopeError
from slurmscope.http_client.request import HttpRequest, send, tls_context
from slurmscope.http_client.token_file import TokenFile
from slurmscope.log import fields
from slurmscope.services.up.settings import Target

logger = logging.getLogger(__name__)

AT_ONCE = 32
PAGE_LIMIT_BYTES = 64 * 1024 * 1024
SHOWN_PROBLEMS = 3
LONGEST_REST_ROUNDS = 19
"""An agent that fails again and again is left alone for up to so many rounds: nodes that are down are many at times."""


class PageRecorder(Protocol):
    """Take pages; see ``store.recorder``."""

    def record_page(self, at_seconds: float, page: str, *, node: str = "", source: str = "") -> None:
        """Take a page in text format."""
        ...


class AgentScrapes:
    """Scrape a list of agents; how each one does is told when it changes, not every time."""

    def __init__(
        self,
        targets: Sequence[Target],
        recorder: PageRecorder,
        *,
        timeout_seconds: float,
        token_file: TokenFile | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take whom to ask, and who keeps the pages."""
        self.counts: Counter[str] = Counter()
        """How many scrapes were good, failed, or skipped because the ones before still ran or failed."""
        self._targets = tuple(targets)
        self._recorder = recorder
        self._timeout_seconds = timeout_seconds
        self._token_file = token_file
        self._wall_clock = wall_clock
        self._tls = tls_context() if any(target.address.is_tls for target in targets) else None
        self._pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(targets))), thread_name_prefix="scrape")
        self._running: dict[Target, Future[None]] = {}
        self._problems: dict[Target, str] = {}
        self._failures: Counter[Target] = Counter()
        self._rounds_left: Counter[Target] = Counter()
        self._lock = threading.Lock()

    def scrape_all(self) -> None:
        """Ask every agent once, those that answered the last time first, and wait as long as all may take."""
        for target in sorted(self._targets, key=self._failures.__getitem__):
            if self._is_busy(target) or self._rests(target):
                self._count("skipped")
            else:
                self._running[target] = self._pool.submit(self._scrape, target)
        rounds = -(-len(self._targets) // AT_ONCE)
        wait(self._running.values(), timeout=rounds * self._timeout_seconds + 1.0)

    def problems(self) -> Iterable[str]:
        """Say in one sentence which agents do not answer."""
        with self._lock:
            known = dict(self._problems)
        if not known:
            return ()
        shown = "; ".join(list(known.values())[:SHOWN_PROBLEMS])
        more = f"; and {len(known) - SHOWN_PROBLEMS} more" if len(known) > SHOWN_PROBLEMS else ""
        return (f"{len(known)} of {len(self._targets)} node agents could not be recorded: {shown}{more}.",)

    def close(self) -> None:
        """Begin no further scrape; those that run end at their time limit."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_busy(self, target: Target) -> bool:
        before = self._running.get(target)
        return before is not None and not before.done()

    def _rests(self, target: Target) -> bool:
        """Tell whether an agent is left alone in this round, which is then over."""
        is_resting = self._rounds_left[target] > 0
        self._rounds_left[target] -= is_resting
        return is_resting

    def _scrape(self, target: Target) -> None:
        try:
            page = self._fetch(target)
            self._recorder.record_page(self._wall_clock(), page, node=target.node, source=str(target))
        except SlurmscopeError as error:
            self._note(target, f"{target}: {error}")
        except Exception as error:  # a bug that one page brings out must not silence the others
            logger.exception("scrape failed", extra=fields("bug", target=str(target)))
            self._note(target, f"{target}: {error!r}")
        else:
            self._note(target, "")

    def _fetch(self, target: Target) -> str:
        headers = {"Accept": "text/plain;version=0.0.4"}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {self._token_file.read()}"
        deadline = time.monotonic() + self._timeout_seconds
        request = HttpRequest(headers=headers)
        answer = send(target.address, request, deadline=deadline, tls=self._tls, limit_bytes=PAGE_LIMIT_BYTES)
        if answer.status in {401, 403}:
            raise ServerRefused(f"it answered {answer.status}; see --up.bearer-token-file")
        if answer.status != 200:
            raise ServerError(f"it answered {answer.status}")
        try:
            return answer.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedAnswer("its page is not UTF-8") from error

    def _note(self, target: Target, problem: str) -> None:
        with self._lock:
            had_problem = target in self._problems
            if problem:
                self._problems[target] = problem
                self._failures[target] += 1
                self._rounds_left[target] = min(LONGEST_REST_ROUNDS, 2 ** min(9, self._failures[target] - 1) - 1)
            else:
                self._problems.pop(target, None)
                self._failures[target] = 0
        self._count("failed" if problem else "good")
        if problem and not had_problem:
            logger.warning("a node agent could not be recorded", extra=fields(target=str(target), error=problem))
        elif had_problem and not problem:
            logger.info("a node agent is recorded again", extra=fields(target=str(target)))

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.counts[outcome] += 1

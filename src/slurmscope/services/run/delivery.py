# SPDX-License-Identifier: Apache-2.0
"""Send samples in a thread of its own, so that no endpoint can delay the command.

Samples wait in a bounded buffer, of which the oldest are dropped. What the endpoint cannot take now is sent again
later; what it refuses is dropped. Everything that was not sent is counted.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurmscope.errors import MalformedAnswer, SourceError
from slurmscope.http_client.post import post
from slurmscope.http_client.request import HttpRequest
from slurmscope.log import escape
from slurmscope.services.run.ways import Way
from slurmscope.services.run.wire import Sample

MOST_WAITING = 500
BATCH_SAMPLES = 50
TIMEOUT_SECONDS = 5.0
LAST_SECONDS = 0.2
"""How long the end of a run may wait for the last sample, if the endpoint has answered so far."""

_PAUSES_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)
_RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Hold how many samples were sent and lost, and the last reason for a loss."""

    sent: int
    lost: int
    reason: str

    def describe_loss(self) -> str:
        """Return one sentence; empty if nothing was lost."""
        if not self.lost:
            return ""
        why = f": {self.reason}" if self.reason else "; the command ended first"
        return f"{self.lost} of {self.sent + self.lost} samples were not sent{why}."


class Delivery:
    """Send samples by the first way that works; ``report`` is called for each attempt, from the thread."""

    def __init__(self, ways: Sequence[Way], report: Callable[[str], None] = lambda _line: None) -> None:
        self._ways = ways
        self._report = report
        self._changed = threading.Condition()
        self._waiting: deque[Sample] = deque()
        self._under_way: list[Sample] = []
        self._is_ending = False
        self._failures = 0
        self._sent = self._lost = 0
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="trace-delivery", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, sample: Sample) -> None:
        """Take a sample to be sent; never waits for the endpoint."""
        with self._changed:
            self._waiting.append(sample)
            self._drop_oldest()
            self._changed.notify()

    def end(self) -> Delivered:
        """Stop, and return what was sent; what still waits or is under way is lost."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
            is_healthy = not self._failures
        if is_healthy:
            self._thread.join(LAST_SECONDS)
        with self._changed:
            rest = len(self._waiting) + len(self._under_way)
            return Delivered(sent=self._sent, lost=self._lost + rest, reason=self._reason)

    def _run(self) -> None:
        user = own_user()
        while self._take_batch():
            problem, is_final = self._send(
                [{**sample, "username": user} if user else sample for sample in self._under_way]
            )
            with self._changed:
                self._settle(problem, is_final=is_final)

    def _take_batch(self) -> bool:
        """Wait for samples and, after a failure, for a pause; return False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending or self._waiting)
            if self._failures:
                pause = _PAUSES_SECONDS[min(self._failures, len(_PAUSES_SECONDS)) - 1]
                if self._changed.wait_for(lambda: self._is_ending, pause):
                    return False
            count = min(BATCH_SAMPLES, len(self._waiting))
            self._under_way = [self._waiting.popleft() for _ in range(count)]
            return bool(count)

    def _settle(self, problem: str, *, is_final: bool) -> None:
        batch, self._under_way = self._under_way, []
        if not problem:
            self._failures = 0
            self._sent += len(batch)
            return
        self._failures += 1
        self._reason = problem
        if is_final:
            self._lost += len(batch)
        else:
            self._waiting.extendleft(reversed(batch))
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._lost += 1

    def _send(self, batch: Sequence[Sample]) -> tuple[str, bool]:
        """Try all ways; return the last problem, empty if one worked, and whether no further attempt would help."""
        body, problems = _encode(batch), list[tuple[str, bool]]()
        for way in self._ways:
            problem, is_final = self._try(way, body)
            self._report(problem or f"{len(batch)} sent to {way.address} ({way.name})")
            if not problem:
                return "", False
            problems.append((problem, is_final))
        return problems[-1][0], all(is_final for _, is_final in problems)

    def _try(self, way: Way, body: bytes) -> tuple[str, bool]:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            headers = {"Content-Type": "application/json", **way.credential(body)}
            answer = post(way.address, HttpRequest(method="POST", headers=headers, body=body), deadline=deadline)
        except MalformedAnswer as error:
            return f"{way.address}: {error}", False
        except SourceError as error:
            return str(error), False
        if answer.status < 300:
            return "", False
        return f"{way.address} answers {answer.status}{_sentence(answer.body)}", answer.status not in _RETRIED


def own_user() -> str:
    """Return the name of the user from the system, which may take long; else from the environment."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _encode(batch: Sequence[Sample]) -> bytes:
    # The older exporter takes one object; a list is only ever sent after a failure.
    return json.dumps(batch[0] if len(batch) == 1 else batch, separators=(",", ":")).encode()


def _sentence(body: bytes) -> str:
    """Return the reason that the endpoint gives, safe to show."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    reason = answer.get("error") if isinstance(answer, dict) else None
    return f": {escape(reason, 200).rstrip('.')}" if isinstance(reason, str) else ""

# SPDX-License-Identifier: Apache-2.0
"""Send samples in a thread of its own, so that no endpoint can delay the command.

Samples wait in a bounded buffer, of which the oldest are dropped. What the endpoint cannot take now is sent again
later; what it refuses is dropped. Everything that was not sent is counted.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.errors import CommandFailed, CommandMissing, CommandTimedOut, MalformedAnswer, SourceError
from slurmscope.core.log import escape
from slurmscope.core.rate_limit import backoff_seconds
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.request import ClientRequest, post
from slurmscope.jobs.traced_run import TreeSample
from slurmscope.run.context import is_socket
from slurmscope.run.runner import RunPlan

if TYPE_CHECKING:
    import subprocess


Sample = dict[str, object]
"""One sample as the endpoint takes it."""

COMMAND_BYTES = 64
SHORTEST_WINDOW_SECONDS = 0.5
"""Of a running process the kernel shows CPU time in hundredths of a second, at its end all of it: what was used in a
moment is not known."""


class SampleWriter:
    """Write the samples of one command, in their order."""

    def __init__(self, plan: RunPlan, *, pid: int, start_seconds: float, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._window_start = self._last = (start_seconds, 0.0)
        self._common: Sample = {
            "job_id": plan.slurm.job_id or 0,
            "pid": pid,
            "username": plan.user,
            "hostname": plan.host,
            "command": cut_bytes(plan.command[0].rpartition("/")[2]),
            "rank": plan.slurm.rank,
            "step_id": plan.slurm.step_id or None,
            "interval": interval_seconds,
            "start_time": round(start_seconds, 3),
        }

    def write(self, sample: TreeSample) -> Sample:
        """Return one sample; sizes of a command that has ended already are left out."""
        is_alive = sample.processes > 0
        values = {
            **self._common,
            "cpus": self._percent(sample),
            "threads": float(sample.threads) if is_alive else None,
            "mem": float(sample.resident_bytes) if is_alive else None,
            "read_bytes": _float(sample.read_bytes),
            "write_bytes": _float(sample.write_bytes),
            "cpu_seconds": round(sample.cpu_seconds, 3),
            "time": round(sample.time_seconds, 3),
        }
        return {key: value for key, value in values.items() if value is not None}

    def _percent(self, sample: TreeSample) -> float | None:
        """Return the use in percent of a core since the previous sample; since an earlier one if that was just now."""
        shortest = min(SHORTEST_WINDOW_SECONDS, self._interval_seconds / 2)
        if sample.time_seconds - self._last[0] >= shortest:
            self._window_start = self._last
        self._last = (sample.time_seconds, sample.cpu_seconds)
        start_seconds, cpu_seconds = self._window_start
        elapsed = sample.time_seconds - start_seconds
        return round(100 * max(0.0, sample.cpu_seconds - cpu_seconds) / elapsed, 1) if elapsed > 0 else None


def cut_bytes(text: str) -> str:
    """Cut a text to what the endpoint takes, and make it valid UTF-8."""
    return text.encode("utf-8", "replace")[:COMMAND_BYTES].decode("utf-8", "ignore")


def _float(number: int | None) -> float | None:
    return None if number is None else float(number)


MUNGE_TIMEOUT_SECONDS = 2.0
TRACE_PATH = "/trace"

_TOKEN = re.compile(r"[!-~]{1,4096}\Z")
_CREDENTIAL = re.compile(rb"MUNGE:[A-Za-z0-9+/=]{1,65536}:\n?\Z")

StartHelper = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]
"""Calls what starts a program, and keeps that program apart from the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way; ``credential`` returns the headers that prove the sender of a body, or raises SourceError."""

    name: str
    address: ServerAddress
    credential: Callable[[bytes], Mapping[str, str]] = lambda _body: {}


def parse_endpoint(text: str) -> ServerAddress:
    """Parse the address of the endpoint as older scripts write it, also ``localhost:8092``; raise ValueError."""
    address = parse_address(text if "://" in text or text.startswith("unix:") else f"http://{text}")
    if address.prefix or address.socket_path:
        return address
    return ServerAddress(host=address.host, port=address.port, is_tls=address.is_tls, prefix=TRACE_PATH)


def find_ways(
    socket_path: Path, endpoint: ServerAddress | None, *, token: str, munge: StartHelper | None
) -> tuple[Way, ...]:
    """Return the ways that may work, in the order to try them; ``munge`` starts a program where it is wanted."""
    ways = []
    if is_socket(socket_path):
        ways.append(Way(name="socket", address=ServerAddress(socket_path=str(socket_path), prefix=TRACE_PATH)))
    if endpoint is None:
        return tuple(ways)
    if _TOKEN.match(token):
        ways.append(Way(name="token", address=endpoint, credential=lambda _body: _bearer(token)))
    if munge is not None:
        ways.append(Way(name="munge", address=endpoint, credential=lambda body: _sign(body, munge)))
    if endpoint.socket_path or not (token or munge):
        ways.append(Way(name="plain", address=endpoint))
    return tuple(ways)


def _bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _sign(body: bytes, start_helper: StartHelper) -> Mapping[str, str]:
    """Let munge sign the digest of a body."""
    import hashlib
    import subprocess

    argv = ("munge", "--string", hashlib.sha256(body).hexdigest())
    nothing = subprocess.DEVNULL
    try:
        process = start_helper(lambda: subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing))
    except OSError as error:
        raise CommandMissing(argv, f"cannot run munge: {error.strerror}") from error
    with process:
        try:
            credential, _ = process.communicate(timeout=MUNGE_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise CommandTimedOut(argv, "munge timed out") from error
    # Its exit code is unknown where the thread that reaps orphans was faster.
    if not _CREDENTIAL.match(credential):
        raise CommandFailed(argv, "munge made no credential; is munged running?")
    return {"Authorization": f"Munge {credential.decode('ascii').strip()}"}


MOST_WAITING = 500
BATCH_SAMPLES = 50
TIMEOUT_SECONDS = 5.0
LAST_SECONDS = 0.2
"""How long the end of a run may wait for the last sample, if the endpoint has answered so far."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """How many samples were sent and lost, and the last reason for a loss."""

    sent: int
    lost: int
    reason: str

    def describe_loss(self) -> str:
        """Return one sentence; empty if nothing was lost."""
        if not self.lost:
            return ""
        why = f": {self.reason}" if self.reason else "; the command ended first"
        return f"{self.lost} of {self.sent + self.lost} samples were not sent{why}."


class SampleDelivery:
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
                pause = backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
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
            answer = post(way.address, ClientRequest(method="POST", headers=headers, body=body), deadline=deadline)
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

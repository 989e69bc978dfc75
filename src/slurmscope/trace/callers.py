# SPDX-License-Identifier: Apache-2.0
"""Find out who sends a post: by a job token, by a munge credential, or by its network; refuse it or limit its rate."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmscope.core.errors import SourceError
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.server.address import Network, is_listed
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import Header, Response
from slurmscope.trace.tokens import JobToken, check_token

if TYPE_CHECKING:
    from slurmscope.slurm.munge import MungeCredential

JSON_TYPE = "application/json"

REASONS = frozenset({
    "credential", "encoding", "forward", "host", "job", "length", "malformed", "media_type", "network", "owner",
    "rate", "slurm", "timeout", "too_large", "too_many", "unavailable", "user", "way",
})  # fmt: skip
"""Codes of refusals; also the values of a label, so there are no others."""


class Refusal(BadRequest):
    """Carry status, code and sentence; ``retry_seconds`` is when another attempt may succeed."""

    def __init__(self, status: int, code: str, message: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(status, message, code)
        self.retry_seconds = retry_seconds


def refusal_response(problem: BadRequest) -> Response:
    """Return the response to a refused post."""
    headers: list[Header] = [("Content-Type", JSON_TYPE), ("Cache-Control", "no-store")]
    retry_seconds = problem.retry_seconds if isinstance(problem, Refusal) else None
    if retry_seconds is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(retry_seconds)))))
    if problem.status == 401:
        headers.append(("WWW-Authenticate", 'Bearer realm="trace", Munge'))
    body = json.dumps({"error": problem.message, "code": problem.code}).encode()
    return Response(status=problem.status, headers=tuple(headers), body=body)


BURST_SECONDS = 2.0
"""A bucket holds the posts of this many seconds."""


def limit_posts(per_second: float, clock: Callable[[], float] = time.monotonic) -> TokenBuckets:
    """Return a limit of posts by key; 0 means no limit."""
    return TokenBuckets(per_second, max(1.0, per_second * BURST_SECONDS), clock=clock)


TOKEN, MUNGE, PLAIN, SOCKET = "token", "munge", "plain", "socket"
PARALLEL_DECODES = 4
DECODES_PER_SECOND = 20.0
"""Munge credentials of one address: each costs a process, and until then nothing says whether it is worth that."""
_KNOWN_TOKENS = 10_000
_SCHEMES = ("bearer", "munge")

DecodeMunge = Callable[[str], "MungeCredential | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What is known about a sender; ``uid`` is None if nothing proves who it is.

    ``job_id`` and ``node`` are set if the sender may send samples for that job and from that node only.
    """

    way: str
    uid: int | None = None
    job_id: int | None = None
    node: str | None = None


def has_credential(request: HttpRequest) -> bool:
    """Return whether a request carries a token or a munge credential, good or bad."""
    return request.headers.get("authorization", "").partition(" ")[0].lower() in _SCHEMES


class CallerFinder:
    """Authenticate posts; every method may be called from any thread."""

    def __init__(
        self,
        *,
        keys: Callable[[], Mapping[str, bytes]] = dict,
        decode_munge: DecodeMunge | None = None,
        plain_networks: Sequence[Network] = (),
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the ways that are open: keys of tokens, the decoder of munge credentials, networks for plain posts."""
        self._keys = keys
        self._decode_munge = decode_munge
        self._plain_networks = tuple(plain_networks)
        self._wall_clock = wall_clock
        self._checked: tuple[Mapping[str, bytes], dict[str, JobToken]] = ({}, {})
        self._decoding = threading.BoundedSemaphore(PARALLEL_DECODES)
        self._decodes = limit_posts(DECODES_PER_SECOND, clock)

    def find(self, request: HttpRequest) -> Caller:
        """Return who sends a post, or raise Refusal."""
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._check_token(credential.strip())
        if scheme.lower() == "munge":
            return self._check_munge(credential.strip(), request)
        return self._check_network(request.peer)

    def find_job(self, request: HttpRequest) -> int | None:
        """Return the job that a valid token is for; None if the request has none."""
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        token = self._recall(credential.strip()) if scheme.lower() == "bearer" else None
        return None if token is None else token.job_id

    def _check_token(self, text: str) -> Caller:
        token = self._recall(text)
        if token is None:
            raise Refusal(401, "credential", "The job token is not valid, or it has expired.")
        return Caller(way=TOKEN, uid=token.uid, job_id=token.job_id, node=token.node)

    def _recall(self, text: str) -> JobToken | None:
        """Return what a token states, from memory if it was checked before with the same keys."""
        keys, now = self._keys(), self._wall_clock()
        known_keys, known = self._checked
        if known_keys is not keys or len(known) >= _KNOWN_TOKENS:
            known = {}
            self._checked = (keys, known)
        token = known.get(text)
        if token is None:
            token = check_token(text, keys, now)
            if token is not None:
                known[text] = token
        return token if token is not None and token.expiry_seconds > now else None

    def _check_munge(self, text: str, request: HttpRequest) -> Caller:
        if self._decode_munge is None:
            raise Refusal(401, "way", "Munge credentials are not accepted here.")
        # An IPv6 network and a user of this machine have as many addresses as they like.
        if wait_seconds := self._decodes.take(request.group or request.peer):
            raise Refusal(429, "rate", "This address sends too many munge credentials.", retry_seconds=wait_seconds)
        if not self._decoding.acquire(blocking=False):
            raise Refusal(503, "unavailable", "Too many munge credentials at the same time.", retry_seconds=1)
        try:
            credential = self._decode_munge(text)
        except SourceError as error:
            raise Refusal(503, "unavailable", "munged does not answer.", retry_seconds=10) from error
        finally:
            self._decoding.release()
        if credential is None:
            raise Refusal(401, "credential", "The munge credential is not valid, expired, or was used before.")
        if credential.payload.strip() != hashlib.sha256(request.body).hexdigest().encode():
            raise Refusal(401, "credential", "The munge credential is not for this body.")
        return Caller(way=MUNGE, uid=credential.uid)

    def _check_network(self, peer: str) -> Caller:
        if not self._plain_networks:
            raise Refusal(401, "way", "A job token or a munge credential is required.")
        if not is_listed(peer, self._plain_networks):
            raise Refusal(403, "network", "Samples without a credential are not accepted from this address.")
        return Caller(way=PLAIN)

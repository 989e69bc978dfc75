# SPDX-License-Identifier: Apache-2.0
"""Check basic authentication against bcrypt hashes.

bcrypt is slow by design, so one check runs at a time and results are cached. The cache key is a keyed digest of
length-prefixed fields: joining the fields without lengths let a hash pass for a password (CVE-2022-46146). Good and
bad results are cached separately, so that no flood of guesses can evict the entry of the real scraper. Passwords that
are in no cache are checked only so often for each address.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import bcrypt

from slurmscope.core.errors import ConfigError
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Response, text_response
from slurmscope.http.server.webconfig import HIGHEST_COST

CACHE_LIMIT = 100
CHECK_WAIT_SECONDS = 10.0
PASSWORD_LIMIT_BYTES = 72
COSTLIEST_SECONDS = 20.0
"""About how long a check of the highest cost takes; each step less halves it."""
CPU_SHARE = 0.05
"""How much of a core the unknown passwords of one address for one user may use, after the first few."""
LEAST_ATTEMPTS = 5.0

CheckPassword = Callable[[bytes, bytes], bool]


class BasicAuth:
    """Allow requests with the password of a configured user."""

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        check: CheckPassword = bcrypt.checkpw,
        wait_seconds: float = CHECK_WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take at least one user with a bcrypt hash."""
        for user, digest in users.items():
            _check_hash(user, digest)
        self._hashes = {user.encode(): digest.encode() for user, digest in users.items()}
        cost = max(int(digest[4:6]) for digest in users.values())
        self._decoy = b"$2b$%02d$" % cost + b"." * 53
        """As slow as the slowest real hash; no password matches it."""
        check_seconds = COSTLIEST_SECONDS / 2 ** (HIGHEST_COST - cost)
        self._attempts = TokenBuckets(CPU_SHARE / check_seconds, max(LEAST_ATTEMPTS, 1 / check_seconds), clock=clock)
        self._check = check
        self._wait_seconds = wait_seconds
        self._key = os.urandom(32)
        self._checking = threading.Lock()
        self._results = {True: _Cache(), False: _Cache()}

    def refuse(self, request: HttpRequest) -> Response | None:
        """Return the response to a request without valid credentials, None if it is allowed."""
        credentials = parse_credentials(request.headers.get("authorization", ""))
        # bcrypt uses 72 bytes at most; more can only be a guess, for known and unknown users alike.
        if credentials is None or len(credentials[1]) > PASSWORD_LIMIT_BYTES:
            return _unauthorized()
        user, password = credentials
        digest = self._hashes.get(user, self._decoy)
        key = cache_key(self._key, user, digest, password)
        is_good = self._recall(key)
        if is_good is None:
            if wait_seconds := self._attempts.take((request.group, user if user in self._hashes else b"")):
                retry = ("Retry-After", str(math.ceil(wait_seconds)))
                return text_response(429, "Too many passwords to check for this address.", retry)
            is_good = self._check_once(key, user, digest, password)
        if is_good is None:
            return text_response(503, "Too many passwords to check.")
        return None if is_good else _unauthorized()

    def _check_once(self, key: bytes, user: bytes, digest: bytes, password: bytes) -> bool | None:
        """Return whether the password is the user's, None if there was no time to check."""
        if not self._checking.acquire(timeout=self._wait_seconds):
            return None
        try:
            result = self._recall(key)
            if result is None:
                # With the decoy, an unknown user takes as long as a known one.
                result = self._matches(password, digest) and user in self._hashes
                self._results[result].add(key)
            return result
        finally:
            self._checking.release()

    def _matches(self, password: bytes, digest: bytes) -> bool:
        try:
            return self._check(password, digest)
        except ValueError:
            # A password that bcrypt does not accept; which ones depends on its version.
            return False

    def _recall(self, key: bytes) -> bool | None:
        return next((result for result, cache in self._results.items() if key in cache), None)


class _Cache:
    """A bounded number of keys, the most recently used ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        with self._lock:
            if key not in self._keys:
                return False
            self._keys.move_to_end(key)
            return True

    def add(self, key: bytes) -> None:
        with self._lock:
            self._keys[key] = None
            while len(self._keys) > CACHE_LIMIT:
                self._keys.popitem(last=False)


def parse_credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of a basic ``Authorization`` header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


def cache_key(secret: bytes, *fields: bytes) -> bytes:
    """Return a digest that differs whenever any field does."""
    message = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    return hmac.new(secret, message, hashlib.sha256).digest()


def _check_hash(user: str, digest: str) -> None:
    """Reject a hash that bcrypt cannot use; tried at the lowest cost, which takes a millisecond."""
    try:
        bcrypt.checkpw(b"", f"{digest[:4]}04{digest[6:]}".encode())
    except ValueError as error:
        raise ConfigError(f"basic_auth_users: the value of {user!a} is not a bcrypt hash") from error


def _unauthorized() -> Response:
    return text_response(401, "A user and a password are required.", ("WWW-Authenticate", 'Basic realm="metrics"'))

# SPDX-License-Identifier: Apache-2.0
"""Check basic authentication against bcrypt hashes.

bcrypt is slow by design, so one check runs at a time and results are cached. The cache key is a keyed digest of
length-prefixed fields: joining the fields without lengths let a hash pass for a password (CVE-2022-46146). Good and
bad results are cached separately, so that no flood of guesses can evict the entry of the real scraper.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import bcrypt

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Response, text_response

CACHE_LIMIT = 100
CHECK_WAIT_SECONDS = 10.0
PASSWORD_LIMIT_BYTES = 72

CheckPassword = Callable[[bytes, bytes], bool]


class BasicAuth:
    """Allow requests with the password of a configured user."""

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        check: CheckPassword = bcrypt.checkpw,
        wait_seconds: float = CHECK_WAIT_SECONDS,
    ) -> None:
        """Take at least one user with a bcrypt hash."""
        for user, digest in users.items():
            _check_hash(user, digest)
        self._hashes = {user.encode(): digest.encode() for user, digest in users.items()}
        self._decoy = _decoy_hash(users.values())
        self._check = check
        self._wait_seconds = wait_seconds
        self._key = os.urandom(32)
        self._checking = threading.Lock()
        self._results = {True: _Cache(), False: _Cache()}

    def refuse(self, request: HttpRequest) -> Response | None:
        """Return the response to a request without valid credentials, None if it is allowed."""
        credentials = parse_credentials(request.headers.get("authorization", ""))
        if credentials is not None:
            is_good = self._is_good(*credentials)
            if is_good is None:
                return text_response(503, "Too many passwords to check.")
            if is_good:
                return None
        return text_response(401, "A user and a password are required.", ("WWW-Authenticate", 'Basic realm="metrics"'))

    def _is_good(self, user: bytes, password: bytes) -> bool | None:
        """Return whether the password is the user's, None if there was no time to check."""
        if len(password) > PASSWORD_LIMIT_BYTES:
            # bcrypt uses 72 bytes at most; more can only be a guess, for known and unknown users alike.
            return False
        digest = self._hashes.get(user, self._decoy)
        key = cache_key(self._key, user, digest, password)
        result = self._recall(key)
        if result is not None:
            return result
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


def _decoy_hash(digests: Iterable[str]) -> bytes:
    """Return a hash as slow as the slowest real one; no password matches it."""
    cost = max(int(digest[4:6]) for digest in digests)
    return b"$2b$%02d$" % cost + b"." * 53

# SPDX-License-Identifier: Apache-2.0
"""Make and check job tokens: a signed statement that its holder may send samples for one job on one node.

A token is ``sst1/KEY/JOB/UID/NODE/EXPIRY/SIGNATURE``. The signature is an HMAC-SHA-256 of everything before it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.errors import ConfigError
from slurmscope.core.watched_file import Watch, WatchedFile

VERSION = "sst1"
KEY_BYTES = 32
_KEY_ID = r"[A-Za-z0-9_-]{1,32}"
_NODE = r"[A-Za-z0-9._-]{1,255}"
_TOKEN = re.compile(
    rf"(?P<claims>{VERSION}/(?P<key>{_KEY_ID})/(?P<job>[0-9]{{1,10}})/(?P<uid>[0-9]{{1,10}})/(?P<node>{_NODE})"
    r"/(?P<expiry>[0-9]{1,12}))/(?P<signature>[A-Za-z0-9_-]{43})"
)
_KEY_LINE = re.compile(rf"(?P<id>{_KEY_ID})\s+(?P<key>[0-9a-fA-F]{{64}})")
_NODE_NAME = re.compile(_NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToken:
    """What a token states; ``expiry_seconds`` is a Unix time."""

    job_id: int
    uid: int
    node: str
    expiry_seconds: int


def make_token(token: JobToken, key_id: str, key: bytes) -> str:
    """Sign a token; raise ValueError if its node name is not valid in one."""
    if not _NODE_NAME.fullmatch(token.node):
        raise ValueError(f"{token.node!r} is not a node name")
    claims = f"{VERSION}/{key_id}/{token.job_id}/{token.uid}/{token.node}/{token.expiry_seconds}"
    return f"{claims}/{_sign(claims, key)}"


def check_token(text: str, keys: Mapping[str, bytes], now_seconds: float) -> JobToken | None:
    """Return what a token states; None if it is malformed, signed with none of the keys, or expired."""
    match = _TOKEN.fullmatch(text)
    key = keys.get(match["key"]) if match else None
    if match is None or key is None or not hmac.compare_digest(_sign(match["claims"], key), match["signature"]):
        return None
    if int(match["expiry"]) <= now_seconds:
        return None
    return JobToken(
        job_id=int(match["job"]), uid=int(match["uid"]), node=match["node"], expiry_seconds=int(match["expiry"])
    )


def parse_keys(text: str) -> dict[str, bytes]:
    """Parse a key file: one key per line, its name and 64 hexadecimal digits; the first signs, all are accepted.

    Raise ValueError without repeating a key.
    """
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _KEY_LINE.fullmatch(line.strip())
        if match is None or match["id"] in keys:
            raise ValueError(f"line {number} is not a new name and 64 hexadecimal digits")
        keys[match["id"]] = bytes.fromhex(match["key"])
    if not keys:
        raise ValueError("it has no key")
    return keys


def _sign(claims: str, key: bytes) -> str:
    digest = hmac.digest(key, claims.encode("ascii"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


LIVE_KEYS = 2
"""Keys that a rotation leaves in the file: the new one, and the one before it until its tokens have expired."""

_SIZE_LIMIT_BYTES = 16 * 1024
_NO_KEYS: Mapping[str, bytes] = {}


class KeyFile:
    """The keys of a file, read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file; raise ConfigError if it is invalid or others may read it."""
        self._watched = WatchedFile(lambda watch: read_keys(path, watch))
        self._watched.get()

    def keys(self) -> Mapping[str, bytes]:
        """Return the keys by name; none while the file is invalid, so that a lost file closes the way in."""
        try:
            return self._watched.get()
        except ConfigError:
            return _NO_KEYS

    def sign(self, token: JobToken) -> str | None:
        """Return a token signed with the first key; None if there is no key or the node name is not valid."""
        for key_id, key in self.keys().items():
            try:
                return make_token(token, key_id, key)
            except ValueError:
                return None
        return None


def read_keys(path: Path, watch: Watch = lambda _: None) -> dict[str, bytes]:
    """Read a key file; raise ConfigError if it cannot be used."""
    try:
        watch(path)
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            text = stream.read(_SIZE_LIMIT_BYTES)
    except OSError as error:
        advice = "; create it with slurmscope trace key" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}{advice}") from error
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        raise ConfigError(f"the key file {path} must be a file that only its owner may read: chmod 600 {path}")
    try:
        return parse_keys(text.decode("ascii"))
    except ValueError as error:
        what = "it is not ASCII text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"the key file {path} is invalid: {what}") from None


def rotate_keys(path: Path) -> str:
    """Put a new key first into the file, keep the one before it, drop older ones, and return its name."""
    lines = []
    if path.exists():
        lines = [f"{name} {key.hex()}" for name, key in read_keys(path).items()]
    name = f"k{int(time.time())}-{secrets.token_hex(2)}"
    lines = [f"{name} {secrets.token_hex(KEY_BYTES)}", *lines][:LIVE_KEYS]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write("\n".join(lines) + "\n")
            if path.exists():
                status = path.stat()
                os.fchown(stream.fileno(), status.st_uid, status.st_gid)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        advice = f"; create the folder {path.parent}" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot write the key file {path}: {error.strerror}{advice}") from error
    return name

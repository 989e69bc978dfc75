# SPDX-License-Identifier: Apache-2.0
"""Make and check job tokens: a signed statement that its holder may send samples for one job on one node.

A token is ``sst1/KEY/JOB/UID/NODE/EXPIRY/SIGNATURE``. The signature is an HMAC-SHA-256 of everything before it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Hold what a token states; ``expiry_seconds`` is a Unix time."""

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

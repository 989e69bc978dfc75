# SPDX-License-Identifier: Apache-2.0
"""Keep the secret of form tokens in the archive, so that a form of one portal can be sent to another.

It is random, and made by the first portal. Anyone who can read the archive can forge form tokens; these do not sign
anyone in, and the origin that the browser reports is checked as well.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

from slurmscope.errors import ArchiveError

NAME = "secret of form tokens"
RETRY_SECONDS = 30.0


class FormKey:
    """Return the secret, from any thread; one of this process alone while the archive is unreachable."""

    def __init__(self, create: Callable[[str, str], str], clock: Callable[[], float] = time.monotonic) -> None:
        """Take what stores a text under a name that has none, and returns the stored one; nothing is read yet."""
        self._create = create
        self._clock = clock
        self._own = secrets.token_bytes(32)
        self._shared: bytes | None = None
        self._not_before = float("-inf")

    def read(self) -> bytes:
        """Return the secret; without an archive, forms cannot be sent anyway."""
        if self._shared is None and self._clock() >= self._not_before:
            try:
                text = self._create(NAME, secrets.token_hex(32))
                self._shared = hashlib.sha256(text.encode()).digest()
            except ArchiveError:
                self._not_before = self._clock() + RETRY_SECONDS
        return self._shared or self._own

# SPDX-License-Identifier: Apache-2.0
"""Define why a request is rejected.

::

    SignInError                a message for the page, and the status code
    ├── NotSignedIn            no identity was given (401)
    ├── SignInUnavailable      the identity cannot be checked now (503)
    └── Refused                the identity is not trusted, or has no access (403)
        ├── TooManyCredentials     too many munge credentials from this address (429)
        └── TooManyFailures        too many wrong tokens from this address (429)
"""

from __future__ import annotations

from slurmscope.core.errors import SlurmscopeError


class SignInError(SlurmscopeError):
    """Reject a request; ``reason`` can be shown to the client, because it repeats nothing from the request."""

    status = 403

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def headers(self) -> dict[str, str]:
        """Return additional response headers."""
        return {}


class NotSignedIn(SignInError):
    """No identity was given."""

    status = 401

    @property
    def headers(self) -> dict[str, str]:
        """Name the authentication scheme that the portal itself supports."""
        return {"WWW-Authenticate": 'Bearer realm="slurmscope"'}


class Refused(SignInError):
    """The identity is not trusted, or has no access."""


class SignInUnavailable(SignInError):
    """The identity cannot be checked now."""

    status = 503

    def __init__(self, reason: str, *, retry_after_seconds: int) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return when to try again."""
        return {"Retry-After": str(self.retry_after_seconds)}


class TooManyCredentials(Refused):
    """Too many munge credentials came from this address: each costs a process."""

    status = 429

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"Too many munge credentials from this address. Try again in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return when to try again."""
        return {"Retry-After": str(self.retry_after_seconds)}


class TooManyFailures(Refused):
    """Too many wrong tokens came from this address."""

    status = 429

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"Too many wrong tokens from this address. Try again in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return when to try again."""
        return {"Retry-After": str(self.retry_after_seconds)}

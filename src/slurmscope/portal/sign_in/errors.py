# SPDX-License-Identifier: Apache-2.0
"""Define why a request is rejected.

::

    SignInError                a message for the page, and the status code
    ├── NotSignedIn            no identity was given (401)
    ├── SignInUnavailable      the identity cannot be checked now (503)
    └── Refused                the identity is not trusted, or has no access (403)
        └── TooMany            too many wrong tokens or munge credentials from this address (429)
"""

from __future__ import annotations

from slurmscope.core.errors import SlurmscopeError


class SignInError(SlurmscopeError):
    """Reject a request; ``reason`` can be shown to the client, because it repeats nothing from the request."""

    status = 403

    def __init__(self, reason: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return additional response headers."""
        return {} if self.retry_after_seconds is None else {"Retry-After": str(self.retry_after_seconds)}


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


class TooMany(Refused):
    """Too many wrong tokens, or too many munge credentials, which cost a process each, came from this address."""

    status = 429

    def __init__(self, what: str, retry_after_seconds: int) -> None:
        reason = f"Too many {what} from this address. Try again in {retry_after_seconds} s."
        super().__init__(reason, retry_after_seconds=retry_after_seconds)

# SPDX-License-Identifier: Apache-2.0
"""Name the ways in which the portal turns somebody away.

::

    SignInError                one sentence for the page, and the status to send
    ├── NotSignedIn            nobody said who is there (401)
    └── Refused                what was said is not believed, or not allowed (403)
        └── TooManyFailures    this address guessed too often (429)
"""

from __future__ import annotations

from slurmscope.errors import SlurmscopeError


class SignInError(SlurmscopeError):
    """Tell why somebody is turned away; ``reason`` is fit to be shown, for it repeats nothing that was sent."""

    status = 403

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def headers(self) -> dict[str, str]:
        """Return what the answer's head has to say beside its status."""
        return {}


class NotSignedIn(SignInError):
    """Nobody said who is there."""

    status = 401

    @property
    def headers(self) -> dict[str, str]:
        """Name the way in that the portal itself has."""
        return {"WWW-Authenticate": 'Bearer realm="slurmscope"'}


class Refused(SignInError):
    """What was said is not believed, or not allowed."""


class TooManyFailures(Refused):
    """This address gave too many wrong tokens."""

    status = 429

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"Too many wrong tokens came from this address. Try again in {retry_after_seconds} seconds.")
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Say when to come back."""
        return {"Retry-After": str(self.retry_after_seconds)}

# SPDX-License-Identifier: Apache-2.0
"""Let the portal identify users of the cluster by munge.

The payload names the portal, so that a credential is of no use for another one. munged accepts each credential once,
and for a few minutes only.
"""

from __future__ import annotations

import math
import pwd
import threading
from collections.abc import Callable, Mapping

from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError, SourceError
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.settings import USER_NAME, PortalSettings
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, SignInUnavailable, TooMany
from slurmscope.reports.settings import MailSettings
from slurmscope.slurm.munge import MungeCredential, decode_credential, find_munge_socket, make_payload
from slurmscope.trace.callers import limit_posts

PARALLEL_DECODES = 4
WAIT_SECONDS = 2.0
"""How long a request waits while others are decoded; each takes a process of a few milliseconds."""

_SCHEME = "munge"
_API = "/api/"


def read_credential(scope: Scope) -> str | None:
    """Return the munge credential of the Authorization header; None without one or for another scheme."""
    values = header_values(scope, "authorization")
    scheme, _, credential = (values[0] if values else b"").decode("latin-1").partition(" ")
    return credential.strip(" ") if scheme.lower() == _SCHEME else None


class MungeCredentials:
    """Find the user who made a credential. Safe to use from any thread.

    ``decode`` returns None for a credential that munged refuses and raises SourceError if munged does not respond;
    ``find_name`` returns the name of a user ID; ``wait_seconds`` limits how often one address may send credentials.
    """

    def __init__(
        self,
        portal: ServerAddress,
        *,
        decode: Callable[[str], MungeCredential | None],
        find_name: Callable[[int], str | None],
        wait_seconds: Callable[[str], float],
    ) -> None:
        self._portal = portal
        self._decode = decode
        self._find_name = find_name
        self._wait_seconds = wait_seconds
        self._decoding = threading.BoundedSemaphore(PARALLEL_DECODES)

    def find_user(self, credential: str, scope: Scope, client: str) -> str:
        """Return the user name, or raise SignInError."""
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
        if scope["method"] != "GET" or not path.startswith(_API):
            raise NotSignedIn("Munge credentials are accepted for GET requests to the API only.")
        if wait_seconds := self._wait_seconds(client):
            raise TooMany("munge credentials", math.ceil(wait_seconds))
        decoded = self._decode_soon(credential)
        if decoded is None:
            raise NotSignedIn("The munge credential is not valid, has expired, or was used before.")
        if decoded.payload.strip() != make_payload(self._portal).encode():
            raise NotSignedIn(f"The munge credential is for another portal: this one is {self._portal}.")
        name = self._find_name(decoded.uid)
        if name is None or not USER_NAME.fullmatch(name):
            raise Refused(f"The portal's host does not know user ID {decoded.uid}.")
        return name

    def _decode_soon(self, credential: str) -> MungeCredential | None:
        if not self._decoding.acquire(timeout=WAIT_SECONDS):
            raise SignInUnavailable("Too many munge credentials at the same time.", retry_after_seconds=1)
        try:
            return self._decode(credential)
        except SourceError as error:
            raise SignInUnavailable("munged on the portal's host does not answer.", retry_after_seconds=10) from error
        finally:
            self._decoding.release()


CREDENTIALS_PER_SECOND = 20.0
"""Munge credentials of one address, such as a login node: each costs a process."""


def open_munge(config: Config, environment: Mapping[str, str]) -> MungeCredentials | None:
    """Return what checks munge credentials, None if they are not accepted; raise ConfigError without a portal URL."""
    if not config.of(PortalSettings).munge:
        return None
    try:
        portal = parse_address(config.of(MailSettings).portal_url)
    except ValueError as error:
        raise ConfigError(
            "portal.munge needs the address that users call the portal by, such as mail.portal-url = "
            '"https://jobs.example.org": a credential is valid for that portal only'
        ) from error
    socket_path = find_munge_socket(environment)
    return MungeCredentials(
        portal,
        decode=lambda text: decode_credential(text, socket_path, environment),
        find_name=_find_name,
        wait_seconds=limit_posts(CREDENTIALS_PER_SECOND).take,
    )


def _find_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None

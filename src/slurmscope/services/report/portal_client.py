# SPDX-License-Identifier: Apache-2.0
"""Send requests to the API of a portal, with the user's token or munge credential.

Redirects are not followed, and nothing that proves who the user is leaves this host without TLS.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from slurmscope import __version__
from slurmscope.errors import (
    AmbiguousName,
    CommandError,
    CommandMissing,
    ConfigError,
    ServerBusy,
    ServerError,
    ServerRefused,
)
from slurmscope.http_client.address import ServerAddress
from slurmscope.http_client.request import HttpAnswer, HttpRequest, send, tls_context
from slurmscope.http_client.token_file import TokenFile
from slurmscope.log import escape
from slurmscope.portal.sign_in.munge_credential import make_payload
from slurmscope.portal.views.page_paths import is_cluster
from slurmscope.services.reporting.client_settings import ClientSettings, is_private
from slurmscope.sources.slurm.munge import make_credential

ANSWER_LIMIT_BYTES = 64 << 20
_MESSAGE_LIMIT = 500

T = TypeVar("T")


class _Choice(msgspec.Struct):
    cluster: str


class _Choices(msgspec.Struct):
    choices: tuple[_Choice, ...]


class PortalClient:
    """Read answers of the API; every failure is a SlurmscopeError with what to do."""

    def __init__(self, address: ServerAddress, settings: ClientSettings, environment: Mapping[str, str]) -> None:
        """Choose how to authenticate; the portal is not called yet."""
        self.address = address
        self._settings = settings
        self._credentials = choose_credentials(address, settings, environment)
        self._tls = tls_context(settings.ca_file) if address.is_tls else None

    def get(self, path: str, decode: Callable[[bytes], T], *, job: str = "") -> T | None:
        """Return a decoded answer; None if the portal answers that it has no such thing.

        Raises AmbiguousName if ``job``, whose ID the path names, exists in several clusters.
        """
        answer = self._send(path)
        if answer.status == 404:
            return None
        if answer.status == 300 and (clusters := _find_choices(answer.body)):
            raise AmbiguousName("job", job, clusters)
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            return decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(answer.body) from error

    def _send(self, path: str) -> HttpAnswer:
        headers = {"Accept": "application/json", **self._credentials()}
        return send(
            self.address,
            HttpRequest(path=path, headers=headers),
            deadline=time.monotonic() + self._settings.timeout,
            tls=self._tls,
            limit_bytes=ANSWER_LIMIT_BYTES,
        )

    def _refusal(self, answer: HttpAnswer) -> ServerError:
        reason = _find_reason(answer.body)
        if 300 <= answer.status < 400:
            return ServerRefused(
                f"{self.address} redirects to another address, which is not followed; set portal.url to the portal "
                "itself, whose /api/ must not require interactive sign-in"
            )
        if answer.status == 401:
            return ServerRefused(f"{self.address} did not accept your identity: {reason}")
        if answer.status in {429, 503}:
            return ServerBusy(f"{self.address} is busy: {reason}")
        return ServerRefused(f"{self.address} answered with status {answer.status}: {reason}")

    def _unreadable(self, body: bytes) -> ServerError:
        if body.lstrip()[:1] not in {b"{", b"["}:
            return ServerError(
                f"{self.address} did not answer with JSON; set portal.url to a slurmscope portal, whose /api/ must not "
                "require interactive sign-in"
            )
        return ServerError(
            f"{self.address} runs another release of slurmscope, whose answer this one ({__version__}) cannot read; "
            "install the portal's release here"
        )


def choose_credentials(
    address: ServerAddress, settings: ClientSettings, environment: Mapping[str, str]
) -> Callable[[], Mapping[str, str]]:
    """Return what makes the headers of each request: with the token if there is a file, else with munge.

    A portal in local mode knows users on its own host without either.
    """
    is_safe = is_private(address) or settings.token_over_http
    try:
        path = settings.token_file.expanduser()
    except RuntimeError as error:
        raise ConfigError("your home directory is not known; set portal.token-file") from error
    if _is_there(path):
        if not is_safe:
            raise _clear_text(address, "token")
        check_private_file(path)
        token = TokenFile(path)
        return lambda: {"Authorization": f"Bearer {token.read()}"}
    if not is_safe:
        raise _clear_text(address, "munge credential")
    payload = make_payload(address)

    def sign() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Munge {make_credential(payload, environment)}"}
        except CommandError as error:
            if not address.is_tls:
                return {}
            if not isinstance(error, CommandMissing):
                raise
            raise ConfigError(
                f"there is neither a portal token in {path} nor the program munge on this host; put a token there, "
                "which the administrators of the portal create with slurmscope token create"
            ) from error

    return sign


def _is_there(path: Path) -> bool:
    """Return whether a file exists; one in a folder that the user may not enter does not."""
    try:
        return path.exists()
    except OSError:
        return False


def check_private_file(path: Path) -> None:
    """Raise ConfigError for a token file that others may read or write."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot read the token file {escape(str(path))}: {error.strerror}") from error
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"other users can access the token file {escape(str(path))}; run chmod 600 on it")


def _clear_text(address: ServerAddress, what: str) -> ConfigError:
    return ConfigError(
        f"your {what} would be sent to {address} in clear text; use https:// or set portal.token-over-http"
    )


def _find_choices(body: bytes) -> tuple[str, ...]:
    """Return the clusters that the portal offers to choose from."""
    try:
        found = msgspec.json.decode(body, type=_Choices).choices
    except msgspec.MsgspecError:
        return ()
    return tuple(each.cluster for each in found if is_cluster(each.cluster))


def _find_reason(body: bytes) -> str:
    """Return the sentence of the portal, made safe to show."""
    try:
        error = msgspec.json.decode(body, type=dict[str, object]).get("error")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = None
    return escape(error, _MESSAGE_LIMIT) if isinstance(error, str) and error else "it gave no reason"

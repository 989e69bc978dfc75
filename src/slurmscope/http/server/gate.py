# SPDX-License-Identifier: Apache-2.0
"""Enforce the web configuration file, which may change at any time.

The file is checked for every connection and request, and reloaded when it or a file it names has changed. While it is
invalid, all requests are refused. A change removes TLS, client certificates or passwords as a whole only by an explicit
word, or when the administrator reloads the service: a file that is being written looks as if they were gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.errors import ConfigError, MissingExtraError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.core.watched_file import Watch, WatchedFile
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Header, Response, text_response

if TYPE_CHECKING:
    from slurmscope.http.server.auth import BasicAuth
    from slurmscope.http.server.tls import TlsServer
    from slurmscope.http.server.webconfig import WebConfig

logger = logging.getLogger(__name__)

_REMOVALS = {
    "basic_auth_users": "basic_auth_users: {}",
    "tls_server_config": "tls_server_config: {}",
    "client_auth_type": "client_auth_type: NoClientCert",
    "client_allowed_sans": "client_auth_type: NoClientCert",
}
"""What a file says that removes a protection on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What clients must fulfil; by default all requests are allowed."""

    tls: TlsServer | None = None
    auth: BasicAuth | None = None
    limiter: TokenBuckets | None = None
    headers: tuple[Header, ...] = ()
    is_closed: bool = False

    @property
    def are_clients_authenticated(self) -> bool:
        """Return whether every client needs a password or a certificate."""
        return self.auth is not None or (self.tls is not None and self.tls.requires_certificate)

    def refuse(self, request: HttpRequest, *, has_credential: bool = False) -> Response | None:
        """Return the response to a request that is refused, None if it is allowed.

        One that the app itself authenticates (``has_credential``) needs no password.
        """
        if self.is_closed:
            return text_response(500, "The web configuration of this server is invalid; its log says why.")
        if self.limiter is not None and self.limiter.take():
            return text_response(429, "Too many requests.")
        return self.auth.refuse(request) if self.auth is not None and not has_credential else None


Gate = Callable[[], Rules]
"""Return the current rules; fast, and safe from any thread."""


def open_gate(config_file: Path | None) -> Gate:
    """Return the gate of a file, or one that allows everything."""
    if config_file is not None:
        return FileGate(config_file).rules
    rules = Rules()
    return lambda: rules


class FileGate:
    """Keep the rules up to date with a file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file; only here does an invalid one raise ConfigError."""
        self._path = path
        self._config: WebConfig | None = None
        self._watched = WatchedFile(self._load, clock=clock)
        self._last = self._watched.get()

    def rules(self) -> Rules:
        """Return the rules of the current file, or closed ones if it is invalid."""
        try:
            self._last = self._watched.get()
        except Exception as error:  # noqa: BLE001 - any failure closes
            if not self._last.is_closed:
                logger.error(
                    "web configuration is invalid, all requests are refused", extra=fields(str(error), error=error)
                )
                # TLS stays: a client must not be answered in clear text, not even to be refused.
                self._last = replace(self._last, is_closed=True)
        return self._last

    def accept(self) -> None:
        """Read the file now, and accept that protections are gone: the administrator says that it is complete."""
        before, self._config = self._config, None
        try:
            self._last = self._watched.reload()
        except Exception:  # noqa: BLE001 - the next request logs it
            self._config = before

    def _load(self, watch: Watch) -> Rules:
        from slurmscope.http.server.webconfig import read_web_config

        try:
            watch(self._path)
            config = read_web_config(self._path)
            for file in config.tls.files if config.tls else ():
                watch(file)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
        if self._config is not None and (loss := lost_protection(self._config, config)):
            raise ConfigError(
                f"{self._path} no longer has {loss}; reload the service to accept that, or write {_REMOVALS[loss]}"
            )
        rules = _open_rules(config)
        if self._config is not None:
            logger.info("web configuration reloaded", extra=fields(file=self._path))
        self._config = config
        return rules


def lost_protection(before: WebConfig, after: WebConfig) -> str | None:
    """Return the name of a protection that was configured before and is missing, without a word that removes it."""
    return next((name for name in _lost(before, after) if name not in after.removed), None)


def _lost(before: WebConfig, after: WebConfig) -> Iterator[str]:
    if before.users and not after.users:
        yield "basic_auth_users"
    if before.tls is None:
        return
    if after.tls is None:
        yield "tls_server_config"
        return
    if before.tls.client_auth is not after.tls.client_auth and after.tls.client_auth.value == "NoClientCert":
        yield "client_auth_type"
    if before.tls.client_allowed_sans and not after.tls.client_allowed_sans:
        yield "client_allowed_sans"


def _open_rules(config: WebConfig) -> Rules:
    """Import only what the file needs: ssl takes several megabytes, and bcrypt is an extra."""
    tls, auth, limiter = None, None, None
    if config.tls is not None:
        from slurmscope.http.server.tls import TlsServer

        tls = TlsServer(config.tls)
    if config.users:
        from slurmscope.http.server.webconfig import FEATURE

        try:
            from slurmscope.http.server.auth import BasicAuth
        except ImportError as error:
            raise MissingExtraError(FEATURE, "auth") from error
        auth = BasicAuth(config.users)
    if config.rate_limit is not None:
        limiter = TokenBuckets(1 / config.rate_limit.interval_seconds, config.rate_limit.burst)
    return Rules(tls=tls, auth=auth, limiter=limiter, headers=config.headers)

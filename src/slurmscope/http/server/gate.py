# SPDX-License-Identifier: Apache-2.0
"""Enforce the web configuration file, which may change at any time.

The file is checked for every connection and request, and reloaded when it or a file it names has changed. While it is
invalid, all requests are refused. A change may not remove TLS, client certificates or passwords as a whole: a file
that is being written looks just like that.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.errors import ConfigError, MissingExtraError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Header, Response, text_response

if TYPE_CHECKING:
    from slurmscope.http.server.auth import BasicAuth
    from slurmscope.http.server.tls import TlsServer
    from slurmscope.http.server.webconfig import WebConfig

logger = logging.getLogger(__name__)


_RETRY_SECONDS = 1.0


Signature = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Hold what clients must fulfil; by default all requests are allowed."""

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
        self._clock = clock
        self._lock = threading.Lock()
        self._config, self._rules, self._signature = _load(path)
        self._tried_at = clock()

    def rules(self) -> Rules:
        """Return the rules of the current file, or closed ones if it is invalid."""
        with self._lock:
            is_due = self._rules.is_closed and self._clock() - self._tried_at >= _RETRY_SECONDS
            if is_due or self._signature != _signature(_files(self._path, self._config)):
                self._reload()
            return self._rules

    def _reload(self) -> None:
        self._tried_at = self._clock()
        # Taken before reading: what changes meanwhile is seen the next time.
        self._signature = _signature(_files(self._path, self._config))
        # Closed first, so that any failure below leaves it closed. TLS stays: a client must not be answered in
        # clear text, not even to be refused.
        was_closed = self._rules.is_closed
        self._rules = replace(self._rules, is_closed=True)
        try:
            config, rules, signature = _load(self._path)
            if loss := lost_protection(self._config, config):
                raise ConfigError(f"{self._path} no longer has {loss}; restart to accept that")
        except SlurmscopeError as error:
            if not was_closed:
                logger.error(
                    "web configuration is invalid, all requests are refused", extra=fields(str(error), error=error)
                )
            return
        logger.info("web configuration reloaded", extra=fields(file=self._path))
        self._config, self._rules, self._signature = config, rules, signature


def lost_protection(before: WebConfig, after: WebConfig) -> str | None:
    """Return the name of a protection that was configured before and is now missing."""
    if before.users and not after.users:
        return "basic_auth_users"
    if before.tls is None:
        return None
    if after.tls is None:
        return "tls_server_config"
    if before.tls.client_auth is not after.tls.client_auth and after.tls.client_auth.value == "NoClientCert":
        return "client_auth_type"
    if before.tls.client_allowed_sans and not after.tls.client_allowed_sans:
        return "client_allowed_sans"
    return None


def _load(path: Path) -> tuple[WebConfig, Rules, Signature]:
    from slurmscope.http.server.webconfig import read_web_config

    own_signature = _signature([path])
    _check_regular(path)
    config = read_web_config(path)
    others = _files(path, config)[1:]
    signature = (*own_signature, *_signature(others))
    for file in others:
        _check_regular(file)
    rules = Rules(
        tls=_open_tls(config),
        auth=_open_auth(config),
        limiter=_open_limiter(config),
        headers=config.headers,
    )
    return config, rules, signature


def _open_limiter(config: WebConfig) -> TokenBuckets | None:
    if config.rate_limit is None:
        return None
    return TokenBuckets(1 / config.rate_limit.interval_seconds, config.rate_limit.burst)


def _open_tls(config: WebConfig) -> TlsServer | None:
    if config.tls is None:
        return None
    from slurmscope.http.server.tls import TlsServer

    return TlsServer(config.tls)


def _open_auth(config: WebConfig) -> BasicAuth | None:
    if not config.users:
        return None
    from slurmscope.http.server.webconfig import FEATURE

    try:
        from slurmscope.http.server.auth import BasicAuth
    except ImportError as error:
        raise MissingExtraError(FEATURE, "auth") from error
    return BasicAuth(config.users)


def _files(path: Path, config: WebConfig) -> tuple[Path, ...]:
    return (path, *(config.tls.files if config.tls else ()))


def _signature(files: Iterable[Path]) -> Signature:
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - four times per request, and a third cheaper
    except OSError:
        return None
    # The change time reveals a new mode or owner, and a copy that kept its modification time.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


def _check_regular(file: Path) -> None:
    """Refuse a pipe or a device: reading it could block forever."""
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{file} is not a regular file")

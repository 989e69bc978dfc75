# SPDX-License-Identifier: Apache-2.0
"""Serve the portal by uvicorn, with the options that its safety rests on."""

from __future__ import annotations

import contextlib
import errno
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.errors import ConfigError, MissingExtraError
from slurmscope.portal.scope import AsgiApp
from slurmscope.portal.settings import PROXY, ListenAddress, PortalSettings
from slurmscope.portal.web.head_requests import HeadRequests
from slurmscope.portal.web.request_limits import HEAD_LIMIT_BYTES, RequestLimits
from slurmscope.portal.web.security_headers import SecurityHeaders

if TYPE_CHECKING:
    import uvicorn

CONNECTION_LIMIT = 1000
GRACEFUL_SECONDS = 8
OWN_SOCKET_MODE = 0o600
PROXY_SOCKET_MODE = 0o660
"""Whoever may open the socket is believed: the portal's user, and with a proxy in front, its group."""


def make_server(app: AsgiApp, settings: PortalSettings) -> uvicorn.Server:
    """Return a server that is run by ``await server.serve(sockets=[open_listener(settings.listen_address)])``.

    The proxy is let in from now on: its socket was only ours before, as it stays in the local mode.
    """
    try:
        import uvicorn

        from slurmscope.portal.web.head_deadline import HeadDeadline
    except ImportError as error:
        raise MissingExtraError("the portal", "portal") from error
    if settings.mode == PROXY and settings.listen_address.socket_path:
        Path(settings.listen_address.socket_path).chmod(PROXY_SOCKET_MODE)
    config = uvicorn.Config(
        protect(app, settings),
        # The peer's address is what we believe or not; by default uvicorn would replace it by what a header says.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        http=HeadDeadline,
        ws="none",
        limit_concurrency=CONNECTION_LIMIT,
        h11_max_incomplete_event_size=2 * HEAD_LIMIT_BYTES,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    return uvicorn.Server(config)


def protect(app: AsgiApp, settings: PortalSettings) -> AsgiApp:
    """Wrap an application in what every answer needs, its error pages included."""
    return SecurityHeaders(RequestLimits(HeadRequests(app)), identity_header=settings.proxy_header)


def open_listener(address: ListenAddress) -> socket.socket:
    """Listen on a port or a unix socket, or say in one sentence why that is not possible."""
    try:
        if address.socket_path:
            return _listen_on_path(Path(address.socket_path))
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error


def _listen_on_path(path: Path) -> socket.socket:
    _remove_dead_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Nobody can connect before we listen, so nobody gets in before the mode is set.
        path.chmod(OWN_SOCKET_MODE)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead_socket(path: Path) -> None:
    """Remove what a portal left behind that was killed; a socket that somebody listens on stays."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()

# SPDX-License-Identifier: Apache-2.0
"""Serve the portal with uvicorn, with the options that its security depends on."""

from __future__ import annotations

import contextlib
import errno
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.errors import ConfigError, MissingExtraError
from slurmscope.portal.scope import AsgiApp
from slurmscope.portal.settings import PROXY, ListenAddress, PortalSettings
from slurmscope.portal.web.middleware import MAX_HEAD_BYTES, protect

if TYPE_CHECKING:
    import uvicorn


MAX_CONNECTIONS = 1000
BACKLOG = 128
GRACEFUL_SECONDS = 8
OWN_SOCKET_MODE = 0o600
PROXY_SOCKET_MODE = 0o660
"""Everyone who can open the socket is trusted: the portal's user, and in proxy mode its group."""


def make_server(app: AsgiApp, settings: PortalSettings) -> uvicorn.Server:
    """Return a server; run it with ``await server.serve(sockets=[open_listener(settings.listen_address)])``.

    In proxy mode, this opens the unix socket to its group.
    """
    try:
        import uvicorn

        from slurmscope.portal.web.connections import HeadDeadline
    except ImportError as error:
        raise MissingExtraError("the portal", "portal") from error
    if settings.mode == PROXY and settings.listen_address.socket_path:
        Path(settings.listen_address.socket_path).chmod(PROXY_SOCKET_MODE)
    config = uvicorn.Config(
        protect(app, identity_header=settings.proxy_header),
        # Trust depends on the peer address; by default uvicorn replaces it with the value of a header.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        http=HeadDeadline,
        # Our layers expect requests only.
        ws="none",
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        # Also how many connections are accepted before those that wait too long are closed.
        backlog=BACKLOG,
        h11_max_incomplete_event_size=2 * MAX_HEAD_BYTES,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    return uvicorn.Server(config)


def open_listener(address: ListenAddress) -> socket.socket:
    """Listen on a port or a unix socket; raise a ConfigError if that fails."""
    try:
        if address.socket_path:
            return _listen_on_path(Path(address.socket_path))
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"{address} is already in use; choose another address with --portal.listen-address"
            ) from error
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error


def _listen_on_path(path: Path) -> socket.socket:
    _remove_stale_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Connections are possible only after listen(), when the mode is already set.
        path.chmod(OWN_SOCKET_MODE)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a portal that was killed; a socket in use is kept."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()

# SPDX-License-Identifier: Apache-2.0
"""Configure TLS, and connect with it."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from pathlib import Path

from slurmscope.http.server.address import ListenHost
from tests.fakes.certificates import Authority, Identity
from tests.fakes.raw_http import Answer, ask, connect

Write = Callable[[str], Path]


def tls_section(server: Identity, *further: str) -> str:
    lines = (f"cert_file: {server.cert}", f"key_file: {server.key}", *further)
    return "tls_server_config:\n" + "".join(f"  {line}\n" for line in lines)


def client_context(certificates: Authority, client: Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority.cert)
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    return context


def connect_tls(address: ListenHost, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = connect(address)
    try:
        return context.wrap_socket(plain, server_hostname="localhost")
    except BaseException:
        plain.close()
        raise


def get_tls(address: ListenHost, context: ssl.SSLContext, target: str = "/metrics", **headers: str) -> Answer:
    with connect_tls(address, context) as sock:
        return ask(sock, target, **headers)


def is_refused(address: ListenHost, context: ssl.SSLContext) -> bool:
    """Return whether the page is refused; with TLS 1.3 a client learns that only when it reads."""
    try:
        return get_tls(address, context).status != 200
    except (OSError, http.client.HTTPException):
        return True

# SPDX-License-Identifier: Apache-2.0
"""Serve TLS as set in the web configuration.

Only imported if TLS is enabled: the ssl module costs several megabytes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.webconfig import ClientAuth, TlsSettings

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_TLS13_CIPHERS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}


NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the ssl module does not name."""
_TURNS = 10


class ClientRefused(OSError):
    """The certificate of a client is valid but its names are not allowed."""


class TlsServer:
    """The certificate of the server and its requirements for clients; immutable."""

    def __init__(self, settings: TlsSettings) -> None:
        """Load certificate, key and authorities; raise ConfigError naming the one that cannot be used."""
        self._settings = settings
        self._context = _make_context(settings)
        self._allowed = frozenset(_normal(name) for name in settings.client_allowed_sans)
        self.expiry_seconds = _read_expiry(settings)
        """Unix time; None if the certificate cannot be read back, which is no reason not to serve it."""

    @property
    def requires_certificate(self) -> bool:
        """Return whether only clients with a valid certificate pass the handshake."""
        return self._settings.client_auth is ClientAuth.REQUIRE_AND_VERIFY

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Wrap a socket without starting the handshake."""
        return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def handshake(self, sock: socket.socket, timeout_seconds: float) -> None:
        """Do the handshake and check the names of the client certificate."""
        assert isinstance(sock, ssl.SSLSocket)  # noqa: S101 - comes from wrap()
        sock.settimeout(timeout_seconds)
        sock.do_handshake()
        if self._allowed and not self._allowed.intersection(_names(sock)):
            raise ClientRefused("no name of the client's certificate is in client_allowed_sans")


def _read_expiry(settings: TlsSettings) -> float | None:
    try:
        return float(ssl.cert_time_to_seconds(read_not_after(settings, NO_CHECK_TIME)))
    except (ssl.SSLError, ValueError):
        return None


def read_not_after(settings: TlsSettings, verify_flags: int = 0) -> str:
    """Return the date of expiry of the certificate; raise an SSLError if it is not valid, as far as that is checked.

    A client that trusts this very certificate connects to a server that has it, in memory: the ssl module decodes
    only certificates that it has verified.
    """
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(server_context, settings)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | verify_flags
    with open_pem(settings.cert_file, settings.cert) as cert_path:
        client_context.load_verify_locations(cert_path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for _ in range(_TURNS):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return str((client.getpeercert() or {}).get("notAfter", ""))


def _make_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    if not settings.prefers_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _set_ciphers(context, settings)
    set_curves(context, settings.curve_preferences)
    load_identity(context, settings)
    if settings.client_auth is not ClientAuth.NONE:
        _load_authorities(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.client_ca_file is None and not settings.client_ca:
        context.set_default_verify_paths()
        return
    try:
        context.load_verify_locations(cafile=settings.client_ca_file, cadata=settings.client_ca or None)
    except (OSError, ValueError) as error:
        place = f"client_ca_file {settings.client_ca_file}" if settings.client_ca_file else "client_ca"
        raise ConfigError(f"cannot use {place}: {_reason(error)}") from error


def load_identity(context: ssl.SSLContext, settings: TlsSettings) -> None:
    cert = f"cert_file {settings.cert_file}" if settings.cert_file else "cert"
    key = f"key_file {settings.key_file}" if settings.key_file else "key"

    def no_password() -> str:
        # Without this, OpenSSL would prompt for it at the terminal and wait.
        raise ConfigError(f"{key} is encrypted, which is not supported")

    try:
        with (
            open_pem(settings.cert_file, settings.cert) as cert_path,
            open_pem(settings.key_file, settings.key) as key_path,
        ):
            context.load_cert_chain(cert_path, key_path, password=no_password)
    except OSError as error:
        raise ConfigError(f"cannot use {cert} with {key}: {_reason(error)}") from error


@contextlib.contextmanager
def open_pem(file: Path | None, content: str) -> Iterator[Path]:
    """Yield a path under which OpenSSL reads a file, or content that is in memory only."""
    if file is not None:
        yield file
        return
    descriptor = os.memfd_create("pem")
    try:
        os.write(descriptor, content.encode())
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for name in settings.cipher_suites:
        if name not in _CIPHERS and name not in _TLS13_CIPHERS:
            raise ConfigError(f"cipher_suites: {name!a} is unknown or not secure")
    names = [_CIPHERS[name] for name in settings.cipher_suites if name in _CIPHERS]
    if names:
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError as error:
            raise ConfigError(f"cipher_suites: this OpenSSL has none of them ({_reason(error)})") from error
    elif settings.cipher_suites:
        # TLS 1.3 suites cannot be selected; naming no other leaves none for TLS 1.2.
        if settings.max_version != "TLS13":
            raise ConfigError("cipher_suites has no suite for max_version TLS12")
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def set_curves(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Limit key exchange to these curves, or say why that is not possible."""
    for name in names:
        if name not in _CURVES:
            raise ConfigError(f"curve_preferences: {name!a} is not one of {', '.join(_CURVES)}")
    if not names:
        return
    # From Python 3.15 on; before, a context takes one curve.
    set_groups = getattr(context, "set_groups", None)
    if set_groups is None and len(names) > 1:
        raise ConfigError("curve_preferences: this Python version supports one curve only; name one, or none")
    try:
        if set_groups is not None:
            set_groups(":".join(_CURVES[name] for name in names))
        else:
            context.set_ecdh_curve(_CURVES[names[0]])
    except (ssl.SSLError, ValueError) as error:
        # Python 3.11.2, which is Debian 12's, takes only curves that have an EC key: not X25519.
        raise ConfigError(
            f"curve_preferences: this Python cannot limit TLS to {', '.join(names)}; "
            "name CurveP256, or leave the setting out to offer every curve, X25519 first"
        ) from error


def _names(sock: ssl.SSLSocket) -> Iterator[str]:
    """Yield the subject alternative names of the client certificate: DNS, IP, email, URI."""
    certificate = sock.getpeercert() or {}
    names: tuple[tuple[str, str], ...] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
    for kind, name in names:
        if kind in ("DNS", "IP Address", "email", "URI"):
            yield _normal(name)


def _normal(name: str) -> str:
    """Normalise an IP address; leave any other name unchanged."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name.strip()))
    return name


def _reason(error: Exception) -> str:
    found = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(found).lower().replace("_", " ")

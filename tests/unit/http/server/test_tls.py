# SPDX-License-Identifier: Apache-2.0
"""Check TLS, client certificates and changing files over real connections."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import time
from pathlib import Path

import bcrypt
import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.gate import open_gate
from slurmscope.http.server.tls import set_curves
from tests.fakes.certificates import Authority, Identity, encrypt_key
from tests.fakes.exposition import PAGE, FakeExposition
from tests.fakes.raw_http import GENEROUS_SECONDS, ask, connect, exchange, get, read_all, status_of
from tests.fakes.tls import Write, client_context, connect_tls, get_tls, is_refused, tls_section
from tests.unit.http.server.conftest import Serve


def serial(address: ListenHost, context: ssl.SSLContext) -> object:
    with connect_tls(address, context) as sock:
        certificate = sock.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]


def test_page_is_served_over_tls(serve: Serve, write_config: Write, certificates: Authority) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server)))
    context = client_context(certificates)
    with connect_tls(running.address, context) as sock:
        assert sock.version() == "TLSv1.3"
        assert [PAGE, PAGE] == [ask(sock).body, ask(sock).body]
        assert ask(sock, method="HEAD", Connection="close").status == 200
        assert sock.recv(1) == b""


def test_large_page_is_served_whole_over_tls(serve: Serve, write_config: Write, certificates: Authority) -> None:
    page = [b"x%d 1\n" % number * 20_000 for number in range(20)]
    running = serve(FakeExposition(*page), config_file=write_config(tls_section(certificates.server)))
    assert b"".join(page) == get_tls(running.address, client_context(certificates)).body


def test_end_of_an_http10_page_differs_from_a_cut(serve: Serve, write_config: Write, certificates: Authority) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server)))
    context = client_context(certificates)
    plain = connect(running.address)
    with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert read_all(sock).endswith(PAGE)


def test_old_protocol_versions_are_refused(serve: Serve, write_config: Write, certificates: Authority) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server, "min_version: TLS13")))
    context = client_context(certificates)
    assert not is_refused(running.address, context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert is_refused(running.address, context)


@pytest.mark.parametrize(
    ("expected", "suite"),
    [
        ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ],
)
def test_chosen_cipher_is_used(
    serve: Serve, write_config: Write, certificates: Authority, expected: str, suite: str
) -> None:
    section = tls_section(certificates.server, "max_version: TLS12", f"cipher_suites: [{suite}]")
    with connect_tls(serve(config_file=write_config(section)).address, client_context(certificates)) as sock:
        cipher = sock.cipher()
        assert cipher is not None
        assert expected == cipher[0]


def test_naming_only_ciphers_of_tls13_leaves_tls13(serve: Serve, write_config: Write, certificates: Authority) -> None:
    section = tls_section(certificates.server, "cipher_suites: [TLS_AES_128_GCM_SHA256]")
    running = serve(config_file=write_config(section))
    context = client_context(certificates)
    assert not is_refused(running.address, context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert is_refused(running.address, context)


def test_chosen_curve_is_the_only_one(serve: Serve, write_config: Write, certificates: Authority) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server, "curve_preferences: [CurveP384]")))
    context = client_context(certificates)
    context.set_ecdh_curve("secp384r1")
    assert not is_refused(running.address, context)
    context.set_ecdh_curve("prime256v1")
    assert is_refused(running.address, context)


class WithoutX25519(ssl.SSLContext):
    """Behaves as a context of Python 3.11.2, which takes only curves that have an EC key."""

    def set_ecdh_curve(self, name: str) -> None:
        if name == "X25519":
            raise ssl.SSLError(1, "[EC: UNKNOWN_GROUP] unknown group (_ssl.c:4346)")
        super().set_ecdh_curve(name)


def can_limit_to_x25519() -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve("X25519")
    except ssl.SSLError:
        return False
    return True


def test_x25519_is_the_only_curve_or_refused(serve: Serve, write_config: Write, certificates: Authority) -> None:
    path = write_config(tls_section(certificates.server, "curve_preferences: [X25519]"))
    if not can_limit_to_x25519():
        with pytest.raises(ConfigError, match="curve_preferences: this Python cannot limit TLS to X25519"):
            open_gate(path)
        return
    running = serve(config_file=path)
    context = client_context(certificates)
    assert not is_refused(running.address, context)
    context.set_ecdh_curve("prime256v1")
    assert is_refused(running.address, context)


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_groups"), reason="this Python holds to several curves")
def test_curve_that_this_python_cannot_choose_is_refused() -> None:
    context = WithoutX25519(ssl.PROTOCOL_TLS_SERVER)
    set_curves(context, ("CurveP256",))
    with pytest.raises(
        ConfigError, match=r"^curve_preferences: this Python cannot limit TLS to X25519; name CurveP256"
    ):
        set_curves(context, ("X25519",))


@pytest.mark.parametrize(
    ("sentence", "line"),
    [
        ("TLS_RSA_WITH_RC4_128_SHA' is unknown or not secure", "cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]"),
        ("CurveP1' is not one of", "curve_preferences: [CurveP1]"),
    ],
)
def test_unknown_cipher_or_curve_is_refused(
    write_config: Write, certificates: Authority, sentence: str, line: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_gate(write_config(tls_section(certificates.server, line)))


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_groups"), reason="this Python holds to several curves")
def test_several_curves_are_refused_where_only_one_can_be_held_to(write_config: Write, certificates: Authority) -> None:
    with pytest.raises(ConfigError, match="one curve only"):
        open_gate(write_config(tls_section(certificates.server, "curve_preferences: [X25519, CurveP256]")))


def test_suites_that_leave_nothing_are_refused(write_config: Write, certificates: Authority) -> None:
    section = tls_section(certificates.server, "cipher_suites: [TLS_AES_128_GCM_SHA256]", "max_version: TLS12")
    with pytest.raises(ConfigError, match="has no suite for max_version TLS12"):
        open_gate(write_config(section))


def test_encrypted_key_is_refused_without_a_prompt(
    write_config: Write, certificates: Authority, tmp_path: Path
) -> None:
    encrypt_key(certificates.server.key, tmp_path / "encrypted.key")
    section = tls_section(Identity(certificates.server.cert, tmp_path / "encrypted.key"))
    with pytest.raises(ConfigError, match="is encrypted"):
        open_gate(write_config(section))


def test_plain_request_to_a_tls_address_is_refused_with_a_message(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server)))
    reply = exchange(running.address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_of(reply) == 400
    assert b"HTTPS" in reply
    assert PAGE not in reply


def test_swapped_certificate_serves_the_next_connection(
    serve: Serve, write_config: Write, certificates: Authority, tmp_path: Path
) -> None:
    live = Identity(tmp_path / "live.pem", tmp_path / "live.key")

    def install(identity: Identity) -> None:
        shutil.copy(identity.cert, live.cert)
        shutil.copy(identity.key, live.key)

    install(certificates.server)
    address = serve(config_file=write_config(tls_section(live))).address
    context = client_context(certificates)
    before = serial(address, context)
    install(certificates.other_server)
    after = serial(address, context)
    assert before != after
    shutil.copy(certificates.server.cert, live.cert)
    assert is_refused(address, context)
    shutil.copy(certificates.server.key, live.key)
    assert before == serial(address, context)


def test_broken_file_refuses_the_handshake_until_it_is_good(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    good = tls_section(certificates.server)
    running = serve(config_file=write_config(good))
    context = client_context(certificates)
    for broken in ("tls_server_config: [", "", "http_server_config: {}"):
        write_config(broken)
        assert is_refused(running.address, context)
        assert PAGE not in exchange(running.address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not running.server.is_config_good
        write_config(good)
        assert get_tls(running.address, context).body == PAGE
        assert running.server.is_config_good


def test_plain_connection_ends_when_tls_is_switched_on(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    running = serve(config_file=write_config(""))
    with connect(running.address) as sock:
        assert ask(sock).status == 200
        write_config(tls_section(certificates.server))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(sock) == b""
    assert get_tls(running.address, client_context(certificates)).body == PAGE


def test_password_is_required_on_every_path(serve: Serve, write_config: Write) -> None:
    digest = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    headers = "http_server_config: {headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff}}\n"
    address = serve(config_file=write_config(f"basic_auth_users: {{alice: {digest}}}\n{headers}")).address
    for path in ("/metrics", "/", "/-/healthy", "/-/ready", "/nothing"):
        refused = get(address, path)
        assert (401, "deny") == (refused.status, refused.headers["x-frame-options"])
        assert "basic" in refused.headers["www-authenticate"].lower()
        assert get(address, path, Authorization="Basic YWxpY2U6d3Jvbmc=").status == 401
    answer = get(address, Authorization="Basic YWxpY2U6c2VjcmV0")
    assert (200, PAGE, "deny", "nosniff") == (
        answer.status,
        answer.body,
        answer.headers["x-frame-options"],
        answer.headers["x-content-type-options"],
    )


def test_body_of_an_unknown_sender_is_not_read(serve: Serve, write_config: Write) -> None:
    digest = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    address = serve(config_file=write_config(f"basic_auth_users: {{alice: {digest}}}\n")).address
    with connect(address) as sock:
        answer = ask(sock, method="POST", Content_Length="1000", Expect="100-continue")
        assert (401, "close") == (answer.status, answer.headers["connection"])


def test_silent_clients_and_half_handshakes_delay_no_other(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    config = write_config(tls_section(certificates.server))
    # Longer than our own request may take.
    address = serve(config_file=config, limits=ConnectionLimits(handshake_seconds=600.0)).address
    context = client_context(certificates)
    with contextlib.ExitStack() as stack:
        for number in range(201):
            sock = stack.enter_context(connect(address))
            sock.sendall(b"\x16\x03\x01\x02"[: number % 5])
        assert get_tls(address, context).body == PAGE


def test_handshake_has_a_deadline(serve: Serve, write_config: Write, certificates: Authority) -> None:
    config = write_config(tls_section(certificates.server))
    address = serve(config_file=config, limits=ConnectionLimits(handshake_seconds=0.2)).address
    for greeting in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
        with connect(address) as sock:
            sock.sendall(greeting)
            until = time.monotonic() + GENEROUS_SECONDS
            read_all(sock)
            assert time.monotonic() < until


def test_closing_server_ends_tls_connections(serve: Serve, write_config: Write, certificates: Authority) -> None:
    running = serve(config_file=write_config(tls_section(certificates.server)))
    with connect_tls(running.address, client_context(certificates)) as kept, connect(running.address) as silent:
        assert ask(kept).status == 200
        assert running.server.close(5) == 0
        with contextlib.suppress(ssl.SSLError):
            assert kept.recv(1) == b""
        assert read_all(silent) == b""
    with pytest.raises(OSError), socket.create_connection((running.address.host, running.address.port), timeout=5):
        pass

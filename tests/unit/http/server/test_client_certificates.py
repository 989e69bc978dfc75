# SPDX-License-Identifier: Apache-2.0
"""Check which client certificates are accepted, over real connections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.exporter.doctor import check_certificate
from slurmscope.http.server.gate import open_gate
from tests.fakes.certificates import Authority, make_authority, make_identity
from tests.fakes.exposition import PAGE
from tests.fakes.raw_http import ask, read_all
from tests.fakes.tls import Write, client_context, connect_tls, get_tls, is_refused, tls_section
from tests.unit.http.server.conftest import Serve


def test_file_that_holds_no_authority_is_refused(write_config: Write, certificates: Authority) -> None:
    section = required(certificates).replace(str(certificates.authority.cert), str(certificates.authority.key))
    with pytest.raises(ConfigError, match="cannot use client_ca_file"):
        open_gate(write_config(section))


def required(certificates: Authority, *further: str) -> str:
    return tls_section(
        certificates.server,
        "client_auth_type: RequireAndVerifyClientCert",
        f"client_ca_file: {certificates.authority.cert}",
        *further,
    )


def test_client_certificate_is_required_and_verified(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    address = serve(config_file=write_config(required(certificates))).address
    assert get_tls(address, client_context(certificates, certificates.client)).body == PAGE
    assert is_refused(address, client_context(certificates))
    assert is_refused(address, client_context(certificates, certificates.stranger))


def test_clients_are_authenticated_only_if_all_of_them_need_a_certificate(
    write_config: Write, certificates: Authority
) -> None:
    all_of_them = required(certificates)
    some = all_of_them.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    assert open_gate(write_config(all_of_them))().are_clients_authenticated
    assert not open_gate(write_config(some))().are_clients_authenticated
    assert not open_gate(write_config(tls_section(certificates.server)))().are_clients_authenticated
    assert not open_gate(None)().are_clients_authenticated


def test_client_certificate_is_verified_if_given(serve: Serve, write_config: Write, certificates: Authority) -> None:
    section = required(certificates).replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    address = serve(config_file=write_config(section)).address
    assert get_tls(address, client_context(certificates)).body == PAGE
    assert get_tls(address, client_context(certificates, certificates.client)).body == PAGE
    assert is_refused(address, client_context(certificates, certificates.stranger))


@pytest.mark.parametrize(
    ("is_allowed", "name"),
    [
        (True, "scraper.example"),
        (True, "fd00:0::1"),
        (True, "a@b.example"),
        (True, "spiffe://x/y"),
        (False, "client"),
        (False, "other.example"),
        (False, "*.example"),
        (False, "SCRAPER.example"),
        (False, "fd00::2"),
    ],
)
def test_alternative_name_of_the_client_must_be_listed(
    serve: Serve, write_config: Write, certificates: Authority, is_allowed: bool, name: str
) -> None:
    section = required(certificates, f'client_allowed_sans: ["other.example", "{name}"]')
    address = serve(config_file=write_config(section)).address
    assert is_allowed != is_refused(address, client_context(certificates, certificates.client))


def test_certificate_made_for_servers_does_not_pass_for_a_client(
    serve: Serve, write_config: Write, certificates: Authority, tmp_path: Path
) -> None:
    other = make_identity(tmp_path, "srv", certificates.authority, "DNS:scraper.example", usage="serverAuth")
    address = serve(config_file=write_config(required(certificates))).address
    assert is_refused(address, client_context(certificates, other))


def test_kept_connection_ends_when_its_authority_is_replaced(
    serve: Serve, write_config: Write, certificates: Authority, tmp_path: Path
) -> None:
    authorities = tmp_path / "authorities.pem"
    shutil.copy(certificates.authority.cert, authorities)
    section = required(certificates).replace(str(certificates.authority.cert), str(authorities))
    address = serve(config_file=write_config(section)).address
    context = client_context(certificates, certificates.client)
    with connect_tls(address, context) as sock:
        assert ask(sock).status == 200
        shutil.copy(make_authority(tmp_path, "new").cert, authorities)
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(sock) == b""
    assert is_refused(address, context)


def test_certificate_is_verified_if_given_against_the_system_without_an_authority(
    serve: Serve, write_config: Write, certificates: Authority
) -> None:
    section = tls_section(certificates.server, "client_auth_type: VerifyClientCertIfGiven")
    address = serve(config_file=write_config(section)).address
    assert get_tls(address, client_context(certificates)).body == PAGE
    # Its authority is not one of this system.
    assert is_refused(address, client_context(certificates, certificates.client))


def test_certificates_may_be_in_the_file_itself(serve: Serve, write_config: Write, certificates: Authority) -> None:
    def inline(key: str, path: Path) -> str:
        return f"{key}: |\n" + "".join(f"    {line}\n" for line in path.read_text().splitlines())

    lines = (
        inline("cert", certificates.server.cert),
        inline("key", certificates.server.key),
        "client_auth_type: RequireAndVerifyClientCert\n",
        inline("client_ca", certificates.authority.cert),
    )
    path = write_config("tls_server_config:\n" + "".join(f"  {line}" for line in lines))
    address = serve(config_file=path).address
    assert get_tls(address, client_context(certificates, certificates.client)).body == PAGE
    assert is_refused(address, client_context(certificates))
    (check,) = check_certificate(path)
    assert (True, True) == (check.is_good, check.message.startswith("cert is valid until "))


@pytest.mark.parametrize(
    ("sentence", "key"), [("cannot use cert with key: ", "cert"), ("cannot use client_ca: ", "client_ca")]
)
def test_text_in_the_file_that_is_no_certificate_is_refused(
    write_config: Write, certificates: Authority, sentence: str, key: str
) -> None:
    texts = {"cert": certificates.server.cert.read_text(), "key": certificates.server.key.read_text()}
    texts |= {"client_ca": certificates.authority.cert.read_text(), key: "nonsense"}
    section = "".join(f"  {name}: {json.dumps(text)}\n" for name, text in texts.items())
    with pytest.raises(ConfigError, match=sentence):
        open_gate(write_config(f"tls_server_config:\n{section}  client_auth_type: VerifyClientCertIfGiven\n"))

# SPDX-License-Identifier: Apache-2.0
"""Check that the rules follow the web configuration file, and are closed rather than open."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import bcrypt
import pytest

from slurmscope.core.errors import ConfigError, MissingExtraError
from slurmscope.http.server.gate import FileGate, lost_protection, open_gate
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.webconfig import ClientAuth, TlsSettings, WebConfig
from tests.fakes.certificates import Authority

Write = Callable[[str], Path]

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users: {{alice: {HASH}}}\n"


def status(gate: FileGate, password: str | None = None) -> int:
    """Return what a request would get, 200 when nothing stops it."""
    encoded = base64.b64encode(f"alice:{password}".encode()).decode()
    headers = {"authorization": f"Basic {encoded}"} if password else {}
    refusal = gate.rules().refuse(HttpRequest(method="GET", path="/", headers=headers))
    return 200 if refusal is None else refusal.status


def rewrite(path: Path, text: str) -> None:
    """Put another file in place of one, as careful editors do."""
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.replace(path)


def test_gate_without_a_file_is_open() -> None:
    rules = open_gate(None)()
    assert rules.tls is None
    assert rules.refuse(HttpRequest(method="GET", path="/", headers={})) is None


def test_unusable_file_at_the_start_is_an_error(write_config: Write, tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yml", tmp_path, Path("/dev/null"), write_config("a: [")):
        with pytest.raises(ConfigError, match=str(path)):
            open_gate(path)


def test_pipe_in_place_of_a_file_is_refused_and_not_waited_for(write_config: Write, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        open_gate(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        open_gate(write_config("tls_server_config: {cert_file: pipe, key_file: pipe}"))


def test_new_password_is_used_at_once(write_config: Write) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    assert [401, 401, 200] == [status(gate), status(gate, "wrong"), status(gate, "secret")]
    rewrite(path, USERS.replace(HASH, bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()))
    assert [401, 200] == [status(gate, "secret"), status(gate, "new")]


@pytest.mark.parametrize("broken", ["basic_auth_users: {alice: [", "unknown: 1", "basic_auth_users: {alice: plain}"])
def test_broken_file_closes_and_a_good_one_opens(write_config: Write, broken: str) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    rewrite(path, broken)
    assert [500, 500, 500] == [status(gate), status(gate, "secret"), status(gate, "wrong")]
    rewrite(path, USERS)
    assert [401, 200] == [status(gate), status(gate, "secret")]


@pytest.mark.parametrize("cut", ["", "# being written", "http_server_config: {http2: true}\n", "basic_auth_users:\n"])
def test_half_written_file_without_protection_refuses_requests(write_config: Write, cut: str) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    path.write_text(cut)
    assert [500, 500] == [status(gate), status(gate, "secret")]
    path.write_text(USERS)
    assert [401, 200] == [status(gate), status(gate, "secret")]


def test_vanished_file_closes_and_recovers(write_config: Write) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    aside = path.rename(path.with_suffix(".aside"))
    assert status(gate, "secret") == 500
    aside.rename(path)
    assert status(gate, "secret") == 200


def test_every_cut_of_a_file_is_closed_or_as_strict(write_config: Write, certificates: Authority) -> None:
    tls = f"tls_server_config:\n  cert_file: {certificates.server.cert}\n  key_file: {certificates.server.key}\n"
    clients = f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {certificates.authority.cert}\n"
    whole = tls + clients + "  client_allowed_sans:\n  - scraper.example\n" + USERS
    path = write_config(whole)
    gate = FileGate(path)
    for length in range(0, len(whole), 7):
        path.write_text(whole[:length])
        rules = gate.rules()
        assert rules.is_closed or (rules.tls is not None and status(gate) == 401)
        assert rules.tls is not None
    path.write_text(whole)
    assert [401, 200] == [status(gate), status(gate, "secret")]


def test_protection_may_be_added_while_running(write_config: Write) -> None:
    path = write_config("")
    gate = FileGate(path)
    assert status(gate) == 200
    rewrite(path, USERS)
    assert status(gate) == 401


def test_rate_is_limited(write_config: Write) -> None:
    gate = FileGate(write_config("rate_limit: {interval: 1h, burst: 2}"))
    assert [200, 200, 429] == [status(gate) for _ in range(3)]


@pytest.mark.parametrize("module", ["yaml", "bcrypt"])
def test_missing_package_is_named_with_its_extra(
    write_config: Write, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "slurmscope.http.server.auth", raising=False)
    with pytest.raises(MissingExtraError) as caught:
        open_gate(write_config(USERS))
    assert ("--web.config.file", "auth") == (caught.value.feature, caught.value.extra)


def test_bcrypt_is_not_needed_without_users(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    assert open_gate(write_config("rate_limit: {interval: 1s, burst: 1}"))().auth is None


PLAIN = TlsSettings(cert_file=Path("c"), key_file=Path("k"))
OPTIONAL = replace(PLAIN, client_auth=ClientAuth.VERIFY_IF_GIVEN)
REQUIRED = replace(PLAIN, client_auth=ClientAuth.REQUIRE_AND_VERIFY)
NAMED = replace(REQUIRED, client_allowed_sans=("a",))


@pytest.mark.parametrize(
    ("expected", "before", "after"),
    [
        (None, WebConfig(), WebConfig()),
        (None, WebConfig(), WebConfig(tls=NAMED, users={"a": HASH})),
        (None, WebConfig(tls=REQUIRED), WebConfig(tls=OPTIONAL)),
        (None, WebConfig(tls=NAMED), WebConfig(tls=replace(NAMED, client_allowed_sans=("b",)))),
        (None, WebConfig(users={"a": HASH}), WebConfig(users={"b": HASH})),
        ("tls_server_config", WebConfig(tls=PLAIN), WebConfig()),
        ("client_auth_type", WebConfig(tls=REQUIRED), WebConfig(tls=PLAIN)),
        ("client_auth_type", WebConfig(tls=OPTIONAL), WebConfig(tls=PLAIN)),
        ("client_allowed_sans", WebConfig(tls=NAMED), WebConfig(tls=REQUIRED)),
        ("basic_auth_users", WebConfig(tls=PLAIN, users={"a": HASH}), WebConfig(tls=PLAIN)),
    ],
)
def test_only_a_whole_protection_that_goes_is_a_loss(expected: str | None, before: WebConfig, after: WebConfig) -> None:
    assert expected == lost_protection(before, after)


def test_protection_that_is_removed_by_its_word_is_gone_at_once(write_config: Write, certificates: Authority) -> None:
    pair = f"cert_file: {certificates.server.cert}, key_file: {certificates.server.key}"
    required = f"client_auth_type: RequireAndVerifyClientCert, client_ca_file: {certificates.authority.cert}"
    path = write_config(f"tls_server_config: {{{pair}, {required}, client_allowed_sans: [a.example]}}\n{USERS}")
    gate = FileGate(path)

    rewrite(path, f"tls_server_config: {{{pair}}}\n{USERS}")
    assert (500, True) == (status(gate, "secret"), gate.rules().is_closed)
    rewrite(path, f"tls_server_config: {{{pair}, client_auth_type: NoClientCert}}\n{USERS}")
    assert 200 == status(gate, "secret")
    rewrite(path, f"tls_server_config: {{{pair}}}\nbasic_auth_users: {{}}\n")
    assert 200 == status(gate)
    rewrite(path, "")
    assert 500 == status(gate)
    rewrite(path, "tls_server_config: {}")
    assert (200, None) == (status(gate), gate.rules().tls)


def test_sentence_names_the_word_that_removes_a_protection(
    write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    rewrite(path, "# nothing\n")
    assert 500 == status(gate)
    assert "reload the service to accept that, or write basic_auth_users: {}" in str(
        caplog.records[-1].__dict__["fields"]
    )


def test_administrator_may_accept_that_a_protection_is_gone(write_config: Write, certificates: Authority) -> None:
    pair = f"cert_file: {certificates.server.cert}, key_file: {certificates.server.key}"
    path = write_config(f"tls_server_config: {{{pair}}}\n{USERS}")
    gate = FileGate(path)

    gate.accept()
    rewrite(path, "# the rest is not written yet\n")
    assert 500 == status(gate, "secret")
    gate.accept()
    assert (200, None) == (status(gate), gate.rules().tls)


def test_accepting_a_broken_file_opens_nothing(write_config: Write) -> None:
    path = write_config(USERS)
    gate = FileGate(path)
    rewrite(path, "basic_auth_users: {alice: [")
    gate.accept()
    assert 500 == status(gate, "secret")
    rewrite(path, "# nothing\n")
    assert 500 == status(gate, "secret")


def test_swapped_certificate_is_picked_up_and_a_half_pair_closes(
    write_config: Write, tmp_path: Path, certificates: Authority
) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    shutil.copy(certificates.server.cert, cert)
    shutil.copy(certificates.server.key, key)
    gate = FileGate(write_config("tls_server_config: {cert_file: c.pem, key_file: k.pem}"))
    first = gate.rules()
    shutil.copy(certificates.other_server.cert, cert)
    half = gate.rules()
    assert half.is_closed
    assert half.tls is not None
    shutil.copy(certificates.other_server.key, key)
    second = gate.rules()
    assert not second.is_closed
    assert second.tls is not first.tls

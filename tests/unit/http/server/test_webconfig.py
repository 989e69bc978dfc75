# SPDX-License-Identifier: Apache-2.0
"""Check that the web configuration file is read strictly, with promtool as the second opinion."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.gate import open_gate
from slurmscope.http.server.webconfig import ClientAuth, RateLimit, TlsSettings, WebConfig, read_web_config
from tests.fakes.certificates import Authority
from tests.requirements import require_program

Write = Callable[[str], Path]

HASH = "$2y$04$w0dGLZtXqN5HLYrgqK1cmuGm4Yb8JDhd.XyUkjUMZQ7gZqCBZ3mDq"
PAIR = "tls_server_config: {cert_file: server.pem, key_file: server.key"


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_web_config(path)
    return str(caught.value)


def test_whole_file_is_read(write_config: Write, tmp_path: Path) -> None:
    path = write_config(f"""
tls_server_config:
  cert_file: certs/server.pem
  key_file: /etc/keys/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [scraper.example, "fd00::1"]
  min_version: TLS13
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [X25519]
http_server_config:
  http2: true
  headers:
    X-Frame-Options: deny
    X-XSS-Protection: ""
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  alice: {HASH}
  no: {HASH}
rate_limit: {{interval: 1m30.5s, burst: 20}}
""")
    expected = WebConfig(
        tls=TlsSettings(
            cert_file=tmp_path / "certs/server.pem",
            key_file=Path("/etc/keys/server.key"),
            client_auth=ClientAuth.REQUIRE_AND_VERIFY,
            client_ca_file=tmp_path / "ca.pem",
            client_allowed_sans=("scraper.example", "fd00::1"),
            min_version="TLS13",
            max_version="TLS13",
            cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
            prefers_server_ciphers=False,
            curve_preferences=("X25519",),
        ),
        headers=(("X-Frame-Options", "deny"), ("Strict-Transport-Security", "max-age=31536000")),
        users={"alice": HASH, "no": HASH},
        rate_limit=RateLimit(interval_seconds=90.5, burst=20),
    )
    assert expected == read_web_config(path)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "{}", "tls_server_config:\nbasic_auth_users:\nrate_limit: {interval: 0}"]
)
def test_file_without_settings_is_valid(write_config: Write, text: str) -> None:
    assert WebConfig() == read_web_config(write_config(text))


def test_secrets_do_not_show(write_config: Write) -> None:
    assert HASH not in repr(read_web_config(write_config(f"basic_auth_users: {{a: {HASH}}}")))
    assert "s3cret" not in refusal(write_config("basic_auth_users:\n  a: s3cret\n"))
    assert "s3cret" not in refusal(write_config("basic_auth_users:\n  a: s3cret\n b: [\n"))


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("did you mean tls_server_config?", "tls_server_confg: {}"),
        ("did you mean client_ca_file?", f"{PAIR}, client_ca_fil: x}}"),
        ("did you mean http2?", "http_server_config: {htp2: true}"),
        ("did you mean X-Frame-Options?", "http_server_config: {headers: {x-frame-options: deny}}"),
        ("did you mean RequireAndVerifyClientCert?", f"{PAIR}, client_auth_type: RequireAndVerify}}"),
        ("unknown key 'zzz'", "zzz: 1"),
        ("key 'basic_auth_users' is a duplicate", f"basic_auth_users: {{a: {HASH}}}\nbasic_auth_users: {{}}"),
        ("key 'a' is a duplicate", f"basic_auth_users: {{a: {HASH}, a: {HASH}}}"),
        ("in line 2", "a: b\n c: [d\n"),
        ("is not a mapping", "- a"),
        ("is not a mapping", "just text"),
        ("is not a mapping", "basic_auth_users: [a]"),
        ("key_file is missing", "tls_server_config: {cert_file: a}"),
        ("cert_file is missing", "tls_server_config: {key_file: a}"),
        ("key and key_file exclude each other", f"{PAIR}, key: x}}"),
        ("cert and cert_file exclude each other", f"{PAIR}, cert: x}}"),
        ("client_ca and client_ca_file exclude each other", f"{PAIR}, client_ca: x, client_ca_file: y}}"),
        ("key_file is missing", "tls_server_config: {cert: x}"),
        ("has no effect without client_auth_type", f"{PAIR}, client_ca: x}}"),
        ("not a string", "tls_server_config: {cert_file: [a], key_file: b}"),
        (
            "RequireAnyClientCert accepts certificates without verifying",
            f"{PAIR}, client_auth_type: RequireAnyClientCert}}",
        ),
        ("RequestClientCert accepts certificates without verifying", f"{PAIR}, client_auth_type: RequestClientCert}}"),
        ("needs client_ca_file", f"{PAIR}, client_auth_type: RequireAndVerifyClientCert}}"),
        ("client_ca_file has no effect", f"{PAIR}, client_ca_file: ca.pem}}"),
        ("client_allowed_sans needs", f"{PAIR}, client_allowed_sans: [a]}}"),
        (
            "client_allowed_sans needs",
            f"{PAIR}, client_ca_file: c, client_auth_type: VerifyClientCertIfGiven, client_allowed_sans: [a]}}",
        ),
        (
            "would refuse every client",
            f"{PAIR}, client_ca_file: c, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: []}}",
        ),
        ("TLS11 is not secure", f"{PAIR}, min_version: TLS11}}"),
        ("'TLS14' is not one of", f"{PAIR}, max_version: TLS14}}"),
        ("min_version is above max_version", f"{PAIR}, min_version: TLS13, max_version: TLS12}}"),
        ("neither true nor false", f"{PAIR}, prefer_server_cipher_suites: maybe}}"),
        ("neither true nor false", "http_server_config: {http2: 2}"),
        ("is not a list", f"{PAIR}, cipher_suites: a}}"),
        ("is not one of deny, sameorigin", "http_server_config: {headers: {X-Frame-Options: allow}}"),
        ("unknown key 'Server'", "http_server_config: {headers: {Server: x}}"),
        ("printable ASCII", 'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nEvil: 1"}}'),
        ("'a' is not a bcrypt hash", "basic_auth_users: {a: plain}"),
        ("'a' is not a bcrypt hash", f"basic_auth_users: {{a: {HASH}x}}"),
        ("the cost of 'a'", f"basic_auth_users: {{a: {HASH.replace('$04$', '$31$')}}}"),
        ("cannot be sent in a user name", f'basic_auth_users: {{"a:b": {HASH}}}'),
        ("cannot be sent in a user name", f'basic_auth_users: {{"a\\ud800": {HASH}}}'),
        ("not a file name", 'tls_server_config: {cert_file: "a\\0b", key_file: b}'),
        ("not a file name", 'tls_server_config: {cert_file: a, key_file: "\\ud800"}'),
        ("not a duration", "rate_limit: {interval: soon, burst: 1}"),
        ("not a duration", "rate_limit: {interval: 1, burst: 1}"),
        ("burst is not a number", "rate_limit: {interval: 1s, burst: many}"),
        ("would refuse every request", "rate_limit: {interval: 1s}"),
    ],
)
def test_wrong_file_is_refused_with_a_sentence(write_config: Write, sentence: str, text: str) -> None:
    path = write_config(text)
    message = refusal(path)
    assert sentence in message
    assert str(path) in message
    assert "\n" not in message


def test_key_in_the_file_does_not_show(write_config: Write) -> None:
    config = read_web_config(write_config("tls_server_config: {cert: some text, key: s3cret}"))
    assert config.tls is not None
    assert ("some text", "s3cret", ()) == (config.tls.cert, config.tls.key, config.tls.files)
    assert "s3cret" not in repr(config)


def test_absent_unreadable_and_odd_files_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.yml")
    assert "cannot read" in refusal(tmp_path)
    (tmp_path / "latin.yml").write_bytes(b"# \xfc\n")
    assert "not UTF-8" in refusal(tmp_path / "latin.yml")
    (tmp_path / "large.yml").write_bytes(b"#" * 1_100_000)
    assert "larger than" in refusal(tmp_path / "large.yml")
    (tmp_path / "deep.yml").write_bytes(b"[" * 100_000)
    assert "not valid YAML" in refusal(tmp_path / "deep.yml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(text=st.text(alphabet="{}[]:,-&*!|>'\"%@ \n\tabtls_server_config", max_size=80))
def test_no_file_is_more_than_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yml"
    path.write_text(text)
    with contextlib.suppress(ConfigError):
        read_web_config(path)


AGREED = {
    "": True,
    "{}": True,
    f"{PAIR}}}": True,
    f"{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ours.pem}}": True,
    f"{PAIR}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ours.pem}}": True,
    f"{PAIR}, min_version: TLS13}}": True,
    f"{PAIR}, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]}}": True,
    f"{PAIR}, curve_preferences: [CurveP384]}}": True,
    f"{PAIR}, curve_preferences: [CurveP256], prefer_server_cipher_suites: false}}": True,
    f"basic_auth_users: {{a: {HASH}}}": True,
    "http_server_config: {http2: false, headers: {X-Frame-Options: deny, Content-Security-Policy: x}}": True,
    "tls_server_config: {cert_file: absent.pem, key_file: server.key}": False,
    "tls_server_config: {cert_file: server.pem}": False,
    "tls_server_config: {cert_file: server.pem, key_file: client.key}": False,
    "tls_server_config: {cert_file: server.key, key_file: server.pem}": False,
    f"{PAIR}, client_ca_file: ours.pem}}": False,
    f"{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: absent.pem}}": False,
    f"{PAIR}, client_auth_type: Sometimes}}": False,
    f"{PAIR}, cipher_suites: [TLS_INVENTED]}}": False,
    f"{PAIR}, curve_preferences: [CurveP1]}}": False,
    f"{PAIR}, min_version: TLS111}}": False,
    "unknown_key: 1": False,
    "http_server_config: {headers: {Server: x}}": False,
    "http_server_config: {headers: {X-Frame-Options: allow}}": False,
    "basic_auth_users: {a: plain}": False,
    "basic_auth_users: [": False,
}


@pytest.mark.parametrize("text", AGREED)
def test_promtool_says_the_same(tmp_path: Path, certificates: Authority, text: str) -> None:
    promtool = require_program("promtool")
    for identity in (certificates.authority, certificates.server, certificates.client):
        shutil.copy(identity.cert, tmp_path)
        shutil.copy(identity.key, tmp_path)
    path = tmp_path / "web.yml"
    path.write_text(text)
    checked = subprocess.run([promtool, "check", "web-config", str(path)], capture_output=True, timeout=60, check=False)
    assert AGREED[text] == (checked.returncode == 0), checked.stderr
    try:
        open_gate(path)
    except ConfigError as error:
        assert not AGREED[text], error
    else:
        assert AGREED[text]

# SPDX-License-Identifier: Apache-2.0
"""Check that curl, an independent client, agrees with what is served."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path

import bcrypt

from tests.fakes.certificates import Authority
from tests.fakes.exposition import PAGE, BreakingExposition, FakeExposition
from tests.requirements import require_program
from tests.unit.http.server.conftest import Serve

PARTIAL_TRANSFER = {18, 56}
"""Exit codes of curl for a body that ends too early and for a reset."""


def curl(*arguments: str) -> tuple[int, bytes]:
    done = subprocess.run(
        [require_program("curl"), "--silent", "--noproxy", "*", "--max-time", "60", *arguments],
        capture_output=True,
        timeout=90,
        check=False,
    )
    return done.returncode, done.stdout


def test_page_is_fetched_plain_compressed_and_by_http10(serve: Serve) -> None:
    url = f"http://{serve().address}/metrics"
    assert (0, PAGE) == curl(url)
    assert (0, PAGE) == curl("--http1.0", url)
    compressed = f"http://{serve(FakeExposition(gzip.compress(PAGE))).address}/metrics"
    assert (0, PAGE) == curl("--compressed", compressed)


def test_one_connection_serves_several_urls(serve: Serve) -> None:
    address = serve().address
    format_ = "%{num_connects} %{http_code}\n"
    urls = [f"http://{address}{path}" for path in ("/metrics", "/-/healthy", "/nothing")]
    outputs = [argument for url in urls for argument in ("--output", "/dev/null", url)]
    assert (0, b"1 200\n0 200\n0 404\n") == curl("--write-out", format_, *outputs)


def test_page_that_breaks_off_is_an_error(serve: Serve) -> None:
    status, _ = curl(f"http://{serve(BreakingExposition(3)).address}/metrics")
    assert status in PARTIAL_TRANSFER


def test_upload_is_refused_with_a_status(serve: Serve, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"x" * 2_000_000)
    upload = ("--output", "/dev/null", "--write-out", "%{http_code}", "--data-binary", f"@{body}")
    assert (0, b"405") == curl(*upload, f"http://{serve().address}/metrics")


def test_client_certificate_and_password_let_curl_in(
    serve: Serve, write_config: Callable[[str], Path], certificates: Authority
) -> None:
    digest = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    config = (
        f"tls_server_config:\n  cert_file: {certificates.server.cert}\n  key_file: {certificates.server.key}\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {certificates.authority.cert}\n"
        f"  client_allowed_sans: [scraper.example]\nbasic_auth_users: {{alice: {digest}}}\n"
    )
    url = f"https://{serve(config_file=write_config(config)).address}/metrics"
    trust = ("--cacert", str(certificates.authority.cert))
    client = ("--cert", str(certificates.client.cert), "--key", str(certificates.client.key))
    assert (0, PAGE) == curl(*trust, *client, "--user", "alice:secret", url)
    assert curl(*trust, *client, "--user", "alice:wrong", "--fail", url)[0] == 22
    assert curl(*trust, "--user", "alice:secret", url)[0] != 0

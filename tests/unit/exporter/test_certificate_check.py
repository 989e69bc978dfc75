# SPDX-License-Identifier: Apache-2.0
"""A certificate that clients would refuse is found by the doctor."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurmscope.core.check import Check
from slurmscope.exporter.doctor import check_certificate
from slurmscope.http.server.gate import open_gate
from tests.requirements import require_program


def make_certificate(folder: Path, *dates: str) -> Path:
    """Write a self-signed certificate and a web configuration that names it."""
    key, request, cert = folder / "a.key", folder / "a.csr", folder / "a.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for argv in (
        ("req", "-new", *curve, "-subj", "/CN=a", "-keyout", str(key), "-out", str(request)),
        ("x509", "-req", "-in", str(request), "-signkey", str(key), *dates, "-out", str(cert)),
    ):
        subprocess.run([require_program("openssl"), *argv], check=True, capture_output=True, timeout=60)
    file = folder / "web.yml"
    file.write_text(f"tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n")
    return file


def check(file: Path | None) -> list[Check]:
    return list(check_certificate(file))


def test_valid_certificate_is_good(tmp_path: Path) -> None:
    (found,) = check(make_certificate(tmp_path, "-days", "2"))

    assert found.is_good, found.message
    assert "is valid until" in found.message
    assert "unknown" not in found.message


def test_expired_certificate_is_reported(tmp_path: Path) -> None:
    (found,) = check(make_certificate(tmp_path, "-days", "-1"))

    assert not found.is_good
    assert "expired" in found.message
    assert "renew" in found.advice


def test_absent_certificate_is_reported(tmp_path: Path) -> None:
    file = make_certificate(tmp_path, "-days", "2")
    (tmp_path / "a.pem").unlink()

    (found,) = check(file)

    assert not found.is_good
    assert "a.pem" in found.message


def test_plain_http_has_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("")

    assert [] == check(None) + check(file)


@pytest.mark.parametrize("days", ["2", "-1"])
def test_expiry_is_exported_also_after_it_has_passed(days: str, tmp_path: Path) -> None:
    file = make_certificate(tmp_path, "-days", days)
    argv = [require_program("openssl"), "x509", "-enddate", "-noout", "-in", str(tmp_path / "a.pem")]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

    tls = open_gate(file)().tls

    ends = datetime.strptime(said.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    assert tls is not None
    assert ends.timestamp() == tls.expiry_seconds

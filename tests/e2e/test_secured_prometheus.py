# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that requires a client certificate and a password is queried, also after they are replaced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.prometheus import run_prometheus
from slurmscope.core.errors import ServerRefused
from slurmscope.http.client.address import parse_address
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.settings import PrometheusSettings
from tests.fakes.certificates import make_authority
from tests.fakes.secured_server import secure
from tests.processes import run_slurmscope

GENEROUS_SECONDS = 60.0


def test_queries_show_the_current_client_certificate(tmp_path: Path) -> None:
    secured, cert_file, password_file = secure(tmp_path), tmp_path / "portal.pem", tmp_path / "password"
    stranger = make_authority(tmp_path, "stranger")
    cert_file.write_bytes(stranger.cert.read_bytes() + stranger.key.read_bytes())
    password_file.write_text("secret")
    web = f"--web.config.file={secured.config_file}"
    with run_prometheus(tmp_path / "prometheus", "", web, opener=secured.opener) as server:
        settings = PrometheusSettings(
            url=parse_address(server.url),
            ca_file=secured.authority.cert,
            cert_file=cert_file,
            user="agents",
            password_file=password_file,
            retries=0,
        )
        client = Prometheus(settings)

        def add() -> list[float]:
            reply = client.query_instant("vector(1 + 1)", None, kind="test", until=time.monotonic() + GENEROUS_SECONDS)
            return [series.values[0] for series in reply.series]

        with pytest.raises(ServerRefused, match=r"TLS with .* failed: "):
            add()
        cert_file.write_text("not a certificate")
        with pytest.raises(ServerRefused, match=r"the client certificate .* cannot be used: .*--prometheus.cert-file"):
            add()
        cert_file.write_bytes(secured.client.cert.read_bytes() + secured.client.key.read_bytes())
        assert [2.0] == add()

        flags = ["--prometheus.url", server.url, "--prometheus.ca-file", str(secured.authority.cert)]
        flags += ["--prometheus.user", "agents", "--prometheus.password-file", str(password_file)]
        certificate = ["--prometheus.cert-file", str(secured.client.cert), "--prometheus.key-file"]
        for given, line in (
            ([*certificate, str(secured.client.key)], f"ok      time series: {server.url} answers"),
            ([], "failed  time series: TLS with"),
        ):
            done = run_slurmscope("doctor", "portal", "--archive.url", str(tmp_path / "archive.db"), *flags, *given)
            assert line in done.stdout

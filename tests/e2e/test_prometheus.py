# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes us over TLS with a password, in both formats."""

from __future__ import annotations

import base64
import http.server
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt

from lab import ALICE, SlurmLab
from lab.prometheus import Server, run_prometheus
from tests.processes import Exporter, serving, until

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: slurm
    scheme: {scheme}
    basic_auth: {{username: prometheus, password: secret}}
    tls_config: {{ca_file: {ca}, server_name: localhost}}
    static_configs: [{{targets: ["{address}"]}}]
"""


def make_web_config(folder: Path) -> Path:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "server.key", "-out", folder / "server.crt"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    path = folder / "web.yml"
    path.write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
        f"basic_auth_users: {{prometheus: '{hashed}'}}\n",
        encoding="utf-8",
    )
    return path


@contextmanager
def secured_exporter(lab: SlurmLab, folder: Path) -> Iterator[Exporter]:
    """Serve the lab's jobs, one of them running, over TLS with a password."""
    lab.wait_state(lab.submit(ALICE, script="sleep 600"), {"RUNNING"})
    flags = ("--web.config.file", str(make_web_config(folder)), "--slurm.bin-path", str(lab.bin_path))
    with serving("cluster", *flags, environment=lab.environment) as exporter:
        yield exporter


def assert_scraped(prometheus: Server) -> None:
    running = f'slurm_user_state_total{{username="{ALICE}",state="RUNNING"}}'
    # A scrape that a busy machine makes late ends all series until the next one.
    until(lambda: [1] == [sample.value for sample in prometheus.query(running)])
    until(lambda: [("up", "")] == [(target.health, target.last_error) for target in prometheus.targets()])
    until(lambda: prometheus.query("slurmscope_build_info"))


@contextmanager
def asking_for_text(address: str, ca_file: Path, asked: list[str]) -> Iterator[str]:
    """Stand between Prometheus 2, which can only prefer OpenMetrics, and an exporter, and ask for text."""
    context = ssl.create_default_context(cafile=str(ca_file))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {"Accept": "text/plain;version=0.0.4", "Authorization": self.headers["Authorization"]}
            request = urllib.request.Request(f"https://{address}{self.path}", headers=headers)
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                page, kind = answer.read(), answer.headers["Content-Type"]
            asked.append(kind)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_prometheus_scrapes_openmetrics_over_tls_with_a_password(clean_lab: SlurmLab, tmp_path: Path) -> None:
    with secured_exporter(clean_lab, tmp_path) as exporter:
        config = CONFIG.format(scheme="https", ca=tmp_path / "server.crt", address=exporter.addresses[0])
        with run_prometheus(tmp_path / "prometheus", config) as prometheus:
            assert_scraped(prometheus)


def test_prometheus_scrapes_text(clean_lab: SlurmLab, tmp_path: Path) -> None:
    ca_file, kinds = tmp_path / "server.crt", []  # type: tuple[Path, list[str]]
    with (
        secured_exporter(clean_lab, tmp_path) as exporter,
        asking_for_text(exporter.addresses[0], ca_file, kinds) as address,
    ):
        config = CONFIG.format(scheme="http", ca=ca_file, address=address)
        with run_prometheus(tmp_path / "prometheus", config) as prometheus:
            assert_scraped(prometheus)
    assert {"text/plain; version=0.0.4; charset=utf-8"} == set(kinds)


def test_wrong_password_and_plain_http_get_nothing(clean_lab: SlurmLab, tmp_path: Path) -> None:
    with secured_exporter(clean_lab, tmp_path) as exporter:
        context = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
        for password in ("wrong", ""):
            credentials = base64.b64encode(f"prometheus:{password}".encode()).decode()
            request = urllib.request.Request(
                f"https://{exporter.addresses[0]}/metrics", headers={"Authorization": f"Basic {credentials}"}
            )
            try:
                urllib.request.urlopen(request, context=context, timeout=60).close()
                status = 200
            except urllib.error.HTTPError as error:
                status = error.code
                error.close()
            assert 401 == status

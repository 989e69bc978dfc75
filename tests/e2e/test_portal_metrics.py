# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real portal by a token, and nobody else gets its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from lab.prometheus import run_prometheus
from tests.processes import Exporter, run_slurmscope, running, until

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: staff
    authorization: {{credentials_file: {folder}/support.token}}
    static_configs: [{{targets: ["{address}"]}}]
  - job_name: user
    authorization: {{credentials_file: {folder}/user.token}}
    static_configs: [{{targets: ["{address}"]}}]
  - job_name: nobody
    static_configs: [{{targets: ["{address}"]}}]
"""


@contextmanager
def portal(folder: Path) -> Iterator[Exporter]:
    """Run a portal whose only way in is a token: its proxy is elsewhere."""
    flags = (
        "--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "192.0.2.1",
        "--archive.url", str(folder / "archive.db"), "--slurm.bin-path", str(folder),
    )  # fmt: skip
    with running("portal", *flags, wait_for="msg=listening") as exporter:
        until((folder / "archive.db").exists)
        yield exporter


def give_token(folder: Path, role: str) -> None:
    done = run_slurmscope(
        "token", "create", "--name", "prometheus", "--role", role, "--archive.url", str(folder / "archive.db")
    )
    assert 0 == done.returncode, done.stderr
    (folder / f"{role}.token").write_text(done.stdout, encoding="utf-8")


def test_prometheus_scrapes_the_portal_by_a_token_of_support_and_by_no_other(tmp_path: Path) -> None:
    with portal(tmp_path) as exporter:
        for role in ("support", "user"):
            give_token(tmp_path, role)
        address = urlsplit(exporter.addresses[0]).netloc
        config = CONFIG.format(folder=tmp_path, address=address)
        with run_prometheus(tmp_path / "prometheus", config) as prometheus:
            until(lambda: all(target.health != "unknown" for target in prometheus.targets()))
            until(lambda: prometheus.query('slurmscope_portal_requests_total{route="/metrics",status="2xx"}'))

            up = {sample.labels["job"]: sample.value for sample in prometheus.query("up")}
            errors = {target.last_error for target in prometheus.targets()}
            # There is no sacct where it looks, and the page says so instead of failing.
            reporter = [sample.value for sample in prometheus.query("slurmscope_reporter_up")]

    assert {"staff": 1, "user": 0, "nobody": 0} == up
    assert {"", "server returned HTTP status 403 Forbidden", "server returned HTTP status 401 Unauthorized"} == errors
    assert [0] == reporter

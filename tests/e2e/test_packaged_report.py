# SPDX-License-Identifier: Apache-2.0
"""From the packages to the report of a job that ran on a real cluster.

In a minimal Debian, agent and portal are installed by apt, set up by ``slurmscope init`` and started by the command
lines of their units; the cluster, its accounting and Prometheus run outside, as they do at a site.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, SlurmLab
from lab.errors import LabError
from lab.ports import free_port
from lab.prometheus import Server, run_prometheus
from scripts.packages.__main__ import main as build_packages
from slurmscope import __version__
from tests.e2e import half_idle_job
from tests.e2e.install_sandbox import run_as_root
from tests.e2e.minimal_root import make_root
from tests.processes import run_slurmscope, until
from tests.requirements import require_program

ROOT = Path(__file__).parents[2]
SUITES = os.environ.get("DEBIAN_SUITES", "bookworm").split()
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
HELD_MIB, PATIENCE_SECONDS = 200, 240
BUSY_SECONDS = 4
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: slurm-nodes
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
ANSWERS = """
roles = ["node", "portal"]
readers = ["127.0.0.1"]
prometheus-url = "{prometheus}"
portal-url = "https://jobs.example.org"
admins = ["root"]
[settings.node]
web.listen-address = ["127.0.0.1:{port}"]
[settings.portal]
accounting.host = "{database}"
accounting.password-file = "/etc/slurmscope/accounting.password"
prometheus.scrape-interval = "1s"
reporter.interval = "1s"
"""
SCRIPT = """
apt-get install --yes --no-install-recommends ./slurmscope*.deb
slurmscope init --answers "$SITE/answers.toml"
install -m 0640 -g slurmscope "$SITE/password" /etc/slurmscope/accounting.password
slurmscope config check node && slurmscope config check portal
systemctl enable --now slurmscope-node
systemctl enable --now slurmscope-portal
waited=0; until [ -e "$SITE/job" ]; do sleep 1; waited=$((waited + 1)); test $waited -lt 300; done
job=$(cat "$SITE/job")
fetch() {
    python3 - "$1" <<'END'
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/slurmscope/portal.sock")
connection.request("GET", sys.argv[1], headers={"X-Remote-User": "root"})
answer = connection.getresponse()
body = answer.read().decode()
sys.exit(f"{answer.status} {body[:200]}") if answer.status != 200 else print(body)
END
}
waited=0; until fetch "/api/v2/jobs/$job" | grep -q '"state":"COMPLETED"\\|"state": "COMPLETED"'; do
    sleep 1; waited=$((waited + 1))
    test $waited -lt 120 || { cat /run/slurmscope-portal.log >&2; exit 1; }
done
echo PAGE; fetch "/jobs/$job" | grep -o "<title>[^<]*"
echo TERMINAL; slurmscope report "$job"
echo JSON; slurmscope report "$job" --format json
"""


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder of packages for each suite, whose portal is for the Python of that suite."""
    require_program("dpkg-deb")
    folders = {}
    for suite in SUITES:
        folders[suite] = tmp_path_factory.mktemp(suite)
        options = ["--output", str(folders[suite]), "--portal-python", PYTHONS[suite]]
        assert 0 == build_packages(["deb", *options])
        assert {f"slurmscope_{__version__}_all.deb"} < {path.name for path in folders[suite].iterdir()}
    return folders


@contextmanager
def readable_accounting(lab: SlurmLab, folder: Path) -> Iterator[Path]:
    """Let a user of the database read accounting, and return its password file."""
    password = folder / "password"
    database = ("--accounting.host", str(lab.layout.database_socket), "--accounting.password-file", str(password))
    granted = run_slurmscope("database", "grant", *database, environment=lab.environment)
    assert (0, "") == (granted.returncode, granted.stderr)
    yield password
    run_slurmscope("database", "revoke", *database, environment=lab.environment)


def run_job(lab: SlurmLab, prometheus: Server, site: Path, *, seconds: float = BUSY_SECONDS) -> dict[str, float]:
    """Run a job while Prometheus scrapes the agent, and tell its ID to the minimal system when it has ended."""
    work = lab.folder / "work" / "packaged"
    work.mkdir(parents=True, exist_ok=True)
    work.chmod(0o777)
    shutil.copy(half_idle_job.__file__, work / "half_idle_job.py")
    job = lab.submit(
        ALICE, "--ntasks=1", "--cpus-per-task=4", "--mem=1024M", "--time=10",
        script=f"exec python3 {work}/half_idle_job.py {work}/told-$SLURM_JOB_ID {seconds} {HELD_MIB}",
    )  # fmt: skip
    lab.wait_state(job, {"COMPLETED"}, timeout=PATIENCE_SECONDS)
    until(lambda: prometheus.query(f'jobs_info{{slurm_job="{job}",has_ended="true"}}'), PATIENCE_SECONDS)
    (site / "job.part").write_text(str(job))
    (site / "job.part").rename(site / "job")
    told: dict[str, float] = json.loads((work / f"told-{job}").read_text())
    return told


@pytest.mark.parametrize("suite", SUITES)
def test_job_on_a_real_cluster_has_a_report_from_the_packages(
    suite: str, debs: dict[str, Path], clean_lab: SlurmLab, tmp_path: Path
) -> None:
    lab, port, site = clean_lab, free_port(), tmp_path / "site"
    site.mkdir()
    with (
        run_prometheus(tmp_path / "prometheus", CONFIG.format(port=port)) as prometheus,
        readable_accounting(lab, site),
        ThreadPoolExecutor(1) as background,
    ):
        answers = ANSWERS.format(prometheus=prometheus.url, port=port, database=lab.layout.database_socket)
        (site / "answers.toml").write_text(answers)
        installed = background.submit(
            run_as_root,
            SCRIPT,
            tmp_path,
            clone=debs[suite],
            environment={"SITE": str(site), "DEBIAN_FRONTEND": "noninteractive"},
            visible=[lab.folder, site],
            base=make_root(suite),
        )
        until(lambda: installed.done() or is_up(prometheus), PATIENCE_SECONDS)
        assert not installed.done(), installed.result().stderr[-6000:]
        told = run_job(lab, prometheus, site)
        done = installed.result()

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-6000:]
    _, _, document = done.stdout.partition("\nJSON\n")
    summary: dict[str, Any] = json.loads(document)["summary"]
    assert told["cpu_seconds"] == pytest.approx(summary["cpu"]["time"]["used"], rel=0.15, abs=0.6)
    assert HELD_MIB << 20 <= summary["memory"]["working_peak_bytes"] <= (HELD_MIB + 80) << 20
    assert summary["coverage"]["nodes_measured"] == summary["coverage"]["nodes"] == 1
    job = summary["record"]["job_id"]
    assert f"<title>Job {job}" in done.stdout


def is_up(prometheus: Server) -> bool:
    try:
        return bool(prometheus.query('up{job="slurm-nodes"} == 1'))
    except (OSError, LabError):  # it does not run yet, or has just begun to
        return False

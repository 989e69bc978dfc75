# SPDX-License-Identifier: Apache-2.0
"""The steps of the installation guide, typed as they are written, lead to the report of a job; run by ``make trial``.

They are typed on this machine, in an overlay that is thrown away, against a real cluster. They need three minutes and
install a Prometheus for all: so they are not in ``make test``.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import SlurmLab
from lab.ports import free_port
from lab.prometheus import Server
from tests.e2e.install_sandbox import HIDDEN_BY_SANDBOX, failed_checks, run_as_root, tolerate_sandbox
from tests.e2e.test_packaged_report import PATIENCE_SECONDS, debs, is_up, run_job  # noqa: F401 - a fixture
from tests.processes import until

ROOT = Path(__file__).parents[2]
PORTS = ("9092", "9798", "9090")
# Two lines that are no commands: which files Prometheus reads besides its own. An older release gets the scrape jobs.
NAMED_RULES = "rule_files: [/etc/slurmscope/prometheus/rules.yml, /etc/slurmscope/prometheus/job-rules.yml]"
PRELUDE = """
export APT_CONFIG=$SITE/apt.conf
typed() { printf '%s\\n' "$@" | script -qec 'slurmscope init' /dev/null; }
run_prometheus() {
    install -d -o prometheus /run/prometheus
    runuser -u prometheus -- prometheus --config.file /etc/prometheus/prometheus.yml \\
        --storage.tsdb.path /run/prometheus --web.listen-address 127.0.0.1:9090 >/run/prometheus.log 2>&1 &
}
"""
WAIT = """
echo STARTED
waited=0; until [ -e "$SITE/job" ]; do sleep 1; waited=$((waited + 1)); test $waited -lt 400; done
"""


def steps_of_the_guide() -> str:
    """Return what an administrator types, with the answers to the questions of init and the lines for Prometheus."""
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    section = text[text.index("## Step by step") :].partition("\n## ")[0]
    assert NAMED_RULES in section
    blocks = re.findall(r"(?ms)^ *```console\n(.*?)^ *```$", section)
    cluster, node, prometheus, portal, report = (re.sub(r"(?m)^ *# ", "", block) for block in blocks)
    ports = "sed -i 's/:9092/:9092/; s/:9798/:9798/' /etc/slurmscope/*.toml\n"
    cluster = cluster.replace("slurmscope init", f"{ports}typed 'cluster portal' http://127.0.0.1:9090 '' root y")
    node = node.replace("slurmscope init", f"{ports}typed node 127.0.0.1 y")
    node = tolerate_sandbox(node)
    named = (
        f"sed -i 's#^rule_files:.*#{NAMED_RULES}#; s#/sd/nodes#/sd/nodes?port=9798#' /etc/prometheus/prometheus.yml\n"
    )
    prometheus = prometheus.replace("promtool check config", f"{named}promtool check config") + "run_prometheus\n"
    report = report.replace("4711", '"$(cat "$SITE/job")"')
    return "".join((PRELUDE, cluster, node, prometheus, portal, WAIT, report))


def test_steps_of_the_guide_lead_to_the_report_of_a_job(
    debs: dict[str, Path],  # noqa: F811
    clean_lab: SlurmLab,
    tmp_path: Path,
) -> None:
    lab, site = clean_lab, tmp_path / "site"
    site.mkdir()
    (site / "apt.conf").write_text('APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n')
    script = steps_of_the_guide()
    ports = {port: str(free_port()) for port in PORTS}
    # The left side of the substitutions stays.
    script = re.sub("(?<!s/:)(9092|9798|9090)", lambda found: ports[found[1]], script)
    server = Server(url=f"http://127.0.0.1:{ports['9090']}", pid=0)
    with ThreadPoolExecutor(1) as background:
        installed = background.submit(
            run_as_root,
            script,
            tmp_path,
            clone=debs["bookworm"],
            environment={**lab.environment, "SITE": str(site), "DEBIAN_FRONTEND": "noninteractive"},
            visible=[lab.folder, site],
        )
        until(lambda: installed.done() or is_up(server), PATIENCE_SECONDS)
        assert not installed.done(), installed.result().stdout[-2000:] + installed.result().stderr[-6000:]
        run_job(lab, server, site, seconds=60)
        done = installed.result()

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-6000:]
    assert "slurm_up 1" in done.stdout.splitlines()
    assert re.search(r"^Job \d+: sbatch +COMPLETED$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"Memory .* 2\d\d MiB of 1 GiB", done.stdout), done.stdout
    assert 2 == done.stdout.count("All checks passed."), done.stdout
    assert HIDDEN_BY_SANDBOX == failed_checks(done.stdout)

# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and of the installation guide work as they are written, against a real cluster.

Blocks marked ``sh`` are run from top to bottom; other blocks (``console``, ``text``) are shown to people only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from lab import SlurmLab
from lab.ports import free_port
from tests.e2e.install_sandbox import HIDDEN_BY_SANDBOX, failed_checks, run_as_root, tolerate_sandbox

ROOT = Path(__file__).parents[2]
PACKAGED = ("src", "deploy", "docs", "pyproject.toml", "README.md", "LICENSE")
BLOCK = re.compile(r"(?ms)^```sh\n(.*?)^```$")
BY_HAND = re.compile(r"(?ms)^ *```console\n(.*?)^ *```$")
PORTS = ("9092", "9798")

# What the guide promises and no command of it shows.
AFTERWARDS = """
for try in $(seq 60); do [ ! -e /var/lib/node_exporter/slurm.prom ] || break; sleep 1; done
grep -x 'slurm_up 1' /var/lib/node_exporter/slurm.prom
if curl -sS --max-time 5 http://localhost:9092/metrics; then exit 1; fi
[ "$(stat -c %a:%G /etc/slurmscope/server.key)" = 640:slurmscope ]
diff -r --exclude=grafana --exclude=__pycache__ --exclude=__init__.py deploy /opt/slurmscope/share/slurmscope
diff -r deploy/grafana/provisioning /opt/slurmscope/share/slurmscope/grafana/provisioning
diff -r deploy/grafana/dashboards /etc/grafana/slurmscope
diff deploy/grafana/provisioning/dashboards.yml /etc/grafana/provisioning/dashboards/slurmscope.yml
"""

# Everything that has our name, our user, or is in a folder that the guide makes.
# Tests beside this one write into the clone and the cache of the lab.
LISTING = f"""
listing() {{
    find /etc /usr /opt /srv /home /var /root -regextype egrep ! -path '/var/tmp/*' ! -path '*/__pycache__*' \\
        ! -path '{ROOT}/*' ! -path '/root/.cache*' \\
        \\( -regex '.*(slurm|/wheels|/etc/prometheus|/etc/grafana|/var/lib/node_exporter).*' -o -nouser \\) | sort
    grep -o '^slurmscope:' /etc/passwd || true
}}
listing >/root/listing-before
# As a host that has Prometheus has one.
touch /etc/prometheus/prometheus.yml
"""
# Where the guide names the files only.
REMOVED_BY_HAND = """
cd /
# As with PrivateData.
sacctmgr -i add user slurmscope account=root adminlevel=operator
rm /etc/prometheus/rules/slurmscope.yml /etc/prometheus/rules/slurmscope-jobs.yml /etc/prometheus/slurm-nodes.yml
rmdir --ignore-fail-on-non-empty /etc/prometheus/rules
mv /etc/prometheus/prometheus.yml~ /etc/prometheus/prometheus.yml
rm -r /etc/grafana/slurmscope /etc/grafana/provisioning/dashboards/slurmscope.yml /var/lib/node_exporter
rmdir -p --ignore-fail-on-non-empty /etc/grafana/provisioning/dashboards
"""
LEFT = """
listing >/root/listing-after
sed 's/^/LEFT /' <(comm -13 /root/listing-before /root/listing-after)
"""


def commands(page: Path, heading: str = "") -> str:
    """Return the commands of a page that are to be run, from a heading on."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(BLOCK.findall(text[text.index(heading) :]))


def commands_by_hand(page: Path, heading: str) -> list[str]:
    """Return the blocks of a section whose commands root types."""
    text = page.read_text(encoding="utf-8")
    blocks = BY_HAND.findall(text[text.index(heading) :])
    return ["\n".join(line.strip().removeprefix("# ") for line in block.splitlines()) for block in blocks]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of what is packaged, with ports that are free on this machine."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in PACKAGED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    replacements = {port: str(free_port()) for port in PORTS}
    replacements["python3.11"] = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for file in (folder / "README.md", *(folder / "docs").rglob("*.md"), *(folder / "deploy").glob("*.*")):
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    return folder


def settings(clone: Path) -> dict[str, str]:
    """Return variables for the installers: where to download from, and that what is installed need not be newer."""
    (clone / "apt.conf").write_text('APT::Get::Upgrade "false";\n', encoding="utf-8")
    of_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {**of_pip, "APT_CONFIG": str(clone / "apt.conf")}


def traces() -> list[object]:
    """Return what an installation on this machine itself would change."""
    places = ("/opt", "/etc/passwd", "/etc/systemd/system")
    # Programs that other tests run keep caches and histories in hidden files.
    shown = sorted(path.name for path in Path("/root").iterdir() if not path.name.startswith("."))
    return [*(Path(place).stat().st_mtime_ns for place in places), shown]


def test_installation_guide_leads_to_running_services(clean_lab: SlurmLab, clone: Path, tmp_path: Path) -> None:
    environment = {**settings(clone), **clean_lab.environment}
    before = traces()
    port = tomllib.loads((clone / "deploy" / "cluster.toml").read_text(encoding="utf-8"))["web"]["listen-address"][0]
    dashboards = "\ncd /opt/slurmscope/share/slurmscope\n" + commands(clone / "docs" / "dashboards.md")
    afterwards = f"\ncd {clone}\n" + AFTERWARDS.replace(":9092", port)
    removal, deletion = commands_by_hand(clone / "docs" / "install.md", "### Remove")
    script = LISTING + tolerate_sandbox(commands(clone / "docs" / "install.md")) + dashboards + afterwards
    script += f"{REMOVED_BY_HAND}{removal}{LEFT}echo DELETED\n{deletion}{LEFT}"

    done = run_as_root(script, tmp_path, clone=clone, environment=environment, visible=[clean_lab.folder])

    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-8000:]
    assert 3 == done.stdout.splitlines().count("slurm_up 1"), done.stdout
    # The agent sees the jobs of every Slurm on this machine.
    assert re.search(r"(?m)^jobs_on_node \d+$", done.stdout)
    assert "<title>" in done.stdout
    assert "SUCCESS" in done.stdout
    assert 1 == done.stdout.count("All checks passed.")
    assert HIDDEN_BY_SANDBOX == failed_checks(done.stdout)
    kept, _, deleted = done.stdout.partition("\nDELETED\n")
    places = {"/etc/slurmscope", "/var/lib/slurmscope"}
    left = {line.removeprefix("LEFT ") for line in kept.splitlines() if line.startswith("LEFT ")}
    assert {"slurmscope:"} == {path for path in left if not any(path.startswith(place) for place in places)}
    assert {"/etc/slurmscope/server.key", "/etc/slurmscope/prometheus.password", *places} <= left
    assert [] == [line for line in deleted.splitlines() if line.startswith("LEFT ")]
    assert before == traces()


def test_readme_leads_to_the_metrics_of_a_cluster(clean_lab: SlurmLab, clone: Path, tmp_path: Path) -> None:
    environment = {**settings(clone), **clean_lab.environment}
    script = commands(clone / "README.md", "## On a real cluster")

    done = run_as_root(script, tmp_path, clone=clone, environment=environment, visible=[clean_lab.folder])

    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-8000:]
    assert 1 == done.stdout.splitlines().count("slurm_up 1"), done.stdout
    assert "All checks passed." == done.stdout.splitlines()[-1]
